"""What may be leased next, in exact order, derived in memory from the `ready` family and rebuilt at every open.

Rows fall into groups of one (scope, kind, priority), ordered by (due, job id). A group keeps a *window*, its first few
rows, and an *edge*: every live row below the edge is in the window, so a look never goes back over the tombstones of
rows that left. Rows at or behind the edge are on disk only.

Scopes that have a due row stand in a *ring*, by ticket: a scope takes the next ticket when it gets its first due row
and again when it is served, so the lowest ticket is the scope that waited longest (promise "fair scopes"). One heap for
all kinds and one per kind find it; stale entries are dropped when met, and when there are many of them.

A refill reads the disk, which does not have yet what the unit of work at hand did. So of the rows behind an edge those
are there that are on disk and not among those *gone*, and those that *came*; an undo keeps that as any change does.

Nothing here is a source of truth: a candidate is a hint that the engine verifies against the row.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Generic, TypeVar

WINDOW_ROWS = 32
"""Rows read by one refill. A window grows to twice that before it is cut back."""

ROWS_MAX, KEPT_ROWS = 65_536, 4
"""Rows in all windows together: while there are more, a window that is added to keeps, and a refill reads, no more than
a few. So memory holds this and a few rows of each group, however many there are.
"""

Place = tuple[int, bytes]
"""A row's place within its group: (due, job id)."""

Row = tuple[bytes, int, int, int, bytes]
"""One entry of the `ready` family: (scope, kind, priority, due, job id). A plain tuple: every call takes some apart."""

Step = tuple[Row, bool]
"""A change: the row, and whether it came (or left)."""

GroupKey = tuple[bytes, int, int]
Refill = Callable[[GroupKey, Place, int], list[Place]]
"""`refill(group, start, limit)`: the group's rows on disk from `start` on."""


class _Group:
    """The rows of one (scope, kind, priority)."""

    __slots__ = ("edge", "key", "ready", "wake", "window")

    def __init__(self, key: GroupKey, window: list[Place], edge: Place | None) -> None:
        self.key = key
        self.window = window
        self.edge = edge  # None: the window holds every row
        self.ready = False
        self.wake: int | None = None  # due time of the heap entry in force while not ready


_Entry = TypeVar("_Entry", bound=tuple[object, ...])


class _Heap(Generic[_Entry]):
    """Entries, the least first, many of them stale; beyond `limit` only those that are not are left."""

    __slots__ = ("entries", "limit")

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.limit = 64

    def prune(self, live: Iterable[_Entry]) -> None:
        """Leave these, each once, and let as many come again three times over before the next time."""
        self.entries = sorted({*live})  # which is a heap
        self.limit = 4 * len(self.entries) + 64


def _behind(place: Place) -> Place:
    """The first place that is not at or before this one."""
    return place[0], place[1] + b"\0"


def _first_row(group: _Group) -> Row:
    return (*group.key, *group.window[0])


