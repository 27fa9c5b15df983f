"""The agenda by itself, over a plain sorted list instead of a store."""

import importlib.util
import random
from collections.abc import Callable

import pytest

from telha_jobs import agenda as agenda_module
from telha_jobs.agenda import Agenda, GroupKey, Place, Row, Step
from telha_jobs.keys import ReadyKey

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))


def job(number: int) -> bytes:
    """A job's id."""
    return bytes([number]) * 16


class Disk:
    """Rows, and an agenda that reads them; every look at them is noted."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.looks: list[Place] = []
        self.agenda = Agenda(self._refill)

    def _refill(self, group: GroupKey, start: Place, limit: int) -> list[Place]:
        self.looks.append(start)
        return sorted(row[3:] for row in self.rows if row[:3] == group and row[3:] >= start)[:limit]

    def add(self, *rows: Row) -> None:
        """Each in a unit of work of its own."""
        for row in rows:
            self.agenda.begin(self.agenda._now)
            self.agenda.insert(row)
            self.rows.append(row)

    def drain(self) -> list[bytes]:
        """Take what is due, one after the other, each in a unit of work of its own."""
        taken: list[bytes] = []
        while (row := self.agenda.first(None, None)) is not None:
            self.agenda.begin(self.agenda._now)
            self.agenda.remove(row)
            self.rows.remove(row)
            taken.append(ReadyKey(*row).job_id)
        return taken


def narrow(monkeypatch: pytest.MonkeyPatch, *, window: int, room: int, kept: int) -> None:
    """Windows of so many rows, `room` in all of them, and what each keeps beyond that."""
    monkeypatch.setattr(agenda_module, "WINDOW_ROWS", window)
    monkeypatch.setattr(agenda_module, "ROWS_MAX", room)
    monkeypatch.setattr(agenda_module, "KEPT_ROWS", kept)


@pytest.fixture
def disk() -> Disk:
    """No rows, at time 100."""
    made = Disk()
    made.agenda.begin(100)
    return made


def test_the_oldest_due_row_of_some_scopes(disk: Disk) -> None:
    """The earliest first row of their ready groups; what is not due, and what they do not have, counts nothing."""
    disk.add(
        ReadyKey(A, 1, 1, 50, job(1)),
        ReadyKey(A, 1, 1, 60, job(2)),
        ReadyKey(A, 2, 0, 40, job(3)),
        ReadyKey(B, 1, 1, 30, job(4)),
    )
    disk.add(ReadyKey(C, 1, 1, 101, job(5)), ReadyKey(A, 2, 0, 70, job(6)))
    asked = [[A], [B], [A, B], [C], [], [b"nobody"]]
    assert [disk.agenda.oldest_due(scopes) for scopes in asked] == [40, 30, 30, None, None, None]


def test_the_next_due_time_is_that_of_the_first_group_that_waits(disk: Disk) -> None:
    """Whether rows come earlier or leave; those that are due by themselves do not count."""
    told = [disk.agenda.next_due()]
    later, last = ReadyKey(A, 1, 1, 300, job(1)), ReadyKey(B, 1, 1, 500, job(2))
    disk.add(ReadyKey(C, 1, 1, 10, job(9)), last, later)
    told.append(disk.agenda.next_due())
    sooner = ReadyKey(A, 1, 1, 200, job(3))
    disk.add(sooner)
    told.append(disk.agenda.next_due())
    disk.agenda.remove(sooner)
    told.append(disk.agenda.next_due())
    disk.agenda.remove(later)
    told.append(disk.agenda.next_due())
    disk.agenda.remove(last)
    assert [*told, disk.agenda.next_due()] == [None, 300, 200, 300, 500, None]


def test_a_group_waits_once(disk: Disk) -> None:
    """However many rows come behind its first one."""
    disk.add(*[ReadyKey(A, 1, 1, 200 + number, job(number)) for number in range(5)])
    assert len(disk.agenda._waking.entries) == 1


def test_a_row_is_due_in_its_millisecond(disk: Disk) -> None:
    """Not in the one before it."""
    disk.add(ReadyKey(A, 1, 1, 102, job(1)))
    found = []
    for now in (101, 102):
        disk.agenda.begin(now)
        found.append(disk.agenda.first(None, None))
    assert [row and ReadyKey(*row).due for row in found] == [None, 102]


def test_a_scope_that_is_alone_keeps_its_ticket(disk: Disk) -> None:
    """Only among others there is a tail to go to."""
    disk.add(ReadyKey(A, 1, 1, 50, job(1)))
    tickets = dict(disk.agenda._tickets)
    disk.agenda.served(A)
    assert disk.agenda._tickets == tickets
    disk.add(ReadyKey(B, 1, 1, 50, job(2)))
    disk.agenda.served(A)
    assert disk.agenda.ring() == [B, A]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9, 10, 13, 40])
@pytest.mark.parametrize("order", [list, reversed], ids=["rising", "falling"])
def test_windows_lose_and_repeat_nothing(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, count: int, order: Callable[[range], list[int]]
) -> None:
    """Windows of four rows: however many there are, and in whatever order they came, each is taken once, in order."""
    monkeypatch.setattr(agenda_module, "WINDOW_ROWS", 4)
    for number in order(range(count)):
        disk.add(ReadyKey(A, 1, 1, 50, job(number)))
    assert disk.drain() == [job(number) for number in range(count)]


def test_a_window_is_read_when_it_is_empty_and_not_before(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirteen rows in windows of four: a look for each four that are read, and none when the last row was read."""
    monkeypatch.setattr(agenda_module, "WINDOW_ROWS", 4)
    disk.rows = [ReadyKey(A, 1, 1, 50, job(number)) for number in range(13)]
    disk.agenda.load((A, 1, 1), [(50, job(0))], whole=False)
    disk.agenda.start(100, None)
    assert disk.drain() == [job(number) for number in range(13)]
    assert [id_[:1] for _, id_ in disk.looks] == [b"\x00", b"\x04", b"\x08", b"\x0c"]


