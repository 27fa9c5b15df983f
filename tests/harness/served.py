"""The queue behind a server, as a subject: every operation and every look is a call of the client over the wire.

The server runs in this process, in a thread with an event loop of its own, so that its clock is the harness's and the
database can be read after every step: replies *and* rows are the model's. Reopening ends the server and starts another
one over the reopened queue, to which a new client connects.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar
from unittest.mock import patch

from telha_jobs import InvalidArgumentError, JobQueue, StaleLeaseError, State
from telha_jobs.client import Client, connect
from telha_jobs.protocol import Queue
from telha_jobs.rpc import calls
from telha_jobs.rpc.server import Server
from telha_jobs.settings import Flag, load
from telha_model.replies import Reply
from telha_model.types import Config
from tests.harness.subject import EngineSubject, SubjectError

FREE_PORT: Final = "127.0.0.1:0"
BOUND_S: Final = 30.0
"""No call, start or stop may take longer: an answer that never comes is a difference, not a hang."""
OWN: Final = "A replay serves an empty queue of its own, under a clock that it moves: a server that runs has neither"

Result = TypeVar("Result")


class Host:
    """A thread that serves one queue after another, each with a client that is connected to it."""

    def __init__(self, listen: str = FREE_PORT) -> None:
        try:
            self._settings = load(environment={}, flags=[Flag("server.listen", listen, "listen")]).server
        except InvalidArgumentError as error:
            raise SubjectError(str(error)) from error
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._thread.start()
        self._server: Server | None = None
        self._client: Client | None = None

    def serve(self, queue: JobQueue) -> Client:
        """Start a server of the queue. `SubjectError` when its address cannot be listened on."""
        try:
            self._server = self._wait(Server.start(queue, self._settings))
        except InvalidArgumentError as error:
            raise SubjectError(f"{error}. {OWN}") from error
        # Whatever is lost is a difference: nothing is sent twice.
        self._client = connect(self._server.address, timeout_s=BOUND_S, wait=False)
        return self._client

    @property
    def address(self) -> str:
        """Where the server listens; `SubjectError` when there is none."""
        if self._server is None:
            raise SubjectError("nothing is served")
        return self._server.address

    def stop(self) -> None:
        """End the server and its client; the queue stays open."""
        client, self._client = self._client, None
        server, self._server = self._server, None
        if client is not None:
            client.close()
        if server is not None:
            self._wait(server.stop(0))

    def close(self) -> None:
        """End everything."""
        try:
            self.stop()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(BOUND_S)
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(BOUND_S)


class ServedSubject(EngineSubject):
    """The queue as a client sees it, and its database as it is. `listen`: where the server can be looked at, too."""

    def __init__(self, config: Config, start_ms: int, *, real_reopen_every: int = 1, listen: str = FREE_PORT) -> None:
        self._host = Host(listen)
        super().__init__(config, start_ms, real_reopen_every=real_reopen_every)
        try:
            self._client = self._host.serve(self.queue)
        except BaseException:
            self.close()
            raise

    @property
    def asked(self) -> Queue:
        return self._client

    @property
    def address(self) -> str:
        """Where the server listens now."""
        return self._host.address

    def close(self) -> None:
        try:
            self._host.close()
        finally:
            super().close()

    def _reopen(self, *, clean: bool) -> Reply:
        self._host.stop()
        reply = super()._reopen(clean=clean)
        self._client = self._host.serve(self.queue)
        return reply


def seen_at(address: str) -> int:
    """How many jobs somebody else sees there."""
    with connect(address, timeout_s=BOUND_S, wait=False) as other:
        return sum(other.counts().values())


class LenientSubject(ServedSubject):
    """A server that answers a stale submit or release as if it had been taken: who compares replies must see it."""

    def __init__(self, config: Config, start_ms: int) -> None:
        super().__init__(config, start_ms, real_reopen_every=8)
        given = calls._given

        def lenient(reply: Any) -> Any:
            return (State.COMPLETED, ()) if isinstance(reply, StaleLeaseError) else given(reply)

        self._restore.enter_context(patch.object(calls, "_given", lenient))