class Agenda:
    """The ring and the groups. Not thread-safe: the engine's lock guards it."""

    def __init__(self, refill: Refill) -> None:
        self._refill = refill
        self._now = 0
        self._groups: dict[GroupKey, _Group] = {}
        self._ready: dict[bytes, dict[int, dict[int, _Group]]] = {}  # those with a due row, by scope, kind and priority
        self._waking: _Heap[tuple[int, bytes, int, int]] = _Heap()  # due and key of groups that are not ready
        self._tickets: dict[bytes, int] = {}
        self._next_ticket = 1
        self._ring: _Heap[tuple[int, bytes]] = _Heap()
        self._kind_rings: dict[int, _Heap[tuple[int, bytes]]] = {}
        self._journal: dict[bytes, int | None] | None = None
        self._came: dict[
            GroupKey, list[Place]
        ] = {}  # behind an edge since `begin`, in order: added, or cut off a window
        self._gone: set[Row] = set()  # since `begin`
        self._rows = 0  # in all windows

    # -- building

    def load(self, group: GroupKey, window: list[Place], *, whole: bool) -> None:
        """Take over one group at open by its first rows; unless they are the whole of it, others are read when they are
        needed.
        """
        self._rows += len(window)
        made = self._groups[group] = _Group(group, window, None if whole else _behind(window[-1]))
        self._await(made)

    def start(self, now: int, last_served: bytes | None) -> None:
        """Form the ring of an open: scopes with a due row, cyclic from the one behind the last served."""
        self._now = now
        ready = sorted(self._wake_due())
        split = 0 if last_served is None else bisect_left(ready, last_served + b"\0")
        for scope in ready[split:] + ready[:split]:
            self._take_ticket(scope)

    # -- changes

    def insert(self, row: Row) -> None:
        """A row became pending or failed. A due row puts its scope into the ring."""
        key, place = row[:3], row[3:]
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(key, [place], None)
            self._rows += 1
        elif group.edge is None or place < group.edge:
            insort(group.window, place)
            self._rows += 1
            if self._rows > ROWS_MAX:
                if len(group.window) > KEPT_ROWS:
                    self._cut(group, KEPT_ROWS)
            elif len(group.window) > 2 * WINDOW_ROWS:
                self._cut(group, WINDOW_ROWS)
        else:
            self._come(group, place)
            return
        self._settle(group)

    def remove(self, row: Row) -> None:
        """A row left: leased, ended or found to be no more."""
        key, place = row[:3], row[3:]
        group = self._groups.get(key)
        if group is None:
            return
        self._gone.add(row)
        came = self._came.get(key)
        if came is not None:
            index = bisect_left(came, place)
            if index < len(came) and came[index] == place:
                del came[index]
        index = bisect_left(group.window, place)
        if index == len(group.window) or group.window[index] != place:
            return  # behind the edge
        del group.window[index]
        self._rows -= 1
        if not group.window and group.edge is not None:
            self._fill(group)
        self._settle(group)

    def served(self, scope: bytes) -> None:
        """The scope got a grant: to the tail of the ring, if it still has a due row."""
        if scope in self._tickets and len(self._tickets) > 1:
            self._take_ticket(scope)

    # -- looking

    def first(self, kinds: frozenset[int] | None, scopes: frozenset[bytes] | None) -> Row | None:
        """The next row to lease under the filters (None: everything), or None when nothing is due."""
        scope = self._first_scope(kinds, scopes)
        if scope is None:
            return None
        ready = self._ready[scope]
        if len(ready) == 1:
            [by_priority] = ready.values()  # eligible, so of an accepted kind
            if len(by_priority) == 1:
                [group] = by_priority.values()
                return _first_row(group)
        groups = [
            group
            for kind, by_priority in ready.items()
            if kinds is None or kind in kinds
            for group in by_priority.values()
        ]
        group = min(groups, key=lambda one: (one.key[2], one.window[0]))
        return _first_row(group)

    def next_due(self) -> int | None:
        """When the next group that is not ready becomes due; None: none will by itself."""
        waking = self._waking.entries
        while waking:
            if self._is_waking(waking[0]) is not None:
                return waking[0][0]
            heappop(waking)
        return None

    def ready_scopes(self) -> list[bytes]:
        """The scopes of the ring, in no order."""
        return list(self._tickets)

    def oldest_due(self, scopes: Iterable[bytes]) -> int | None:
        """The earliest due time among the ready rows of these scopes; None: they have none."""
        found = [self._ready[scope] for scope in scopes if scope in self._ready]
        groups = (group for ready in found for by_priority in ready.values() for group in by_priority.values())
        return min((group.window[0][0] for group in groups), default=None)

    def ring(self) -> list[bytes]:
        """The scopes of the ring, first to be served first."""
        return sorted(self._tickets, key=self._tickets.__getitem__)

    # -- undoing (a commit that met a conflict)

    def begin(self, now: int) -> None:
        """A unit of work begins: scopes whose first row came due join the ring by (due, scope). Tickets are remembered
        from then on, so that `roll_back` can give them back.
        """
        self._now = now
        waking = self._waking.entries
        if waking and waking[0][0] <= now:
            for scope in self._wake_due():
                self._take_ticket(scope)
        self._journal = {}
        self._came, self._gone = {}, set()

    def roll_back(self, steps: Sequence[Step]) -> None:
        """Undo the changes since `begin`, the last one first; then give back the places in the ring.

        The order matters for a row that came and left within the unit of work: it is gone.
        """
        journal, self._journal = self._journal or {}, None
        for row, added in reversed(steps):
            if added:
                self.remove(row)
            else:
                self.insert(row)
        for scope, ticket in journal.items():
            if ticket is None:
                self._tickets.pop(scope, None)
            elif scope in self._tickets:
                self._set_ticket(scope, ticket)

    # -- groups

    def _cut(self, group: _Group, rows: int) -> None:
        """Leave only so many in the window."""
        group.edge = group.window[rows]
        for place in group.window[rows:]:
            self._come(group, place)
        self._rows -= len(group.window) - rows
        del group.window[rows:]

    def _come(self, group: _Group, place: Place) -> None:
        came = self._came.setdefault(group.key, [])
        index = bisect_left(came, place)
        if came[index : index + 1] != [place]:
            came.insert(index, place)

    def _fill(self, group: _Group) -> None:
        """Read the next rows behind the edge, as the unit of work at hand has them."""
        limit = WINDOW_ROWS if self._rows < ROWS_MAX else KEPT_ROWS
        came = self._came.get(group.key, [])
        while not group.window and group.edge is not None:
            start = group.edge
            found = self._refill(group.key, start, limit)
            group.edge = _behind(found[-1]) if len(found) == limit else None
            first = bisect_left(came, start)
            last = len(came) if group.edge is None else bisect_left(came, group.edge)
            live = {place for place in found if (*group.key, *place) not in self._gone}
            group.window = sorted(live.union(came[first : min(last, first + limit + 1)]))
        if len(group.window) > limit:
            group.edge = group.window[limit]
            del group.window[limit:]
        self._rows += len(group.window)

    def _settle(self, group: _Group) -> None:
        """Bring a group's readiness in line with its first row, and its scope's with that."""
        window = group.window
        if not window:
            self._unready(group)
            del self._groups[group.key]
        elif window[0][0] <= self._now:
            if not group.ready:
                self._make_ready(group)
            if group.key[0] not in self._tickets:
                self._take_ticket(group.key[0])
        else:
            self._unready(group)
            if group.wake != window[0][0]:
                self._await(group)

    def _await(self, group: _Group) -> None:
        group.wake = group.window[0][0]
        waking = self._waking
        if len(waking.entries) > waking.limit or len(waking.entries) > 4 * len(self._groups) + 64:
            waking.prune(one for one in waking.entries if self._is_waking(one) is not None)
        heappush(waking.entries, (group.wake, *group.key))

    def _is_waking(self, entry: tuple[int, bytes, int, int]) -> _Group | None:
        group = self._groups.get(entry[1:])
        return group if group is not None and not group.ready and group.wake == entry[0] else None

    def _wake_due(self) -> list[bytes]:
        """Make every group ready whose time has come; the scopes that are not in the ring, by (due, scope)."""
        joining: dict[bytes, None] = {}
        waking = self._waking.entries
        while waking and waking[0][0] <= self._now:
            group = self._is_waking(heappop(waking))
            if group is not None:  # and is not ready: `_is_waking` says so
                self._make_ready(group)
                if group.key[0] not in self._tickets:
                    joining[group.key[0]] = None
        return list(joining)

    def _make_ready(self, group: _Group) -> None:
        name, kind, priority = group.key
        group.ready = True
        group.wake = None
        by_kind = self._ready.setdefault(name, {})
        fresh = kind not in by_kind
        by_kind.setdefault(kind, {})[priority] = group
        ticket = self._tickets.get(name)
        if fresh and ticket is not None:
            self._push_kind(kind, (ticket, name))

    def _unready(self, group: _Group) -> None:
        if not group.ready:
            return
        group.ready = False
        name, kind, priority = group.key
        by_kind = self._ready[name]
        del by_kind[kind][priority]
        if not by_kind[kind]:
            del by_kind[kind]
        if not by_kind:
            del self._ready[name]
            self._remember(name)
            del self._tickets[name]

    # -- the ring

    def _take_ticket(self, scope: bytes) -> None:
        self._remember(scope)
        self._set_ticket(scope, self._next_ticket)
        self._next_ticket += 1

    def _remember(self, scope: bytes) -> None:
        if self._journal is not None:
            self._journal.setdefault(scope, self._tickets.get(scope))

    def _set_ticket(self, scope: bytes, ticket: int) -> None:
        self._tickets[scope] = ticket
        entry = (ticket, scope)
        self._push(self._ring, entry, None)
        for kind in self._ready[scope]:
            self._push_kind(kind, entry)

    def _push_kind(self, kind: int, entry: tuple[int, bytes]) -> None:
        ring = self._kind_rings.get(kind)
        if ring is None:
            ring = self._kind_rings[kind] = _Heap()
        self._push(ring, entry, kind)

    def _push(self, ring: _Heap[tuple[int, bytes]], entry: tuple[int, bytes], kind: int | None) -> None:
        if len(ring.entries) > ring.limit or len(ring.entries) > 4 * len(self._tickets) + 64:
            ring.prune(one for one in ring.entries if self._is_live(one, kind))
        heappush(ring.entries, entry)

    def _is_live(self, entry: tuple[int, bytes], kind: int | None) -> bool:
        ticket, scope = entry
        return self._tickets.get(scope) == ticket and (kind is None or kind in self._ready[scope])

    def _first_scope(self, kinds: frozenset[int] | None, scopes: frozenset[bytes] | None) -> bytes | None:
        if scopes is not None:
            tickets = [
                (self._tickets[scope], scope)
                for scope in scopes
                if scope in self._tickets and (kinds is None or not kinds.isdisjoint(self._ready[scope]))
            ]
            return min(tickets)[1] if tickets else None
        if kinds is None:
            return self._head(self._ring, None)
        heads = [head for kind in kinds if (head := self._head(self._kind_rings.get(kind), kind)) is not None]
        return min(heads, key=self._tickets.__getitem__) if heads else None

    def _head(self, ring: _Heap[tuple[int, bytes]] | None, kind: int | None) -> bytes | None:
        entries = [] if ring is None else ring.entries
        while entries:
            if self._is_live(entries[0], kind):
                return entries[0][1]
            heappop(entries)
        return None
