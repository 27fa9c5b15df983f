"""What tests of metrics share: a scrape as a table, and waiting for the count of the dead."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from telha_jobs.metrics import Metrics

Samples = dict[tuple[str, tuple[str, ...]], float]


def table(metrics: Iterator[Metric]) -> Samples:
    """The samples by name and label values (in the order of the labels' declaration)."""
    return {(one.name, tuple(one.labels.values())): one.value for family in metrics for one in family.samples}


def scraped(metrics: Metrics) -> Samples:
    """One scrape, after the dead of before were counted."""
    while True:
        found = table(metrics.collect())
        if ("telha_dead_letters", ("other",)) in found or found["telha_accepting_writes", ()] == 0:
            return found


def moved(before: Samples, after: Samples, prefix: str = "telha_") -> dict[tuple[str, tuple[str, ...]], float]:
    """What changed between two scrapes, but for gauges of time and what stores measure."""
    passed_over = ("telha_commit_", "telha_sync_", "telha_clock_", "telha_oldest_")
    names = {name for name in {*before, *after} if name[0].startswith(prefix) and not name[0].startswith(passed_over)}
    changed = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in names}
    return {name: number for name, number in sorted(changed.items()) if number}
