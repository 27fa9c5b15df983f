"""PollJobs: awake at once, never more in flight than asked for, nothing lost when the client goes."""

import asyncio
import os
import threading
from typing import Any
from uuid import UUID

import grpc
import pytest

from telha_jobs import Backoff, LeaseRef, NewJob, QueueConfig, State
from telha_jobs.clock import SystemClock
from telha_jobs.rpc.polls import Stream
from telha_jobs.rpc.v1 import jobs_pb2 as pb
from tests.rpc.rig import BOUND_S, CONFIG, TTL_MS, A, B, Rig, bounded, complete, fail, job, ref, refusal, serving

IDLE_POLLS = 500


async def opened(rig: Rig, **given: Any) -> Any:
    """An open poll that waits."""
    poll = rig.stub().PollJobs(pb.PollJobsRequest(worker="w", **given))
    await poll.initial_metadata()
    await rig.until(lambda: rig.server._dispatcher.polls.waiting and not rig.server._dispatcher._busy)
    return poll


async def ended(poll: Any) -> str:
    """How a poll ended: OK, and why."""
    assert await poll.read() is grpc.aio.EOF
    assert await poll.code() == grpc.StatusCode.OK
    return str(dict(await poll.trailing_metadata())["telha-end"])


async def ids(poll: Any) -> list[str]:
    """The jobs of the next message."""
    message = await poll.read()
    return [lease.job_id for lease in message.leases]


@bounded
async def test_a_poll_is_awake_at_once_when_a_job_is_enqueued() -> None:
    """An enqueue wakes whoever waits, and one over the wire shares its commit with the grant."""
    async with serving() as rig:
        poll = await opened(rig, max_in_flight=5)
        job_id = rig.queue.enqueue(A, "work", None).job_id
        assert await ids(poll) == [str(job_id)]
        await rig.until(lambda: not rig.server._dispatcher._busy)
        commits = rig.queue._store.counters.commits
        call = rig.stub().Enqueue(pb.EnqueueRequest(job=pb.NewJob(scope=str(A), kind="work")))
        assert await ids(poll) == [(await call).receipt.job_id]
        assert rig.queue._store.counters.commits == commits + 1


@bounded
@pytest.mark.parametrize("kinds", [["new:kind"], ["new:*"]])
async def test_a_poll_is_awake_for_the_first_job_of_a_kind(kinds: list[str]) -> None:
    """A kind that the queue did not know before the very commit of the grant is matched all the same."""
    async with serving() as rig:
        poll = await opened(rig, kinds=kinds)
        call = rig.stub().Enqueue(pb.EnqueueRequest(job=pb.NewJob(scope=str(A), kind="new:kind")))
        assert await ids(poll) == [(await call).receipt.job_id]


@bounded
async def test_a_poll_is_awake_at_once_when_a_job_is_released_or_retried() -> None:
    """Over the wire, in the same commit."""
    async with serving() as rig:
        held = await rig.lease()
        dead = rig.queue.enqueue(B, "work", None, delay_ms=1).job_id
        rig.queue.cancel(dead)
        rig.clock.advance(1)
        poll = await opened(rig, max_in_flight=5)
        await rig.stub().Release(pb.ReleaseRequest(lease=held))
        assert await ids(poll) == [held.job_id]
        await rig.stub().RetryJob(pb.JobRequest(job_id=str(dead)))
        assert await ids(poll) == [str(dead)]


@bounded
async def test_a_poll_is_awake_when_a_job_comes_due() -> None:
    """Under a clock moved by hand as soon as it is moved; a failed job whose back-off is over counts as due."""
    async with serving(QueueConfig(backoff=Backoff(base_ms=500), durability="os")) as rig:
        failed = await rig.lease()
        rig.queue.fail(LeaseRef(UUID(failed.job_id), failed.generation), "x")
        later = rig.queue.enqueue(A, "work", None, delay_ms=2_000).job_id
        poll = await opened(rig, max_in_flight=5)
        rig.clock.advance(500)
        assert await ids(poll) == [failed.job_id]
        await rig.until(lambda: not rig.server._dispatcher._busy)
        rig.clock.advance(1_500)
        assert await ids(poll) == [str(later)]