@pytest.mark.parametrize("leaves", [13, 14])
def test_what_comes_and_goes_behind_the_edge_of_one_unit(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, leaves: int
) -> None:
    """Two rows come at the end, none of them on disk yet, and one goes again: the other is found, and nothing else."""
    monkeypatch.setattr(agenda_module, "WINDOW_ROWS", 4)
    rows = [ReadyKey(A, 1, 1, 50, job(number)) for number in range(15)]
    disk.add(*rows[:13])
    disk.agenda.begin(100)
    for row in rows[13:]:
        disk.agenda.insert(row)
    disk.agenda.remove(rows[leaves])
    found = []
    while (first := disk.agenda.first(None, None)) is not None:
        disk.agenda.remove(first)
        found.append(first)
    assert found == [row for row in rows if row != rows[leaves]]


@pytest.mark.parametrize("first", ["oldest", "newest"])
def test_a_window_grows_to_twice_what_a_refill_reads(disk: Disk, first: str) -> None:
    """Of two hundred rows 32 to 64 are in memory at any time, whether each new one is the first or the last."""
    held = []
    for number in range(200) if first == "oldest" else range(199, -1, -1):
        disk.add(ReadyKey(A, 1, 1, 50, job(number)))
        held.append(len(disk.agenda._groups[A, 1, 1].window))
    assert (max(held), min(held[64:])) == (64, 32)


