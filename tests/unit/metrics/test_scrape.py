"""A scrape: durable, bounded, without a scan; and `/healthz`, both over HTTP."""

import socket
import threading
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text
from rocksdict import WriteBatch

from telha_jobs import JobQueue, ManualClock, QueueConfig, QueueUnavailableError
from telha_jobs.metrics import Metrics, http, snapshot
from telha_jobs.metrics.tally import Histogram
from telha_jobs.store.database import Database
from telha_jobs.store.rocks import RocksStore
from tests.unit.metrics.conftest import START_MS, Watch, Watched
from tests.unit.metrics.support import Samples, scraped, table

A = UUID(int=0xA)
AGE = ("telha_oldest_ready_age_seconds", ())


def get(port: int, path: str, *, method: str = "GET", accept: str = "") -> tuple[HTTPResponse, str]:
    """An answer and its body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers={"Accept": accept} if accept else {})
        response = connection.getresponse()
        return response, response.read().decode("utf-8")
    finally:
        connection.close()


def test_a_scrape_waits_until_what_it_tells_is_durable(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply rule: a commit that nobody has waited for is synced before a scrape counts it."""
    store = watched.queue._store
    with monkeypatch.context() as patched:
        patched.setattr(RocksStore, "wait", lambda *_: None)
        watched.queue.enqueue(A, "embed", None)
    assert store._sync.synced < store.sequence
    found = scraped(watched.metrics)
    assert (found["telha_jobs_enqueued_total", ("embed",)], store._sync.synced) == (1, store.sequence)


