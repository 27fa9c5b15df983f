"""A server in a thread of its own, for tests of what blocks: the client and the command."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from telha_jobs import JobQueue, ManualClock, QueueConfig
from tests.rpc.rig import BOUND_S, CONFIG, serving


class Served(NamedTuple):
    """A queue that is served, and where."""

    queue: JobQueue
    clock: ManualClock
    address: str


@contextmanager
def served(config: QueueConfig = CONFIG, *, path: Path | None = None, **given: Any) -> Iterator[Served]:
    """A served queue, under a clock that only the test moves."""
    ready: Future[tuple[Served, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        try:
            async with serving(config, path=path, **given) as rig:
                over = asyncio.Event()
                told = Served(rig.queue, rig.clock, rig.server.address)
                ready.set_result((told, asyncio.get_running_loop(), over))
                await over.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="server")
    thread.start()
    try:
        found, loop, over = ready.result(BOUND_S)
        try:
            yield found
        finally:
            loop.call_soon_threadsafe(over.set)
    finally:
        thread.join(BOUND_S)
