"""`telha serve` in a process of its own, and callers over gRPC: what `tests.chaos.remote` has, over the wire.

The calls and what they are told are the same JSON, so that whoever drives or judges a queue need not know which way its
calls went. A call is sent once: an answer that is lost leaves its call without an outcome.
"""

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

import grpc

from telha_jobs import QueueUnavailableError
from telha_jobs.client import Client, connect
from telha_jobs.rpc import wire
from telha_jobs.rpc.methods import METHODS
from telha_jobs.rpc.status import COMMIT_KEY, INDEX_KEY
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from tests.chaos.calls import grant, scope
from tests.chaos.frame import MEMORY
from tests.chaos.history import History
from tests.chaos.remote import LostError, Owner
from tests.chaos.server import Served
from tests.harness.values import packed

_SOCKETS: Final = MEMORY if MEMORY.is_dir() else Path("/tmp")
"""A directory with a short name: a socket's may have a hundred characters."""
_STREAM_IDLE_MS: Final = 40
TIMEOUT_S: Final = 30.0
"""No call takes so long; one that does has no outcome."""


class Service(Owner):
    """One life of a server; `broken`: with a flaw of that name (`tests.chaos.broken`).

    Its address is a socket of its own, so that nobody is taken for a caller of another life.
    """

    def __init__(
        self, data: Path, config: dict[str, Any], log: Path, *, life: int = 1, broken: str | None = None
    ) -> None:
        self._life = life
        self._flaw = () if broken is None else ("--broken", broken)
        super().__init__(data, config, log)

    def _command(self, data: Path, config: dict[str, Any]) -> tuple[str, list[str]]:
        self._socket = _SOCKETS / f"telha-{uuid.uuid4().hex}"
        address = f"unix:{self._socket}"
        settings = [word for one in settings_of(config) for word in ("--set", one)]
        serve = ("serve", "--data", str(data), "--listen", address, *settings)
        return address, [sys.executable, "-m", "tests.chaos.serving", *self._flaw, *serve]

    def opened(self) -> dict[str, Any]:
        """Wait until it serves; what it says then. Every life before this one was killed."""
        self._first_line()
        with connect(self.address, wait=False) as client:
            now_ms, problems = client.now_ms(), list(client.check().problems)
        return {"incarnation": self._life - 1, "now_ms": now_ms, "problems": problems}

    def end(self) -> None:
        """Leave no process and no socket behind."""
        super().end()
        self._socket.unlink(missing_ok=True)


def settings_of(config: dict[str, Any]) -> list[str]:
    """The settings of the other lanes' processes as `telha serve` takes them; answers are durable, as ever."""
    backoff, forever = config["backoff"], {None: "forever"}
    return [
        f"jobs.lease_ttl={config['lease_ttl_ms']}ms",
        f"jobs.reaper_interval={config['reaper_interval_ms']}ms",
        f"jobs.max_attempts={config['max_attempts']}",
        f"jobs.backoff.base={backoff['base_ms']}ms",
        f"jobs.backoff.factor={backoff['factor']}",
        f"jobs.backoff.cap={backoff['cap_ms']}ms",
        f"jobs.retention_completed={forever[config['retention_completed_ms']]}",
        f"jobs.retention_dead={forever[config['retention_dead_ms']]}",
    ]


class GrpcCaller:
    """One client, whose calls are written to a history. For one thread.

    `commit` is the commit that the last answer covers, and the call's place in it; None where none was named.
    """

    def __init__(self, address: str, history: History, served: type[Served] = Served) -> None:
        self.commit: tuple[int, int | None] | None = None
        self.client: Client = connect(address, wait=False, timeout_s=TIMEOUT_S, told=self._told)
        self._channel = grpc.insecure_channel(address)  # no connection before somebody uses it
        self._history = history
        self._served = served(self.client)

    def ask(self, call: str, **given: Any) -> Any:
        """Make a call; what was told. A refusal is told too: an object with `refused`."""
        name = self._history.intent(call, given)
        self.commit = None
        told = self._answer({"call": call, **given})
        self._history.outcome(name, {"told": told, "commit": self.commit})
        return told

    def stream(self, given: dict[str, Any], messages: int, take: Callable[[list[Any]], None]) -> None:
        """Poll with a stream, each message an answered call that may have been granted from the stream's begin on; the
        first ones are taken, then the stream is left, whatever is on its way.
        """
        request = pb.PollJobsRequest(
            worker=given["worker"],
            scopes=[str(scope(number)) for number in given["scopes"] or ()],
            kinds=given["kinds"] or (),
            max_in_flight=given["limit"],
            idle_timeout_ms=_STREAM_IDLE_MS,
            values=pb.VALUE_FORMAT_MSGPACK,
        )
        given = given | {"since": round(time.monotonic(), 6)}
        call = self._method("PollJobs", self._channel.unary_stream)(request)
        try:
            name = self._history.intent("lease", given)
            for _ in range(messages):
                message = next(call, None)
                leases = () if message is None else map(wire.lease_of, message.leases)
                told = [grant(lease) for lease in leases]
                commit = None if message is None else (message.commit_seq, message.commit_index)
                self._history.outcome(name, {"told": told, "commit": commit})
                if message is None:
                    return
                # From now on there may be a grant that nobody hears of.
                name = self._history.intent("lease", given)
                take(told)
        except grpc.RpcError as error:
            raise LostError("a stream was cut") from error
        finally:
            call.cancel()

    def note(self, what: str, **data: Any) -> None:
        """Something that whoever watches the history has to know."""
        self._history.note(what, **data)

    def unheard(self, call: str, **given: Any) -> NoReturn:
        """Make a completion, and be killed with the answer here and unread."""
        if call != "complete":
            raise ValueError(f"{call} is not for this")
        self._history.intent(call, given)
        lease = pb.LeaseRef(job_id=str(UUID(given["job"])), generation=given["generation"])
        done = pb.Complete(result=pb.Value(msgpack=packed(given["result"])))
        self._method("Submit", self._channel.unary_unary, _die)(pb.SubmitRequest(lease=lease, complete=done))
        raise AssertionError("dead")

    def close(self) -> None:
        """Hang up."""
        self.client.close()
        self._channel.close()

    def _method(self, name: str, make: Callable[..., Any], read: Callable[[bytes], Any] | None = None) -> Any:
        method = METHODS[name]
        return make(method.path, method.request.SerializeToString, read or method.response.FromString)

    def _answer(self, asked: dict[str, Any]) -> Any:
        told = self._served.answer(asked)
        if isinstance(told, dict) and told.get("refused") == QueueUnavailableError.__name__:
            raise LostError(f"{asked['call']} was not answered")
        return told

    def _told(self, _method: str, trailers: Sequence[tuple[str, str | bytes]]) -> None:
        found = dict(trailers)
        if COMMIT_KEY in found:
            place = found.get(INDEX_KEY)
            self.commit = (int(found[COMMIT_KEY]), None if place is None else int(place))


def _die(_answer: bytes) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")