@bounded
async def test_a_poll_is_awake_when_a_job_comes_due_by_the_systems_clock() -> None:
    """One timer stands at the next due time."""
    async with serving(clock=SystemClock()) as rig:
        poll = await opened(rig, idle_timeout_ms=10_000)
        job_id = rig.queue.enqueue(A, "work", None, delay_ms=150).job_id
        assert await ids(poll) == [str(job_id)]
        assert rig.queue.now_ms() - rig.queue.get(job_id).events[0].detail["due"] < 5_000


@bounded
async def test_other_kinds_work_puts_off_no_job_that_comes_due() -> None:
    """A poll is awake at its job's due time though commits for others, whose looks leave it out, come all the while."""
    async with serving(clock=SystemClock()) as rig:
        rig.queue.enqueue(A, "later", None, delay_ms=3_600_000)
        quiet = await opened(rig, kinds=["quiet"], scopes=[str(A)])
        busy = await opened(rig, kinds=["busy"], max_in_flight=10_000)
        waiting = asyncio.ensure_future(quiet.read())
        job_id = rig.queue.enqueue(A, "quiet", None, delay_ms=100).job_id
        while not waiting.done():
            await rig.stub().Enqueue(pb.EnqueueRequest(job=pb.NewJob(scope=str(B), kind="busy")))
            assert len(await ids(busy)) == 1
        assert [lease.job_id for lease in waiting.result().leases] == [str(job_id)]


@bounded
@pytest.mark.parametrize("filtered", ["scope", "kind", "family", "both", "neither", "many"])
async def test_a_poll_is_awake_whatever_its_filters(filtered: str) -> None:
    """Of hundreds of polls under other filters that wait beside it, the one that may take the job gets it."""
    more = [str(UUID(int=number)) for number in range(1, 20)]
    wanted: dict[str, dict[str, Any]] = {
        "scope": {"scopes": [str(A)]},
        "kind": {"kinds": ["work"]},
        "family": {"kinds": ["w:*", "work"]},
        "both": {"scopes": [str(A), str(B)], "kinds": ["other", "work"]},
        "neither": {},
        "many": {"scopes": [*more, str(A)], "kinds": [f"k{number}" for number in range(20)] + ["work"]},
    }
    async with serving() as rig:
        others = [rig.stub().PollJobs(pb.PollJobsRequest(worker="w", kinds=[f"other{n}"])) for n in range(100)]
        others += [rig.stub().PollJobs(pb.PollJobsRequest(worker="w", scopes=[scope])) for scope in more]
        await rig.until(lambda: len(rig.server._dispatcher.polls) == len(others))
        poll = await opened(rig, **wanted[filtered])
        call = rig.stub().Enqueue(pb.EnqueueRequest(job=pb.NewJob(scope=str(A), kind="work")))
        assert await ids(poll) == [(await call).receipt.job_id]
        poll.cancel()
        for other in others:
            other.cancel()
        await rig.until(lambda: not len(rig.server._dispatcher.polls))
        assert (rig.server._dispatcher.polls._index, rig.server._dispatcher.polls._lines) == ({}, {})


@bounded
async def test_follow_ups_wake_a_poll() -> None:
    """A submit's follow-up job is leased in the commit of the submit."""
    async with serving() as rig:
        lease = await rig.lease()
        poll = await opened(rig, kinds=["next"])
        call = rig.stub().Submit(complete(lease, None, [job(B, "next")]))
        assert await ids(poll) == [(await call).receipts[0].job_id]
        again = await rig.lease()
        await rig.stub().SubmitBatch(pb.SubmitBatchRequest(items=[complete(again, None, [job(B, "next")])]))
        assert rig.queue.counts(scope=B)[State.PENDING] == 1  # the poll is full


