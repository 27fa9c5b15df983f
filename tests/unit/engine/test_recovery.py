"""The agenda of an open, read from rows of `ready` that lie in a store in memory."""

import random
from collections.abc import Sequence

import pytest

from telha_jobs import ManualClock
from telha_jobs.agenda import Agenda, Row
from telha_jobs.keys import READY_KEY_BYTES, group_prefix, ready_key
from telha_jobs.recovery import load_agenda
from telha_jobs.store.memory import MemoryDisk, MemoryStore
from telha_jobs.store.port import Family, Put

SCOPES = [bytes([number]) * 16 for number in (1, 2, 255)]
NOW = 100


def rows(sizes: Sequence[int]) -> list[Row]:
    """The rows of groups of these sizes, in the order of their keys."""
    groups = [(scope, kind, priority) for scope in SCOPES for kind in (1, 2) for priority in (0, 255)]
    return [
        (*group, number // 2, bytes([number]) * 16)
        for group, size in zip(groups, sizes, strict=False)
        for number in range(size)
    ]


class CountingStore(MemoryStore):
    """Notes the looks at `ready`: how many keys each of them gave."""

    looks: list[int]

    def scan(
        self, family: Family, start: bytes, end: bytes | None, limit: int, *, claim: bool = False
    ) -> list[tuple[bytes, bytes]]:
        found = super().scan(family, start, end, limit, claim=claim)
        if family is Family.READY:
            self.looks.append(len(found))
        return found


def store_of(keys: Sequence[bytes]) -> CountingStore:
    """An open store with these keys in `ready`."""
    store = CountingStore.open(MemoryDisk(), clock=ManualClock(NOW))
    store.looks = []
    store.commit((), [Put(Family.READY, key, b"") for key in keys], b"token")
    return store


def drained(agenda: Agenda) -> list[Row]:
    """Every row, group by group, the store behind it as it was."""
    found = []
    while (row := agenda.first(None, None)) is not None:
        found.append(row)
        agenda.remove(row)
    return sorted(found, key=lambda row: row[:3])  # stable: within a group as they came


@pytest.mark.parametrize("loaded", [1, 2, 3, 5])
def test_an_open_finds_every_row_once(monkeypatch: pytest.MonkeyPatch, loaded: int) -> None:
    """In the order of its group, whatever the groups' sizes are and however many rows a look reads."""
    monkeypatch.setattr("telha_jobs.recovery.LOADED_ROWS", loaded)
    chance = random.Random(loaded)
    for _ in range(200):
        laid = rows([chance.choice((0, 1, 1, 2, 3, 4, 5, 8, 9)) for _ in range(12)])
        store = store_of([ready_key(*row) for row in laid])
        assert drained(load_agenda(store, now=NOW, last_served=None)) == laid


@pytest.mark.parametrize("loaded", [1, 2, 5])
def test_keys_that_are_none_stop_no_open(monkeypatch: pytest.MonkeyPatch, loaded: int) -> None:
    """Before, within and behind the groups, more of them than a look reads."""
    monkeypatch.setattr("telha_jobs.recovery.LOADED_ROWS", loaded)
    laid = rows([3, 5, 1, 1])
    keys = [ready_key(*row) for row in laid]
    bad = [
        key + bytes([number]) for key in (b"", *keys[::2], group_prefix(*laid[-1][:3]), b"\xff") for number in range(5)
    ]
    assert READY_KEY_BYTES not in {len(key) for key in bad}
    assert drained(load_agenda(store_of([*keys, *bad]), now=NOW, last_served=None)) == laid


def test_a_long_group_costs_one_look_and_short_ones_share_it() -> None:
    """Fifty rows, five of them read; then six groups of a row each: the fifth may be longer and is looked at again."""
    store = store_of([ready_key(*row) for row in rows([50, 1, 1, 1, 1, 1, 1])])
    load_agenda(store, now=NOW, last_served=None)
    assert store.looks == [5, 5, 2]


def test_the_rows_that_an_open_read_are_not_read_again() -> None:
    """The fifth lease of a group is the first to need a look; a short group needs none."""
    long, short = rows([9, 0, 0, 0, 3])[:9], rows([9, 0, 0, 0, 3])[9:]
    store = store_of([ready_key(*row) for row in (*long, *short)])
    agenda = load_agenda(store, now=NOW, last_served=None)
    store.looks.clear()
    for row in (*long[:4], *short):
        agenda.remove(row)
    assert store.looks == []
    agenda.remove(long[4])
    assert store.looks == [4]
