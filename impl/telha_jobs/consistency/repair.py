"""Make everything derived follow from the rows again, and put away what cannot stand.

In order: a check (nothing wrong: nothing is written), kinds, rows, quarantine, orphans, counters, marks, and a check of
what came of it. Each part streams, and commits as it goes; whenever it ends in between, a queue works on what is there,
and the next repair goes on with what is left. Nothing is dropped but derived entries, and each of these is told.
"""

from collections.abc import Callable
from typing import NamedTuple

from telha_jobs.consistency.check import Findings, examine
from telha_jobs.consistency.kinds import known_kinds, mend_kinds
from telha_jobs.consistency.leftovers import Orphans, Quarantine, mend_counters, mend_last
from telha_jobs.consistency.rows import RowMender, find_strays
from telha_jobs.consistency.writer import Writer
from telha_jobs.errors import QueueUnavailableError
from telha_jobs.store.port import Store
from telha_jobs.types import CheckReport


class Repaired(NamedTuple):
    """The report, what was done in sentences (the first thousand), and how many commits it took."""

    report: CheckReport
    done: tuple[str, ...]
    commits: int


def repair(
    store: Store, *, proceed: Callable[[], None] = lambda: None, tell: Callable[[str], None] = lambda _: None
) -> Repaired:
    """Repair a store that nobody else writes to meanwhile.

    `proceed` is called before each commit and may raise; `tell` gets each sentence of what was done, once that is
    committed.

    Raises `QueueUnavailableError`; what was committed until then is whole, and repairing again finishes.
    """
    findings = examine(store)
    if not findings.problems:
        return Repaired(findings.report(), (), 0)
    writer = Writer(store, proceed, tell)
    try:
        _mend(store, writer, findings)
    except QueueUnavailableError as error:
        if writer.commits and error.outcome == "not_applied":
            raise QueueUnavailableError(f"{error}; part of the repair is done", outcome="unknown") from error
        raise
    return Repaired(examine(store).report(repaired=writer.done), tuple(writer.told), writer.commits)


def _mend(store: Store, writer: Writer, findings: Findings) -> None:
    kinds = mend_kinds(store, writer) if findings.kinds_wrong else known_kinds(store)
    mender = RowMender(writer, kinds, find_strays(store, findings.damaged))
    mender.mend_all(store)
    quarantine = Quarantine(writer, kinds, mender)
    quarantine.mend_all(store)
    Orphans(writer, kinds, mender.totals, quarantine).remove_all(store)
    mend_counters(store, writer, mender.totals)
    mend_last(store, writer, mender.totals)
