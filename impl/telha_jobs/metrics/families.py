"""A snapshot as families of Prometheus. docs/metrics.md lists them; the names are an interface."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric

from telha_jobs.metrics.snapshot import Snapshot
from telha_jobs.metrics.tally import Histogram, Tally

_EVENTS = {
    "enqueued": ("telha_jobs_enqueued", "Jobs added."),
    "granted": ("telha_leases_granted", "Leases granted."),
    "extended": ("telha_leases_extended", "Heartbeats that were taken."),
    "completed": ("telha_jobs_completed", "Jobs completed."),
    "failed": ("telha_attempts_failed", "Attempts that a worker reported as failed, the last ones too."),
    "expired": ("telha_leases_expired", "Leases that ran out, those of last attempts too."),
    "released": ("telha_leases_released", "Leases given back untried."),
    "promoted": ("telha_jobs_promoted", "Failed jobs whose back-off was over."),
    "retried": ("telha_jobs_retried", "Dead jobs that an operator made pending again."),
    "cancelled": ("telha_jobs_cancelled", "Jobs that somebody cancelled; no dead letters."),
    "removed": ("telha_jobs_removed", "Ended jobs that were purged or discarded."),
}


def of_queue(snapshot: Snapshot, *, clock_ahead_ms: int) -> Iterator[Metric]:
    """What is known of a queue that takes calls."""
    jobs = GaugeMetricFamily("telha_jobs", "Jobs by kind and state.", labels=["kind", "state"])
    for kind, totals in snapshot.jobs.items():
        for state, number in totals.items():
            jobs.add_metric([kind, state.value], number)
    yield jobs
    if snapshot.dead is not None and snapshot.cancelled is not None:
        yield _by_kind("telha_dead_letters", "Jobs that are dead by failure or expiry.", snapshot.dead)
        yield _by_kind("telha_cancelled_jobs", "Jobs that are dead because they were cancelled.", snapshot.cancelled)
    died = CounterMetricFamily(
        "telha_jobs_died", "Jobs that became dead by failure or expiry.", labels=["kind", "reason"]
    )
    for (kind, reason), number in snapshot.died.items():
        died.add_metric([kind, reason], number)
    yield died
    for event, (name, meaning) in _EVENTS.items():
        counter = CounterMetricFamily(name, meaning, labels=["kind"])
        for kind, number in snapshot.events[event].items():
            counter.add_metric([kind], number)
        yield counter
    stale = CounterMetricFamily(
        "telha_stale_submits", "Uses of leases that were not current, refused.", labels=["call", "why"]
    )
    for (use, why), number in snapshot.stale.items():
        stale.add_metric([use, why], number)
    yield stale
    due = snapshot.oldest_due_ms
    age_s = 0.0 if due is None else (snapshot.now_ms - due) / 1_000
    yield GaugeMetricFamily("telha_oldest_ready_age_seconds", "How long the oldest ready job has been due.", age_s)
    yield GaugeMetricFamily("telha_quarantined_rows", "Rows that cannot be decoded, kept apart.", snapshot.quarantined)
    yield GaugeMetricFamily(
        "telha_clock_ahead_ms", "How far the queue's time is ahead of the wall clock.", clock_ahead_ms
    )


def of_store(tally: Tally, *, accepting: bool) -> Iterator[Metric]:
    """What is known also of a queue that is closed or failed."""
    yield GaugeMetricFamily("telha_accepting_writes", "Whether the queue takes calls.", int(accepting))
    yield _histogram("telha_commit_bytes", "Sizes of commits.", tally.commit_bytes)
    yield _histogram("telha_sync_seconds", "How long syncs took.", tally.sync_seconds)
    errors = CounterMetricFamily(
        "telha_store_errors", "Errors of the storage; after one the queue takes no calls.", labels=["operation"]
    )
    for operation, number in tally.store_errors.items():
        errors.add_metric([operation], number)
    yield errors


def _by_kind(name: str, meaning: str, numbers: Mapping[str, int]) -> Metric:
    gauge = GaugeMetricFamily(name, meaning, labels=["kind"])
    for kind, number in numbers.items():
        gauge.add_metric([kind], number)
    return gauge


def _histogram(name: str, meaning: str, histogram: Histogram) -> Metric:
    bounds: Iterable[str] = (*(f"{bound:g}" if bound < 1 else f"{bound:.1f}" for bound in histogram.bounds), "+Inf")
    family = HistogramMetricFamily(name, meaning)
    family.add_metric([], list(zip(bounds, accumulate(histogram.numbers), strict=True)), sum_value=histogram.total)
    return family
