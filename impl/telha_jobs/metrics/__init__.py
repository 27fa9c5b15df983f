"""Metrics of an open queue for Prometheus, and whether it is healthy (docs/metrics.md).

    metrics = Metrics(queue)
    metrics.serve("127.0.0.1", 7701)
    ...
    metrics.stop()                       # before the queue is closed or after, as you like

`/metrics` is a scrape: answered when what it tells is durable, in bounded time, without a scan of the database.
`/healthz` answers 200 while the queue takes writes, else 503 with the reason. Needs the extra `[server]`.
"""

import threading
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from telha_jobs.engine.engine import Engine
from telha_jobs.engine.shared import Shared
from telha_jobs.errors import QueueUnavailableError
from telha_jobs.metrics import families, snapshot
from telha_jobs.metrics.http import Answer, HTTPServerThread, text
from telha_jobs.metrics.tally import Tally
from telha_jobs.queue import JobQueue
from telha_jobs.store.rocks import RocksStore

KINDS_MAX: Final = 100
"""Kinds with a label of their own: each has about twenty series."""


class Metrics(Collector):
    """Counts what happens to one open queue from now on; attach it right after the open. Thread-safe."""

    def __init__(self, queue: JobQueue, *, kinds_max: int = KINDS_MAX) -> None:
        self._engine: Engine = queue.engine
        self._tally = Tally(kinds_max=kinds_max)
        self._unwell: str | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._server: HTTPServerThread | None = None
        self._stopping = threading.Event()
        self._counter = threading.Thread(target=self._count_dead, name="telha-metrics-count", daemon=True)
        self._observe(self._tally)
        self._counter.start()

    def serve(self, host: str, port: int) -> int:
        """Answer `/metrics` and `/healthz` there; the port, also when 0 was asked for. Raises `OSError`."""
        self._server = HTTPServerThread(host, port, {"/metrics": self._scraped, "/healthz": self._checked})
        self._server.start()
        return self._server.port

    def stop(self) -> None:
        """Answer and count no more. Does nothing the second time."""
        self._stopping.set()
        self._tally.recount.set()
        with suppress(QueueUnavailableError):  # closed already: it tells nobody any more
            self._observe(None)
        self._counter.join()
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def collect(self) -> Iterator[Metric]:
        """The families of one scrape. Those of jobs are left out while the queue takes no calls."""
        try:
            found = snapshot.take(self._engine, self._tally)
            yield from families.of_queue(found, clock_ahead_ms=self._engine.store.clock_ahead_ms())
        except QueueUnavailableError:
            yield from families.of_store(self._tally, accepting=False)
        else:
            yield from families.of_store(self._tally, accepting=True)

    def health(self) -> str | None:
        """Why the queue takes no writes; None: it does."""
        try:
            self._engine.require_open()
        except QueueUnavailableError as error:
            return str(error)
        return self._unwell

    def unwell(self, reason: str) -> None:
        """Be unhealthy from now on although the queue takes writes: its process takes no work, for this reason."""
        self._unwell = reason

    def _observe(self, tally: Tally | None) -> None:
        store = self._engine.store
        if isinstance(store, RocksStore):
            store.observer = tally
        self._engine.observe(tally)

    def _scraped(self, accept: str) -> Answer:
        encode, content_type = choose_encoder(accept)
        return Answer(HTTPStatus.OK, content_type, encode(self._registry))

    def _checked(self, accept: str) -> Answer:
        del accept
        reason = self.health()
        return text(HTTPStatus.OK, "ok") if reason is None else text(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    def _count_dead(self) -> None:
        """Count the dead of before, whenever the engine derived its state anew, a little at a time."""
        while self._tally.recount.wait() and not self._stopping.is_set():
            self._tally.recount.clear()
            try:
                while not (self._stopping.is_set() or self._engine.read(self._count_some)):
                    pass
            except QueueUnavailableError:
                return

    def _count_some(self, shared: Shared) -> bool:
        return snapshot.count_dead(shared, self._tally)