@bounded
async def test_no_more_leases_are_in_flight_than_asked_for() -> None:
    """A full stream gets nothing until a submit, a release, a cancel or a stale refusal makes room."""
    async with serving() as rig:
        jobs = [str(rig.queue.enqueue(A, "work", None).job_id) for _ in range(6)]
        poll = await opened_full(rig, 2)
        message = await poll.read()
        first, second = message.leases
        assert [first.job_id, second.job_id] == jobs[:2]
        await rig.stub().Submit(complete(first))
        [third] = (await poll.read()).leases
        await rig.stub().Submit(fail(second))
        [fourth] = (await poll.read()).leases
        await rig.stub().Release(pb.ReleaseRequest(lease=ref(third)))
        [again] = (await poll.read()).leases
        await rig.stub().CancelJob(pb.JobRequest(job_id=fourth.job_id))
        [fifth] = (await poll.read()).leases
        assert [third.job_id, fourth.job_id, again.job_id, fifth.job_id] == [jobs[2], jobs[3], jobs[2], jobs[4]]
        rig.queue.cancel(UUID(fifth.job_id))
        await refusal(rig.stub().Submit(complete(fifth)))
        assert await ids(poll) == [jobs[5]]
        assert rig.queue.counts()[State.LEASED] == 2


async def opened_full(rig: Rig, most: int) -> Any:
    """A poll of a queue that has more than enough for it."""
    poll = rig.stub().PollJobs(pb.PollJobsRequest(worker="w", max_in_flight=most))
    await poll.initial_metadata()
    return poll


@bounded
async def test_a_reaped_lease_makes_room() -> None:
    """Leases that the reaper ended are in flight no more, though nobody submits them."""
    async with serving() as rig:
        for _ in range(2):
            rig.queue.enqueue(A, "work", None, max_attempts=1)
        poll = await opened_full(rig, 1)
        [first] = (await poll.read()).leases
        rig.clock.advance(TTL_MS)
        assert rig.queue.get(UUID(first.job_id)).state is State.LEASED
        rig.queue.reap()
        [second] = (await poll.read()).leases
        assert second.job_id != first.job_id


@bounded
async def test_a_heartbeat_keeps_a_lease_in_flight() -> None:
    """A lease that was extended is not taken for reaped when its first deadline has passed."""
    async with serving() as rig:
        first = rig.queue.enqueue(A, "work", None).job_id
        poll = await opened_full(rig, 1)
        [lease] = (await poll.read()).leases
        rig.clock.advance(TTL_MS - 1)
        await rig.stub().Heartbeat(pb.HeartbeatRequest(worker="w", leases=[ref(lease)]))
        rig.clock.advance(TTL_MS - 1)
        assert rig.server._dispatcher.polls.doubtful(rig.queue.now_ms()) == []
        rig.queue.enqueue(A, "work", None)
        rig.queue.reap()
        await rig.stub().Counts(pb.CountsRequest())
        assert rig.queue.get(first).state is State.LEASED
        assert rig.queue.counts()[State.PENDING] == 1


@bounded
async def test_a_job_that_is_leased_anew_makes_room_where_it_was() -> None:
    """When another stream gets a job that was given back without this server's doing, the first one has room again."""
    async with serving() as rig:
        job_id = rig.queue.enqueue(A, "work", None).job_id
        first = await opened_full(rig, 1)
        [lease] = (await first.read()).leases
        second = await opened(rig, max_in_flight=1)
        rig.queue.release(LeaseRef(job_id, lease.generation))
        assert await ids(second) == [str(job_id)]
        following = rig.queue.enqueue(A, "work", None).job_id
        assert await ids(first) == [str(following)]


