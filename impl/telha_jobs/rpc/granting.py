"""What a look gives to the polls that wait: an operation of the dispatcher's own, in its thread, under the engine's
lock.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from telha_jobs.core.record import Record
from telha_jobs.engine import leases as leasing
from telha_jobs.engine.engine import Engine
from telha_jobs.engine.unit import Unit
from telha_jobs.rpc.polls import TAKERS_PER_LOOK, Line, Stream
from telha_jobs.types import Lease

GRANTS_PER_COMMIT: Final = 512
"""Bounds of how long one commit keeps the others waiting."""
STREAM_BYTES: Final = 1 << 20
"""A message to a stream takes no further lease once its payloads come to this."""
COMMIT_BYTES: Final = 16 << 20
"""The same for all the grants of one commit."""


class Look(NamedTuple):
    """What a look found: leases by stream, how many lines it came to, whether there may be more for somebody, and how
    long until something is due.
    """

    found: list[tuple[Stream, list[Lease]]]
    lines: int
    more: bool
    pause_s: float


def grant_all(unit: Unit, *, lines: Sequence[Line], engine: Engine) -> Look:
    """Grant what is ready to those who wait, line by line, until the commit is full."""
    allowance = _Allowance()
    found: list[tuple[Stream, list[Lease]]] = []
    more = False
    for number, line in enumerate(lines):
        if allowance.spent:
            return Look(found, number, more=True, pause_s=engine.pause_s(math.inf))
        leases, dry = _grant_line(unit, line, allowance)
        found += leases
        more = more or not (dry or len(line.takers) < TAKERS_PER_LOOK)
    return Look(found, len(lines), more=more or allowance.spent, pause_s=engine.pause_s(math.inf))


class _Allowance:
    """What one commit may still grant."""

    def __init__(self) -> None:
        self.grants = GRANTS_PER_COMMIT
        self.bytes = COMMIT_BYTES

    @property
    def spent(self) -> bool:
        return self.grants <= 0 or self.bytes <= 0


def _grant_line(unit: Unit, line: Line, allowance: _Allowance) -> tuple[list[tuple[Stream, list[Lease]]], bool]:
    """Grant round by round, so that the streams of a line share what there is. Whether that was all."""
    found: dict[Stream, list[Lease]] = {}
    sizes: dict[Stream, int] = {}
    takers, scopes = line.takers, line.filters.scopes
    kinds = leasing.kinds_of(unit, line.filters)
    while takers:
        again = []
        alone = len(takers) == 1
        for stream, room in takers:
            fitting = _fitting(sizes.get(stream, 0), len(found.get(stream, ()))) if alone else 1
            wanted = min(room, allowance.grants, fitting)
            leases = leasing.grant_kinds(unit, stream.worker, wanted, kinds, scopes)
            if leases:
                found.setdefault(stream, []).extend(leases)
                size = _size(unit, leases)
                sizes[stream] = sizes.get(stream, 0) + size
                allowance.grants -= len(leases)
                allowance.bytes -= size
            if len(leases) < wanted or allowance.spent:
                return list(found.items()), len(leases) < wanted
            if room > wanted and sizes[stream] < STREAM_BYTES:
                again.append((stream, room - wanted))
        takers = again
    return list(found.items()), False


def _fitting(size: int, number: int) -> int:
    """How many more leases fit into a message that has `number` of them, if they are of that size."""
    return 1 if number == 0 else max(1, (STREAM_BYTES - size) * number // max(size, 1))


def _size(unit: Unit, leases: list[Lease]) -> int:
    """About how much leases add to a message."""
    rows = [row for lease in leases if isinstance(row := unit.find(lease.job_id.bytes), Record)]
    return sum(len(unit.payload(row) or b"") + len(row.progress or b"") + 256 for row in rows)