def test_a_scrape_reads_nothing_from_the_database(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the dead of before are counted, a scrape makes no scan and no read, whatever is in the queue."""
    for number in range(50):
        watched.queue.enqueue(UUID(int=number + 1), f"kind:{number % 7}", None)
    scraped(watched.metrics)

    def refused(*arguments: object, **options: object) -> None:
        raise RuntimeError("a scrape read the database")

    for name in ("read", "scan"):
        monkeypatch.setattr(RocksStore, name, refused)
    assert scraped(watched.metrics)["telha_jobs", ("kind:0", "pending")] == 8


def test_the_age_of_the_oldest_ready_job(watched: Watched, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that has been due for longest, over all scopes, kinds and priorities; 0 when none is due."""
    monkeypatch.setattr(snapshot, "_SCOPES_A_LOOK", 2)
    assert scraped(watched.metrics)[AGE] == 0
    watched.queue.enqueue(A, "later", None, delay_ms=60_000)
    clock.advance(59_999)
    assert scraped(watched.metrics)[AGE] == 0
    clock.advance(2_001)
    assert scraped(watched.metrics)[AGE] == 2, "nobody has looked since it came due"
    for number in range(5):
        watched.queue.enqueue(UUID(int=number + 1), f"kind:{number}", None, priority=number)
        clock.advance(1_000)
    assert scraped(watched.metrics)[AGE] == 7
    watched.queue.lease_batch("worker", 1, kinds=["later"])
    assert scraped(watched.metrics)[AGE] == 5
    watched.queue.lease_batch("worker", 10)
    assert scraped(watched.metrics)[AGE] == 0


def test_how_far_the_clock_is_ahead(tmp_path: Path) -> None:
    """A wall clock that was set back while the queue was closed shows in milliseconds."""
    clock = ManualClock(START_MS)
    with JobQueue.open(tmp_path / "queue", clock=clock) as queue:
        queue.enqueue(A, "embed", None)
    with JobQueue.open(tmp_path / "queue", clock=ManualClock(START_MS - 5_000)) as queue:
        metrics = Metrics(queue)
        assert scraped(metrics)["telha_clock_ahead_ms", ()] == 5_000
        metrics.stop()


def test_commits_and_syncs_are_measured(watched: Watched) -> None:
    """Each commit's bytes and each sync's seconds are in the histograms; the sums grow."""
    before = table(watched.metrics.collect())
    watched.queue.enqueue(A, "embed", b"x" * 100_000)
    after = table(watched.metrics.collect())
    changed = {name: after[name] - before[name] for name in after if name[0].startswith(("telha_commit", "telha_sync"))}
    assert changed["telha_commit_bytes_count", ()] == 1
    assert 100_000 < changed["telha_commit_bytes_sum", ()] < 102_000
    assert changed["telha_sync_seconds_count", ()] == 1
    assert changed["telha_sync_seconds_sum", ()] > 0


def test_a_histogram_counts_by_the_bound_that_holds_a_value() -> None:
    """A value that equals a bound is within it."""
    histogram = Histogram((1, 10))
    for value in (0, 1, 2, 10, 11):
        histogram.add(value)
    assert (histogram.numbers, histogram.total) == ([2, 2, 1], 24)


class _Broken(Database):
    """A database whose disk can fail."""

    failing: str = ""

    def write(self, batch: WriteBatch) -> None:
        if self.failing == "write":
            raise OSError("no space left")
        super().write(batch)

    def flush(self) -> None:
        if self.failing == "sync":
            raise OSError("input/output error")
        super().flush()


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_queue_says_so_and_nothing_about_jobs(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """After an error of the storage the error is counted, health is a reason, and no unproved number is told."""
    store = RocksStore.open(tmp_path / "queue", clock=clock, database=_Broken)
    queue = JobQueue(store, QueueConfig(), clock)
    metrics = Metrics(queue)
    queue.enqueue(A, "embed", None)
    monkeypatch.setattr(_Broken, "failing", operation)
    with pytest.raises(QueueUnavailableError):
        queue.enqueue(A, "embed", None)
    found = table(metrics.collect())
    assert (found["telha_accepting_writes", ()], found["telha_store_errors_total", (operation,)]) == (0, 1)
    assert not any(name.startswith("telha_jobs") for name, _ in found)
    assert "the storage failed" in (metrics.health() or "")
    monkeypatch.setattr(_Broken, "failing", "")
    metrics.stop()
    queue.close()


def test_health(watch: Watch) -> None:
    """200 while the queue takes writes; 503 with the reason when it is closed, or when its process says why."""
    watched = watch()
    port = watched.metrics.serve("127.0.0.1", 0)
    response, body = get(port, "/healthz")
    assert (response.status, body) == (200, "ok\n")
    watched.queue.close()
    response, body = get(port, "/healthz")
    assert (response.status, body) == (503, "the queue is closed: open it again\n")
    assert get(port, "/metrics")[0].status == 200


def test_health_of_the_process(watched: Watched) -> None:
    """A server that is stopping says so although the queue still takes writes."""
    assert watched.metrics.health() is None
    watched.metrics.unwell("the server is stopping")
    assert watched.metrics.health() == "the server is stopping"


def _samples(families: Any) -> Samples:
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


def test_both_formats_can_be_parsed(watched: Watched) -> None:
    """The classic text, and OpenMetrics for whoever accepts it, tell the same."""
    watched.queue.enqueue(A, "embed", None)
    watched.queue.cancel(watched.queue.enqueue(A, "embed", None).job_id)
    scraped(watched.metrics)
    port = watched.metrics.serve("127.0.0.1", 0)
    plain, text = get(port, "/metrics")
    modern, open_text = get(port, "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert (plain.getheader("Content-Type") or "").startswith("text/plain; version=")
    assert (modern.getheader("Content-Type") or "").startswith("application/openmetrics-text")
    told = [_samples(parse(body)) for parse, body in ((plain_text, text), (open_metrics, open_text))]
    for found in told:
        assert found["telha_jobs", ("embed", "pending")] == 1
        assert found["telha_cancelled_jobs", ("embed",)] == 1
        assert found["telha_accepting_writes", ()] == 1
    names = [{name for name, _ in found if name.startswith("telha_")} for found in told]
    assert names[0] == names[1]


def test_no_label_names_a_scope(watched: Watched) -> None:
    """Labels are kinds, states, reasons, calls, operations and bounds of histograms."""
    watched.queue.enqueue(A, "embed", None)
    labels = {label for family in watched.metrics.collect() for one in family.samples for label in one.labels}
    assert labels == {"kind", "state", "reason", "call", "why", "operation", "le"} - {"call", "why"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics?x=1", 200), ("HEAD", "/metrics", 200), ("POST", "/metrics", 501)],
)
def test_what_is_answered(watched: Watched, method: str, path: str, status: int) -> None:
    """Two paths, to GET and HEAD."""
    port = watched.metrics.serve("127.0.0.1", 0)
    response, body = get(port, path, method=method)
    assert response.status == status
    assert method != "HEAD" or body == ""


def test_a_stopped_server_gives_its_port_back(watched: Watched) -> None:
    """The port can be bound again at once, and a second stop does nothing."""
    port = watched.metrics.serve("127.0.0.1", 0)
    assert get(port, "/healthz")[0].status == 200
    watched.metrics.stop()
    watched.metrics.stop()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_a_port_that_is_taken_is_an_error(watched: Watched) -> None:
    """`serve` raises `OSError` rather than answer nobody."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            watched.metrics.serve("127.0.0.1", taken.getsockname()[1])


def test_silent_peers_do_not_stop_scrapes(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that send nothing are bounded in number and time; the next scrape is answered all the same."""
    monkeypatch.setattr(http._Handler, "timeout", 0.2)
    port = watched.metrics.serve("127.0.0.1", 0)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(http._CONNECTIONS_MAX)]
    for one in silent:
        one.settimeout(20)
        assert one.recv(1) == b"", "closed by the server"
    assert get(port, "/healthz")[0].status == 200
    for one in silent:
        one.close()


def test_scrapes_beside_workers(watched: Watched) -> None:
    """Scrapes and calls from several threads: every scrape's counts fit together."""
    done = threading.Event()
    seen: list[Samples] = []

    def scrape() -> None:
        while not done.is_set():
            seen.append(table(watched.metrics.collect()))

    scraper = threading.Thread(target=scrape)
    scraper.start()
    for _ in range(100):
        watched.queue.enqueue(A, "embed", None)
        watched.queue.complete(watched.lease())
    done.set()
    scraper.join()
    for found in seen:
        enqueued = found.get(("telha_jobs_enqueued_total", ("embed",)), 0)
        assert enqueued == sum(found.get(("telha_jobs", ("embed", state)), 0) for state in STATES)


STATES: Sequence[str] = ("pending", "leased", "failed", "completed", "dead")