@bounded
async def test_streams_share_what_there_is() -> None:
    """Of twenty jobs, four streams that wait under the same filters get five each."""
    async with serving() as rig:
        polls = [await opened(rig, max_in_flight=20) for _ in range(4)]
        await rig.until(
            lambda: len(rig.server._dispatcher.polls._lines[next(iter(rig.server._dispatcher.polls._lines))]) == 4
        )
        rig.queue.enqueue_many(NewJob(scope=A, kind="work", payload=None) for _ in range(20))
        numbers = [len(await ids(poll)) for poll in polls]
        assert numbers == [5, 5, 5, 5]


@bounded
async def test_filters_are_those_of_the_library() -> None:
    """A poll gets jobs of its kinds, families included, and of its scopes."""
    async with serving() as rig:
        rig.queue.enqueue(B, "ingest:pdf", None)
        rig.queue.enqueue(A, "other", None)
        wanted = rig.queue.enqueue(A, "ingest:pdf", None).job_id
        poll = rig.stub().PollJobs(
            pb.PollJobsRequest(worker="w", max_in_flight=9, kinds=["ingest:*"], scopes=[str(A)], once=True)
        )
        assert await ids(poll) == [str(wanted)]
        assert await ended(poll) == "once"


@bounded
async def test_an_idle_poll_ends() -> None:
    """A poll with a timeout of zero looks once; one with a timeout ends when nothing came for so long."""
    async with serving() as rig:
        for timeout_ms in (0, 50):
            poll = rig.stub().PollJobs(pb.PollJobsRequest(worker="w", idle_timeout_ms=timeout_ms))
            assert await ended(poll) == "idle"


@bounded
async def test_a_poll_is_not_idle_because_the_server_is_slow() -> None:
    """When its time is over while a commit takes long, one more look decides: what is there by then is granted."""
    async with serving() as rig:
        poll = await opened(rig, idle_timeout_ms=20)
        go = threading.Event()
        held = asyncio.ensure_future(rig.server._dispatcher.run([lambda _: go.wait(BOUND_S)]))
        call = rig.stub().Enqueue(pb.EnqueueRequest(job=pb.NewJob(scope=str(A), kind="work")))
        await rig.until(lambda: bool(rig.server._dispatcher.polls._lookers) and rig.server._dispatcher.waiting == 2)
        go.set()
        await held
        assert await ids(poll) == [(await call).receipt.job_id]


@bounded
async def test_a_full_poll_is_not_idle() -> None:
    """Time during which a stream has no room is no idle time."""
    async with serving() as rig:
        rig.queue.enqueue(A, "work", None)
        poll = rig.stub().PollJobs(pb.PollJobsRequest(worker="w", idle_timeout_ms=50))
        [lease] = (await poll.read()).leases
        waiting = asyncio.ensure_future(poll.read())
        assert not (await asyncio.wait({waiting}, timeout=0.3))[0]
        await rig.stub().Submit(complete(lease))
        assert await waiting is grpc.aio.EOF


@bounded
async def test_leases_that_were_not_handed_over_are_released() -> None:
    """When a client that does not read goes, what was granted for it and not sent is pending again, untried."""
    config = QueueConfig(lease_ttl_ms=TTL_MS, durability="os")
    async with serving(config) as rig:
        rig.queue.enqueue_many(NewJob(scope=A, kind="work", payload=b"x" * 1_000_000) for _ in range(30))
        polls = rig.server._dispatcher.polls
        handed: list[int] = []
        hand_over = polls.handed

        def noted(stream: Stream) -> None:
            handed.append(len(stream.held))
            hand_over(stream)

        polls.handed = noted  # type: ignore[method-assign]
        # Nobody reads: the window fills, and the next message waits in the server.
        poll = rig.stub().PollJobs(pb.PollJobsRequest(worker="w", max_in_flight=30))
        await poll.initial_metadata()
        [stream] = polls._streams
        await rig.until(lambda: bool(stream.held))
        poll.cancel()
        await rig.until(lambda: not polls._streams and not rig.server._dispatcher.waiting)
        counts = rig.queue.counts()
        assert sum(handed) < 30
        assert (counts[State.LEASED], counts[State.PENDING]) == (sum(handed), 30 - sum(handed))
        assert all(one.attempts == 0 for one in rig.queue.list_jobs().jobs)


