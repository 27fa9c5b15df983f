"""The event log of a job, and how a long one is shortened.

A log longer than its cap keeps its first `cap // 2` events for ever and its newest ones; what lies between is one `elided` entry, which counts the
events it swallowed and names the state they end in, so that replaying the log still ends in the job's state.
"""

from telha_jobs.core.record import ELIDED, STATE_AFTER, LogEntry


def appended(events: tuple[LogEntry, ...], new: tuple[LogEntry, ...], cap: int) -> tuple[LogEntry, ...]:
    """The log with `new` at its end, at most `cap` entries long."""
    log = events + new
    while len(log) > cap:
        log = _swallow_one(log, cap // 2)
    return log


def _swallow_one(log: tuple[LogEntry, ...], head: int) -> tuple[LogEntry, ...]:
    """Shorten the log by one entry: the entry after the elided one joins it, or the first two of the middle become it."""
    first, second = log[head], log[head + 1]
    swallowed = first.detail["count"] if first.transition == ELIDED else 1
    detail = {"count": swallowed + 1, "state": STATE_AFTER[second.transition].value}
    return (*log[:head], LogEntry(second.at_ms, ELIDED, detail), *log[head + 2 :])
