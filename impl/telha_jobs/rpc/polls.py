"""Open polls: who waits for jobs, and which leases of theirs are in flight. Lives in the event loop's thread.

A *stream* is one PollJobs call. It waits while it has room and its last message is written; then it stands in the line
of those that wait under the same filters. A stream that is given leases leaves the line until they are handed to the
transport, so a reader that is slow holds one message and no more.

A lease is in flight on its stream from the grant until it is known not to be current. The calls that end leases say so
(`over`); of those that the reaper ended nobody says it, so leases whose deadline has passed are looked up when the
reaper was at work (`doubtful`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from telha_jobs.engine.commands import Filters, Ref
from telha_jobs.errors import QueueUnavailableError
from telha_jobs.types import Lease

End = Literal["idle", "once", "stopping"]
"""Why a stream ends with OK."""

TAKERS_PER_LOOK: Final = 64
"""Waiting streams of one line that one look serves; the others wait for the next."""
SHELVES_MAX: Final = 8
"""A line with more scopes, or more kinds, is looked at whatever the scope or kind."""


class Granted(NamedTuple):
    """The leases of one commit for one stream."""

    leases: list[Lease]
    sequence: int
    place: int


class Stream:
    """One PollJobs call. Everything but `next` and `handed` belongs to `Polls`."""

    __slots__ = ("_timer", "closed", "filters", "held", "idle_s", "in_flight", "most", "news", "worker")

    def __init__(self, worker: str, filters: Filters, most: int, idle_ms: int | None) -> None:
        self.worker = worker
        self.filters = filters
        self.most = most
        self.idle_s = None if idle_ms is None else idle_ms / 1_000
        self.in_flight: dict[bytes, tuple[int, int]] = {}
        """(generation, deadline) by job id."""
        self.held: list[Ref] = []
        """Granted, and not handed to the transport yet."""
        self.news: asyncio.Future[Granted | End] | None = None
        self.closed = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        """How many leases more it takes."""
        return self.most - len(self.in_flight)

    def tell(self, news: Granted | End) -> None:
        """Wake the stream's call."""
        self.rest()
        if self.news is not None and not self.news.done():
            self.news.set_result(news)

    def rest(self) -> None:
        """Stop the idle timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def idle_from_now(self, loop: asyncio.AbstractEventLoop, end: Callable[["Stream"], None]) -> None:
        """Start the idle timer, if there is one and it does not run."""
        if self.idle_s and self._timer is None:
            self._timer = loop.call_later(self.idle_s, end, self)


class Line(NamedTuple):
    """Streams that wait under the same filters, as one look takes them: each with its room."""

    filters: Filters
    takers: list[tuple[Stream, int]]


class Polls:
    """Every open stream of a server.

    `look` asks the dispatcher for a look at the queue, `release` to give leases back.
    """

    def __init__(self, look: Callable[[], None], release: Callable[[list[Ref]], None]) -> None:
        self._look = look
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._streams: set[Stream] = set()
        self._lines: dict[Filters, OrderedDict[Stream, None]] = {}
        self._lookers: OrderedDict[Stream, None] = OrderedDict()
        self._fresh: dict[Filters, None] = {}
        self._index: dict[tuple[bytes | None, str | None], dict[Filters, None]] = {}
        self._full: dict[Stream, None] = {}
        self._holders: dict[bytes, Stream] = {}
        self.stopping = False

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def waiting(self) -> bool:
        """Whether any stream waits for jobs."""
        return bool(self._lines or self._lookers)

    @property
    def in_flight(self) -> int:
        """How many leases are in flight on open streams."""
        return len(self._holders)

    # -- the life of a stream

    def open(self, worker: str, filters: Filters, most: int, idle_ms: int | None) -> Stream:
        """A new stream. It waits from the first `next` on."""
        stream = Stream(worker, filters, most, idle_ms)
        self._streams.add(stream)
        return stream

    async def next(self, stream: Stream) -> Granted | End:
        """The stream's next leases, or why it ends."""
        if self.stopping:
            return "stopping"
        stream.news = self._loop.create_future()
        self._settle(stream)
        return await stream.news

    def handed(self, stream: Stream) -> None:
        """The leases are the client's: if it goes now, they expire."""
        stream.held = []

    def close(self, stream: Stream) -> None:
        """The call is over. Leases that were not handed over are released; the others are nobody's business here."""
        stream.closed = True
        stream.rest()
        self._streams.discard(stream)
        self._leave(stream)
        self._full.pop(stream, None)
        for job_id in stream.in_flight:
            if self._holders.get(job_id) is stream:
                del self._holders[job_id]
        if stream.held:
            self._release(stream.held)

    def stop(self) -> None:
        """Grant no more, and end every stream that waits; the others end when they have written what they have."""
        self.stopping = True
        for stream in list(self._streams):
            self._leave(stream)
            stream.tell("stopping")

    def fail(self, error: QueueUnavailableError) -> None:
        """The queue is gone: every stream that waits ends with the error."""
        for stream in self._streams:
            self._leave(stream)
            stream.rest()
            if stream.news is not None and not stream.news.done():
                stream.news.set_exception(error)

    # -- looking for jobs

    def lines(self, first: int, places: Iterable[tuple[bytes, str]] | None) -> list[Line]:
        """Who waits, the line with number `first` (modulo their number) first: lines that somebody joined since the
        last time, and those that may take jobs of the scopes and kinds (None: every line). A looker is a line of its
        own.
        """
        asked, self._fresh = self._fresh, {}
        if places is None:
            asked = dict.fromkeys(self._lines)
        else:
            for scope, kind in places:
                for shelf in ((scope, kind), (scope, None), (None, kind), (None, None)):
                    asked.update(self._index.get(shelf, {}))
        lines = [
            Line(filters, [(stream, stream.room) for stream in islice(self._lines[filters], TAKERS_PER_LOOK)])
            for filters in asked
            if filters in self._lines
        ]
        lines += [Line(stream.filters, [(stream, stream.room)]) for stream in self._lookers]
        turn = first % max(len(lines), 1)
        return lines[turn:] + lines[:turn]

    def granted(self, stream: Stream, granted: Granted) -> None:
        """A look gave the stream leases."""
        refs = [Ref(lease.job_id.bytes, lease.generation) for lease in granted.leases]
        if stream.closed or self.stopping:
            self._release(refs)
            return
        for lease, ref in zip(granted.leases, refs, strict=True):
            before = self._holders.get(ref.job_id)
            if before is not None and before is not stream:
                self._drop(before, ref.job_id)  # leased again: what that stream had is over
            self._holders[ref.job_id] = stream
            stream.in_flight[ref.job_id] = (ref.generation, lease.deadline_ms)
        stream.held = refs
        self._leave(stream)
        stream.tell(granted)

    def looked(self, lines: Sequence[Line]) -> None:
        """A look at these is over: streams that were to look once, and got nothing, end."""
        for line in lines:
            for stream, _ in line.takers:
                if stream in self._lookers:
                    del self._lookers[stream]
                    stream.tell("idle")

    # -- leases that end

    def over(self, job_id: bytes, generation: int | None) -> None:
        """The lease (None: whichever the job had) is no longer current: its stream has room."""
        stream = self._holders.get(job_id)
        if stream is None:
            return
        if generation is None or stream.in_flight[job_id][0] == generation:
            del self._holders[job_id]
            self._drop(stream, job_id)

    def extended(self, job_id: bytes, generation: int, deadline_ms: int) -> None:
        """A heartbeat moved a deadline."""
        stream = self._holders.get(job_id)
        if stream is not None and stream.in_flight[job_id][0] == generation:
            stream.in_flight[job_id] = (generation, deadline_ms)

    def doubtful(self, now_ms: int) -> list[Ref]:
        """Leases whose deadline has passed: perhaps they were reaped."""
        return [
            Ref(job_id, generation)
            for stream in self._streams
            for job_id, (generation, deadline_ms) in stream.in_flight.items()
            if deadline_ms <= now_ms
        ]

    # -- inside

    def _drop(self, stream: Stream, job_id: bytes) -> None:
        del stream.in_flight[job_id]
        if stream in self._full:
            self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        """Put a stream whose call waits where it belongs: with the full ones, or into a line."""
        if stream.news is None or stream.news.done() or stream.closed:
            return
        if stream.room <= 0:
            self._full[stream] = None
            return
        self._full.pop(stream, None)
        if stream.idle_s == 0:
            self._lookers[stream] = None
        else:
            if stream.filters not in self._lines:
                self._lines[stream.filters] = OrderedDict()
                for shelf in _shelves(stream.filters):
                    self._index.setdefault(shelf, {})[stream.filters] = None
            self._lines[stream.filters][stream] = None
            self._fresh[stream.filters] = None
            stream.idle_from_now(self._loop, self._idle)
        self._look()

    def _leave(self, stream: Stream) -> None:
        self._lookers.pop(stream, None)
        line = self._lines.get(stream.filters)
        if line is not None and stream in line:
            del line[stream]
            if not line:
                self._remove_line(stream.filters)

    def _remove_line(self, filters: Filters) -> None:
        del self._lines[filters]
        for shelf in _shelves(filters):
            lines = self._index[shelf]
            del lines[filters]
            if not lines:
                del self._index[shelf]

    def _idle(self, stream: Stream) -> None:
        """Its time is over, unless a look finds something for it now: one may be under way, and late."""
        self._leave(stream)
        self._lookers[stream] = None
        self._look()


def _shelves(filters: Filters) -> list[tuple[bytes | None, str | None]]:
    """Where the index has a line: by each of its scopes and kinds; None stands for any."""
    scopes: Iterable[bytes | None] = filters.scopes or ()
    kinds: Iterable[str | None] = filters.kinds or ()
    if not 0 < len(filters.scopes or ()) <= SHELVES_MAX:
        scopes = (None,)
    if not 0 < len(filters.kinds or ()) <= SHELVES_MAX or any(kind.endswith("*") for kind in filters.kinds or ()):
        kinds = (None,)
    return [(scope, kind) for scope in scopes for kind in kinds]