@bounded
async def test_leases_that_were_handed_over_expire() -> None:
    """A client that goes after it was sent its leases keeps them until their deadlines, and may still submit them."""
    async with serving() as rig:
        rig.queue.enqueue(A, "work", None)
        poll = await opened_full(rig, 1)
        [lease] = (await poll.read()).leases
        await rig.until(lambda: all(not stream.held for stream in rig.server._dispatcher.polls._streams))
        poll.cancel()
        await rig.until(lambda: not len(rig.server._dispatcher.polls))
        assert rig.queue.counts()[State.LEASED] == 1
        assert (await rig.stub().Submit(complete(lease))).state == pb.STATE_COMPLETED


@bounded
async def test_a_poll_that_goes_while_it_waits_leaves_nothing_behind() -> None:
    """Neither a place in a line nor a lease."""
    async with serving() as rig:
        poll = await opened(rig)
        poll.cancel()
        await rig.until(lambda: not len(rig.server._dispatcher.polls))
        assert not rig.server._dispatcher.polls.waiting
        rig.queue.enqueue(A, "work", None)
        assert rig.queue.counts()[State.PENDING] == 1


@bounded
async def test_a_message_holds_about_a_megabyte() -> None:
    """Large payloads are not granted by the dozen: a stream has one message of bounded size at a time."""
    async with serving() as rig:
        rig.queue.enqueue_many(NewJob(scope=A, kind="work", payload=b"x" * 300_000) for _ in range(12))
        poll = await opened_full(rig, 12)
        sizes: list[int] = []
        while sum(sizes) < 12:
            sizes.append(len(await ids(poll)))
        assert max(sizes) <= 4


@bounded
async def test_idle_polls_cost_nothing() -> None:
    """Hundreds of polls that wait, and a second in which nothing happens: no batch, and next to no CPU time."""
    async with serving(clock=SystemClock()) as rig:
        rig.queue.enqueue(B, "other", None, delay_ms=60_000)
        polls = [
            rig.stub().PollJobs(pb.PollJobsRequest(worker="w", kinds=["work"], idle_timeout_ms=600_000))
            for _ in range(IDLE_POLLS)
        ]
        await rig.until(lambda: len(rig.server._dispatcher.polls) == IDLE_POLLS)
        await rig.until(lambda: not rig.server._dispatcher._busy)
        await asyncio.sleep(0.2)
        batches = rig.server._dispatcher.batches
        before = os.times()
        await asyncio.sleep(1)
        after = os.times()
        assert rig.server._dispatcher.batches == batches
        assert after.user + after.system - before.user - before.system < 0.25
        for poll in polls:
            poll.cancel()


@bounded
@pytest.mark.parametrize("most", [1, 3])
async def test_every_job_reaches_exactly_one_of_many_streams(most: int) -> None:
    """Of hundreds of jobs, enqueued while eight streams work, each is granted once."""
    async with serving(CONFIG) as rig:
        done: list[str] = []

        async def work() -> None:
            async for message in rig.stub().PollJobs(pb.PollJobsRequest(worker="w", max_in_flight=most)):
                for lease in message.leases:
                    done.append(lease.job_id)
                    await rig.stub().Submit(complete(lease))

        workers = [asyncio.ensure_future(work()) for _ in range(8)]
        made = [
            (await rig.stub().Enqueue(pb.EnqueueRequest(job=pb.NewJob(scope=str(A), kind="work")))).receipt.job_id
            for _ in range(200)
        ]
        await rig.until(lambda: rig.queue.counts()[State.COMPLETED] == 200)
        for worker in workers:
            worker.cancel()
        assert sorted(done) == sorted(made)