def test_many_windows_share_what_may_be_in_memory(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two groups with room for eight rows: the first takes it all, and is cut when it is added to beyond it."""
    narrow(monkeypatch, window=4, room=8, kept=2)
    held = []
    for scope, number in [*((A, number) for number in range(10, 18)), (B, 2), (B, 3), (B, 4), (B, 1), (A, 9), (A, 8)]:
        disk.add(ReadyKey(scope, 1, 1, 50, job(number)))
        held.append(tuple(len(group.window) for group in disk.agenda._groups.values()))
    assert held[6:] == [(7,), (8,), (8, 1), (8, 2), (8, 2), (8, 2), (2, 2), (3, 2)]
    assert sorted(disk.drain()) == [job(number) for number in (*range(1, 5), *range(8, 18))]


@pytest.mark.parametrize(("others", "read"), [(7, 4), (8, 2), (9, 2)])
def test_a_refill_reads_few_rows_where_many_are_held(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, others: int, read: int
) -> None:
    """Below eight rows in other windows as many as ever, and else two."""
    narrow(monkeypatch, window=4, room=8, kept=2)
    disk.rows = [ReadyKey(A, 1, 1, 50, job(number)) for number in range(9)]
    disk.agenda.load((A, 1, 1), [(50, job(0))], whole=False)
    disk.agenda.load((B, 1, 1), [(50, job(number)) for number in range(others)], whole=True)
    disk.agenda.start(100, None)
    disk.agenda.remove(disk.rows[0])
    assert len(disk.agenda._groups[A, 1, 1].window) == read


@pytest.mark.parametrize("order", [list, reversed], ids=["rising", "falling"])
def test_windows_together_hold_no_more_than_they_may(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, order: Callable[[range], list[int]]
) -> None:
    """Of sixty groups of twenty rows two each, which is more than a hundred in all; and each row comes once."""
    monkeypatch.setattr(agenda_module, "ROWS_MAX", 100)
    monkeypatch.setattr(agenda_module, "KEPT_ROWS", 2)
    most = 0
    for number in order(range(20)):
        for kind in range(1, 61):
            disk.add(ReadyKey(A, kind, 1, 50, bytes([kind, number]) * 8))
            held = sum(len(group.window) for group in disk.agenda._groups.values())
            assert held == disk.agenda._rows
            most = max(most, held)
    assert most == 2 * 60
    assert len(set(disk.drain())) == 1_200
    assert disk.agenda._rows == 0


def test_stale_tickets_do_not_pile_up(disk: Disk) -> None:
    """Two scopes served a thousand times: the heaps grow to four entries for the other one and 65 more, and the ring is
    right.
    """
    disk.add(ReadyKey(A, 1, 1, 50, job(1)), ReadyKey(B, 1, 1, 50, job(2)))
    heads, sizes = [], set()
    for _ in range(1_000):
        row = disk.agenda.first(None, None)
        assert row is not None
        scope = ReadyKey(*row).scope
        heads.append(scope)
        disk.agenda.served(scope)
        sizes |= {len(disk.agenda._ring.entries), len(disk.agenda._kind_rings[1].entries)}
    assert heads == [A, B] * 500
    assert max(sizes) == 4 + 64 + 1


def test_the_heap_of_a_kind_is_as_large_as_the_kind(disk: Disk) -> None:
    """Three hundred scopes are served in turns, one has jobs of a second kind: the heap of that holds some seventy, and
    the ring goes on in order while stale entries are thrown out.
    """
    scopes = [number.to_bytes(16, "big") for number in range(300)]
    disk.add(*(ReadyKey(scope, 1, 1, 50, scope) for scope in scopes), ReadyKey(scopes[7], 2, 1, 50, b"j" * 16))
    sizes, served = [], []
    for _ in range(100):
        for scope in scopes:
            disk.agenda.served(scope)
            served.append(disk.agenda.first(None, None))
        sizes.append((len(disk.agenda._ring.entries), len(disk.agenda._kind_rings[2].entries)))
    ring, kind = map(max, zip(*sizes, strict=True))
    assert (ring <= 4 * 300 + 65, kind <= 4 + 65) == (True, True)
    assert [row and row[0] for row in served] == (scopes[1:] + scopes[:1]) * 100
    assert disk.agenda.first(frozenset({2}), None) == (scopes[7], 2, 1, 50, b"j" * 16)


def test_an_entry_that_comes_again_is_held_once(disk: Disk) -> None:
    """A kind gets and loses its only row while the scope keeps its place by another one; a group's alarm likewise."""
    disk.add(ReadyKey(A, 1, 1, 50, job(1)), ReadyKey(B, 1, 1, 5_000, job(2)))
    ready, earlier = ReadyKey(A, 2, 1, 50, job(3)), ReadyKey(B, 1, 1, 4_000, job(4))
    sizes = []
    for _ in range(1_000):
        disk.add(ready, earlier)
        disk.agenda.remove(ready)
        disk.agenda.remove(earlier)
        sizes += [len(disk.agenda._kind_rings[2].entries), len(disk.agenda._waking.entries)]
    assert max(sizes) <= 4 + 65


def test_stale_alarms_do_not_pile_up(disk: Disk) -> None:
    """A thousand rows of one group, each due before all others: 65 alarms at most, and the first is right."""
    sizes = []
    for number in range(1_000):
        disk.add(ReadyKey(A, 1, 1, 5_000 - number, number.to_bytes(16, "big")))
        sizes.append(len(disk.agenda._waking.entries))
    assert (sizes[:66], max(sizes), disk.agenda.next_due()) == ([*range(1, 66), 1], 65, 4_001)


def test_heaps_shrink_with_what_there_is(disk: Disk) -> None:
    """Of three hundred scopes with a ready group and one that waits two are left: the heaps then hold some seventy."""
    scopes = [number.to_bytes(16, "big") for number in range(300)]
    rows = [ReadyKey(scope, 1, 1, 50, scope) for scope in scopes]
    later = [ReadyKey(scope, 2, 1, 5_000, scope) for scope in scopes]
    disk.add(*rows, *later)
    for _ in range(4):
        for scope in scopes:
            disk.agenda.served(scope)
    for row in (*rows[2:], *later[2:]):
        disk.agenda.remove(row)
    sooner = ReadyKey(scopes[0], 2, 1, 4_000, job(1))
    for scope in scopes[:2] * 2:
        disk.agenda.served(scope)
        disk.add(sooner)
        disk.agenda.remove(sooner)
    sizes = [
        len(disk.agenda._ring.entries),
        len(disk.agenda._kind_rings[1].entries),
        len(disk.agenda._waking.entries),
    ]
    assert max(sizes) <= 4 * 4 + 65
    assert disk.agenda.ring() == scopes[:2]


def test_a_heap_that_was_large_is_held_to_what_there_is(disk: Disk) -> None:
    """Whatever it was pruned to last: four entries for each scope of the ring, or each group, and 65 more."""
    disk.add(ReadyKey(A, 1, 1, 50, job(1)), ReadyKey(B, 1, 1, 50, job(2)), ReadyKey(A, 2, 1, 5_000, job(3)))
    ring, kind, waking = disk.agenda._ring, disk.agenda._kind_rings[1], disk.agenda._waking
    ring.limit = kind.limit = waking.limit = 1_000
    sooner = ReadyKey(A, 2, 1, 4_000, job(4))
    most = [0, 0, 0]
    for number in range(100):
        disk.agenda.served((A, B)[number % 2])
        (disk.agenda.remove if number % 2 else disk.agenda.insert)(sooner)
        most = list(map(max, most, (len(ring.entries), len(kind.entries), len(waking.entries))))
    assert most == [4 * 2 + 65, 4 * 2 + 65, 4 * 3 + 65]


def test_the_room_of_all_windows(disk: Disk) -> None:
    """65,536 rows, and from there on four in a window that is added to."""
    for number in range(65_530 // 10):
        disk.agenda.load((number.to_bytes(16, "big"), 1, 1), [(50, bytes([one]) * 16) for one in range(10)], whole=True)
    held = []
    for number in range(8):
        disk.add(ReadyKey(A, 1, 1, 50, job(number)))
        held.append(len(disk.agenda._groups[A, 1, 1].window))
    assert held == [1, 2, 3, 4, 5, 6, 4, 4]


def test_the_ring_begins_behind_the_last_served(disk: Disk) -> None:
    """At an open, whether that scope has work or not; without one at the first by due time."""
    found = []
    for last in (None, A, B, C, b"\x02" * 15, b"\xff" * 16):
        again = Disk()
        for scope in (C, A, B):
            again.agenda.load((scope, 1, 1), [(50, job(1))], whole=True)
        again.agenda.start(100, last)
        found.append(again.agenda.ring())
    assert found == [[A, B, C], [B, C, A], [C, A, B], [A, B, C], [B, C, A], [A, B, C]]


def test_a_refill_brings_nothing_back_that_left(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row leaves a window that is cut ahead of its place in the same unit: it is still on disk, and stays away."""
    narrow(monkeypatch, window=4, room=8, kept=2)
    rows = [ReadyKey(A, 1, 1, 50, job(number)) for number in range(1, 9)]
    disk.add(*rows)
    disk.agenda.begin(100)
    disk.agenda.remove(rows[4])
    for number in (10, 11, 0):
        disk.agenda.insert(ReadyKey(A, 1, 1, 50, job(number)))
    found = []
    while (row := disk.agenda.first(None, None)) is not None:
        disk.agenda.remove(row)
        found.append(row[4])
    assert found == [job(number) for number in (0, 1, 2, 3, 4, 6, 7, 8, 10, 11)]


def test_a_refill_that_finds_only_what_left_reads_on(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages of rows that this unit removed behind the edge, and one row behind them."""
    monkeypatch.setattr(agenda_module, "WINDOW_ROWS", 2)
    disk.rows = [ReadyKey(A, 1, 1, 50, job(number)) for number in range(6)]
    disk.agenda.load((A, 1, 1), [(50, job(0))], whole=False)
    disk.agenda.start(100, None)
    for number in (1, 2, 3, 4, 0):
        disk.agenda.remove(disk.rows[number])
    assert disk.agenda.first(None, None) == disk.rows[5]


def test_a_refill_holds_no_more_than_it_reads(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ninety rows come behind an edge in one unit, none of them on disk: four at a time are taken into the window."""
    monkeypatch.setattr(agenda_module, "WINDOW_ROWS", 4)
    disk.rows = [ReadyKey(A, 1, 1, 50, job(0))]
    disk.agenda.load((A, 1, 1), [(50, job(0))], whole=False)
    disk.agenda.start(100, None)
    disk.agenda.begin(100)
    rows = [ReadyKey(A, 1, 1, 50, job(number)) for number in range(1, 91)]
    for row in rows:
        disk.agenda.insert(row)
    held, found = [], []
    disk.agenda.remove(disk.rows[0])
    while (first := disk.agenda.first(None, None)) is not None:
        held.append(disk.agenda._rows)
        disk.agenda.remove(first)
        found.append(first)
    assert (max(held), found) == (4, rows)


def holding_everything() -> Agenda:
    """An agenda of a second copy of the module, whose windows are never cut; it has no disk."""
    spec = importlib.util.find_spec("telha_jobs.agenda")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.WINDOW_ROWS = module.ROWS_MAX = 1_000_000  # type: ignore[attr-defined]
    made: Agenda = module.Agenda(lambda *_: [])
    return made


class Twins:
    """The same changes to an agenda with tiny windows over a disk, and to one that holds every row."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.disk, self.whole = Disk(), holding_everything()
        self.now = 100
        self.made = 0
        self.rows: set[Row] = set()
        for agenda in (self.disk.agenda, self.whole):
            agenda.start(self.now, None)

    def unit(self) -> None:
        """Some changes at one time, committed or undone."""
        self.now += self.chance.choice((0, 0, 1, 5))
        before, steps = set(self.rows), list[Step]()
        for agenda in (self.disk.agenda, self.whole):
            agenda.begin(self.now)
        for _ in range(self.chance.choice((1, 1, 3, 12))):
            self.change(steps)
            self.compare()
        if self.chance.random() < 0.3:
            self.rows = before
            for agenda in (self.disk.agenda, self.whole):
                agenda.roll_back(steps)
            self.compare()
        self.disk.rows = sorted(self.rows)

    def change(self, steps: list[Step]) -> None:
        """A row comes, some row leaves, or the first one is taken; now and then one that left comes back."""
        act = self.chance.choice(("come", "come", "leave", "take", "take", "back"))
        row = self.whole.first(None, None)
        if act == "come" or not self.rows:
            self.made += 1
            due = self.now + self.chance.choice((-9, -3, 0, 0, 0, 2, 7))
            row = (self.chance.choice((A, B)), self.chance.choice((1, 1, 2)), 1, due, self.made.to_bytes(16, "big"))
        elif act == "leave":
            row = self.chance.choice(sorted(self.rows))
        elif act == "back":
            left = [one for one, came in steps if not came and one not in self.rows]
            row = self.chance.choice(left) if left else row
        if row is None:
            return
        came = row not in self.rows
        steps.append((row, came))
        (self.rows.add if came else self.rows.discard)(row)
        for agenda in (self.disk.agenda, self.whole):
            (agenda.insert if came else agenda.remove)(row)
            if act == "take" and not came:
                agenda.served(row[0])

    def compare(self) -> None:
        """What both of them say."""
        asked = [
            (kinds, scopes) for kinds in (None, frozenset({1}), frozenset({2})) for scopes in (None, frozenset({A}))
        ]
        said = [
            (
                [agenda.first(*filters) for filters in asked],
                agenda.ring(),
                agenda.next_due(),
                agenda.oldest_due((A, B)),
                set(agenda._groups),
            )
            for agenda in (self.disk.agenda, self.whole)
        ]
        assert said[0] == said[1]
        assert self.disk.agenda._rows == sum(len(group.window) for group in self.disk.agenda._groups.values())


@pytest.mark.parametrize(("window", "room", "kept"), [(1, 99, 1), (2, 99, 1), (3, 8, 1), (4, 0, 2)])
def test_windows_change_nothing(monkeypatch: pytest.MonkeyPatch, window: int, room: int, kept: int) -> None:
    """Random units of work, some undone: order, ring and alarms are those of an agenda that holds every row."""
    narrow(monkeypatch, window=window, room=room, kept=kept)
    for seed in range(25):
        twins = Twins(random.Random(seed))
        for _ in range(60):
            twins.unit()
