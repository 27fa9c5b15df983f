"""The client: the replies of the library, what is sent again, and what is told when no answer comes."""

import asyncio
import inspect
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import pytest

from telha_jobs import (
    InvalidArgumentError,
    JobQueue,
    LeaseRef,
    ManualClock,
    NewJob,
    QueueConfig,
    QueueError,
    QueueUnavailableError,
    State,
    WrongStateError,
)
from telha_jobs.client import TLS, AsyncClient, Client, RemoteRefusalError, connect, connect_async
from telha_jobs.protocol import AsyncQueue, Queue
from telha_jobs.rpc.service import Service
from tests.rpc.rig import BOUND_S, CONFIG, START_MS, A, B, bounded
from tests.rpc.threaded import Served, served

MISSING = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


@pytest.fixture
def server() -> Iterator[Served]:
    """A served queue."""
    with served() as found:
        yield found


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    """A client of it."""
    with connect(server.address, timeout_s=BOUND_S) as found:
        yield found


# -- the same replies


Step = Callable[[Any, dict[str, Any]], Any]


def _keep(name: str, make: Callable[[Any, dict[str, Any]], Any]) -> Step:
    def step(queue: Any, kept: dict[str, Any]) -> Any:
        kept[name] = make(queue, kept)
        return kept[name]

    return step


PAYLOAD = {"path": "a.pdf", 7: b"\x00\xff", "deep": [None, True, 1.5, float("inf"), {"$bytes": 1}]}
STEPS: Sequence[Step] = (
    _keep("a", lambda q, _: q.enqueue(A, "ingest:pdf", PAYLOAD, idempotency_key="k", headers={"b": "1", "a": "2"})),
    lambda q, _: q.enqueue(A, "ingest:pdf", PAYLOAD, idempotency_key="k"),
    lambda q, _: q.enqueue(A, "embed", PAYLOAD, idempotency_key="k"),
    lambda q, _: q.enqueue(B, "embed", None, priority=0, delay_ms=5_000, max_attempts=2, payload_version=3),
    lambda q, _: q.enqueue_many([NewJob(scope=A, kind="embed", payload=n) for n in range(3)]),
    lambda q, _: q.enqueue_many([NewJob(scope=A, kind="embed", payload=1), NewJob(scope=A, kind="a b", payload=1)]),
    lambda q, _: q.enqueue_many([NewJob(scope=A, kind="x", payload=1, idempotency_key="k")]),
    lambda q, _: q.enqueue(A, "system:x", 1),
    lambda q, _: q.enqueue(A, "embed", 1, priority=256),
    lambda q, _: q.enqueue(A, "embed", (1, 2)),
    lambda q, _: q.enqueue(A, "embed", "\ud800"),
    lambda q, _: q.enqueue(A, "embed", 1, run_at_ms=1, delay_ms=1),
    lambda q, _: q.enqueue(A, "embed", b"x" * 4_194_400),
    lambda q, _: q.enqueue("A", "embed", 1),
    _keep("lease", lambda q, _: q.lease_next("w", kinds=["ingest:*"])),
    lambda q, _: q.lease_next("w", scopes=[B]),
    lambda q, _: q.lease_next("w", kinds=[]),
    lambda q, _: q.lease_next("", wait_ms=1),
    lambda q, _: q.lease_batch("w", 0),
    lambda q, _: q.lease_batch("w", 20_000),
    lambda q, _: q.lease_next("w", wait_ms=-1),
    _keep("rest", lambda q, _: q.lease_batch("w", 2, kinds=["embed"])),
    lambda q, k: q.extend("w", [k["lease"], LeaseRef(MISSING, 1), LeaseRef(k["lease"].job_id, 9)]),
    lambda q, k: q.extend("w", [k["lease"]], progress={k["lease"].job_id: {"page": 3}}),
    lambda q, k: q.extend("w", [k["lease"]], progress={MISSING: 1}),
    lambda q, k: q.get(k["lease"].job_id),
    lambda q, k: q.complete(k["lease"], {"n": 1}, enqueue=[NewJob(scope=A, kind="x", payload=1, idempotency_key="k")]),
    lambda q, k: q.complete(k["lease"], {"n": 1}, enqueue=[NewJob(scope=A, kind="x", payload=1)]),
    lambda q, k: q.complete(k["lease"], {"n": 1}, enqueue=[NewJob(scope=A, kind="x", payload=1)]),
    lambda q, k: q.complete(k["lease"], {"n": 2}),
    lambda q, _: q.complete(LeaseRef(MISSING, 1)),
    lambda q, _: q.complete((MISSING, 1)),
    lambda q, k: q.complete(k["lease"], {1, 2}),
    lambda q, k: q.complete_many([(k["rest"][0], "r"), (k["lease"], 1), (LeaseRef(MISSING, 1), 1)]),
    lambda q, k: q.complete_many([(k["rest"][0], "r")]),
    lambda q, k: q.complete_many([(k["rest"][0], float("nan"))]),
    lambda q, k: q.fail(k["rest"][1], "broken \ud800 " + "x" * 9_000),
    lambda q, k: q.fail(k["rest"][1], "broken \ud800 " + "x" * 9_000),
    lambda q, k: q.fail(k["rest"][1], 7),
    _keep("late", lambda q, _: q.lease_next("w", kinds=["x"])),
    lambda q, k: q.release(k["late"], delay_ms=1_000),
    lambda q, k: q.release(k["late"]),
    lambda q, k: q.cancel(k["late"].job_id),
    lambda q, k: q.cancel(k["late"].job_id),
    lambda q, _: q.retry(MISSING),
    lambda q, k: q.retry(k["late"].job_id),
    lambda q, k: q.discard(k["a"].job_id),
    lambda q, k: q.get(k["a"].job_id),
    lambda q, _: q.get("a"),
    lambda q, _: q.reap(),
    lambda q, _: q.reap(0),
    lambda q, _: q.list_jobs(state=State.FAILED),
    lambda q, _: q.list_jobs(scope=A, kind="embed", limit=1),
    lambda q, _: q.list_jobs(limit=2),
    lambda q, _: q.list_jobs(limit=0),
    lambda q, _: q.list_jobs(after="x"),
    lambda q, _: q.list_jobs(state="dead"),
    lambda q, _: q.counts(),
    lambda q, _: q.counts(scope=A, kind="embed"),
    lambda q, _: q.counts(kind="a*"),
    lambda q, _: q.check(),
    lambda q, _: q.now_ms(),
    lambda q, _: q.clock_ahead_ms(),
)


def replies(queue: Any) -> list[str]:
    """What each step is answered, with job ids by the order they appear in."""
    kept: dict[str, Any] = {}
    seen: dict[str, str] = {}
    found = []
    for step in STEPS:
        try:
            answer = step(queue, kept)
        except QueueError as error:
            fields = {name: value for name, value in vars(error).items() if name != "message"}
            if isinstance(error, WrongStateError):
                fields["needed"] = sorted(state.value for state in error.needed)
            answer = (type(error).__name__, str(error), sorted(map(str, fields.items())))
        text = re.sub(
            r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}",
            lambda match: seen.setdefault(match[0], f"job-{len(seen)}"),
            repr(answer),
        )
        found.append(text)
    return found


class Blocking:
    """An asynchronous client, waited for from another thread."""

    def __init__(self, client: AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return lambda *given, **named: asyncio.run_coroutine_threadsafe(method(*given, **named), self._loop).result()


def test_replies_are_the_library_s(tmp_path: Path) -> None:
    """Every method answers what `JobQueue` answers, and refuses what it refuses, word for word; awaited too."""
    with JobQueue.open(tmp_path / "queue", config=CONFIG, clock=ManualClock(START_MS)) as queue:
        expected = replies(queue)
    with served() as server, connect(server.address, timeout_s=BOUND_S) as client:
        assert replies(client) == expected

    async def awaited(address: str) -> list[str]:
        async with connect_async(address, timeout_s=BOUND_S) as client:
            return await asyncio.to_thread(replies, Blocking(client, asyncio.get_running_loop()))

    with served() as server:
        assert asyncio.run(awaited(server.address)) == expected
    assert sum("Error" in text for text in expected) > 25


def test_a_client_can_be_awaited() -> None:
    """For code that cannot hold it in an `async with`; it is closed by hand then."""

    async def counted(address: str) -> int:
        client = await connect_async(address, timeout_s=BOUND_S)
        try:
            return sum((await client.counts()).values())
        finally:
            await client.close()

    with served() as server:
        assert asyncio.run(counted(server.address)) == 0


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("collections.abc.", "")


@pytest.mark.parametrize(
    "name", [name for name in vars(Queue) if not name.startswith("_") and callable(getattr(Queue, name))]
)
def test_the_protocol_has_the_methods_of_all_of_them(name: str) -> None:
    """Names, parameters and defaults are one in the protocol, the library and both clients."""
    expected = _signature(getattr(JobQueue, name))
    assert {_signature(getattr(cls, name)) for cls in (Queue, Client)} == {expected}
    if name != "start_reaper":
        assert {_signature(getattr(cls, name)) for cls in (AsyncQueue, AsyncClient)} == {expected}


def test_types_agree(client: Client, server: Served) -> None:
    """A client and a queue are both what the protocol asks for: mypy holds these lines."""

    def remote(found: AsyncClient) -> AsyncQueue:
        return found

    queues: list[Queue] = [client, server.queue]
    assert [type(queue).__name__ for queue in queues] == ["Client", "JobQueue"]
    assert remote.__annotations__["return"] is AsyncQueue


# -- answers that are lost


@contextmanager
def losing(monkeypatch: pytest.MonkeyPatch, choose: Callable[[str], str]) -> Iterator[Counter[str]]:
    """`choose(method)`: what is lost of a call, its `request`, its `answer`, or nothing (``)."""
    attempts: Counter[str] = Counter()
    original = Service._call

    async def lossy(self: Any, name: str, role: Any, prepare: Any, request: Any, context: Any) -> Any:
        attempts[name] += 1
        lost = choose(name)
        if lost == "request":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        answer = await original(self, name, role, prepare, request, context)
        if lost == "answer":
            context.set_trailing_metadata(())
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(Service, "_call", lossy)
        yield attempts


def test_answers_dropped_at_random_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of all requests and answers are lost: every job exists once, ends once, and has its follow-ups once."""
    chance = random.Random(7)
    fates = ("request", "answer", "", "")
    with (
        losing(monkeypatch, lambda _: chance.choice(fates)) as attempts,
        served() as server,
        connect(server.address, timeout_s=BOUND_S) as client,
    ):
        keyed = [NewJob(scope=A, kind="work", payload=n, idempotency_key=f"k{n}") for n in range(20)]
        receipts = [client.enqueue(A, "work", n, idempotency_key=f"k{n}") for n in range(10)]
        receipts += client.enqueue_many(keyed)[10:]
        leases = client.lease_batch("w", 100)
        assert [lease.job_id for lease in leases] == [receipt.job_id for receipt in receipts]
        assert {one.status for one in client.extend("w", leases)} == {"extended"}
        for lease in leases[:8]:
            client.complete(lease, lease.payload, enqueue=[NewJob(scope=A, kind="next", payload=lease.payload)])
        assert {one.status for one in client.complete_many([(lease, None) for lease in leases[8:14]])} == {"completed"}
        assert {client.fail(lease, "no", retryable=False) for lease in leases[14:]} == {State.DEAD}
        assert client.counts() == {
            State.PENDING: 8,
            State.LEASED: 0,
            State.FAILED: 0,
            State.COMPLETED: 14,
            State.DEAD: 6,
        }
        follow_ups = client.list_jobs(kind="next").jobs
        assert sorted(job.payload for job in follow_ups) == list(range(8))
        logs = [[event.transition for event in job.events] for job in client.list_jobs(kind="work").jobs]
        assert Counter(len(log) for log in logs) == {3: 20}, "enqueued, leased, ended: nothing happened twice"
    assert attempts["Submit"] > 14 + 5, "many were sent again"


UNSAFE: dict[str, tuple[str, Callable[[Client, Any], object], list[State]]] = {
    "enqueue without a key": (
        "Enqueue",
        lambda client, _: client.enqueue(A, "work", 1),
        [State.LEASED, State.PENDING],
    ),
    "a batch in which one has none": (
        "EnqueueBatch",
        lambda client, _: client.enqueue_many(
            [
                NewJob(scope=A, kind="work", payload=1, idempotency_key="k"),
                NewJob(scope=A, kind="work", payload=1),
            ]
        ),
        [State.LEASED, State.PENDING, State.PENDING],
    ),
    "release": ("Release", lambda client, lease: client.release(lease), [State.PENDING]),
    "cancel": ("CancelJob", lambda client, lease: client.cancel(lease.job_id), [State.DEAD]),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_not_safe_is_not_sent_again(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A lost answer is told as an unknown outcome after one attempt, and the call was applied once."""
    method, call, expected = UNSAFE[name]
    with (
        losing(monkeypatch, lambda called: "answer" if called == method else "") as attempts,
        served() as server,
        connect(server.address, timeout_s=BOUND_S) as client,
    ):
        server.queue.enqueue(B, "held", None)
        lease = server.queue.lease_next("w")
        with pytest.raises(QueueUnavailableError) as caught:
            call(client, lease)
        assert (caught.value.outcome, attempts[method]) == ("unknown", 1)
        assert [job.state for job in server.queue.list_jobs().jobs] == expected


def test_a_refusal_is_a_reply(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    """What the queue refuses is not sent again."""
    with losing(monkeypatch, lambda _: "") as attempts, served() as server:
        with connect(server.address) as other, pytest.raises(QueueError, match="does not exist"):
            other.complete(LeaseRef(MISSING, 1))
        assert attempts["Submit"] == 1


# -- servers that are not there


def _free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def test_a_server_that_is_not_there() -> None:
    """Without waiting the call fails at once; whether it could have been applied is told."""
    with connect(_free_address(), wait=False) as client:
        with pytest.raises(QueueUnavailableError, match="is the server running") as caught:
            client.counts()
        assert caught.value.outcome == "not_applied"
        with pytest.raises(QueueUnavailableError) as caught:
            client.enqueue(A, "work", 1)
        assert caught.value.outcome == "unknown"


def test_a_call_has_a_deadline() -> None:
    """A call that waits for a server waits no longer than it may."""
    with (
        connect(_free_address(), timeout_s=0.2) as client,
        pytest.raises(QueueUnavailableError, match="no answer from"),
    ):
        client.counts()


def test_calls_wait_for_a_server_that_comes(tmp_path: Path) -> None:
    """A client may be there first."""
    address = f"unix:{tmp_path}/socket"
    with connect(address, timeout_s=BOUND_S) as client:
        found: list[object] = []
        caller = threading.Thread(target=lambda: found.append(client.enqueue(A, "work", 1)))
        caller.start()
        with served(listen=address):
            caller.join(BOUND_S)
        assert len(found) == 1


def test_a_closed_client_refuses(client: Client) -> None:
    """Calls after the close, and a call that was waiting when it came."""
    refused: list[BaseException] = []

    def wait() -> None:
        try:
            client.lease_next("w", wait_ms=60_000)
        except QueueUnavailableError as error:
            refused.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    client.counts()
    client.close()
    waiter.join(BOUND_S)
    client.close()
    with pytest.raises(QueueUnavailableError, match="the client is closed"):
        client.counts()
    assert [str(error) for error in refused] == ["the client is closed: connect again"]


# -- polls, pages, tokens


def test_a_poll_gives_leases_as_they_come(client: Client, server: Served) -> None:
    """At most as many as may be in flight; a submit makes room; it ends when nothing comes."""
    server.queue.enqueue_many([NewJob(scope=A, kind="work", payload=n) for n in range(5)])
    seen = []
    for leases in client.poll("w", max_in_flight=2, idle_timeout_ms=200):
        assert server.queue.counts()[State.LEASED] <= 2
        for lease in leases:
            seen.append(lease.payload)
            client.complete(lease)
    assert seen == [0, 1, 2, 3, 4]


def test_leaving_a_poll_leaves_the_server(client: Client, server: Served) -> None:
    """A closed iterator ends its stream: what comes later is nobody's."""
    server.queue.enqueue(A, "work", 1)
    poll = client.poll("w", max_in_flight=9)
    [lease] = next(poll)
    poll.close()  # type: ignore[attr-defined]  # it is a generator
    client.complete(lease)
    server.queue.enqueue(A, "work", 2)
    assert client.lease_next("other", wait_ms=5_000) is not None


@bounded
async def test_polls_and_rows_awaited() -> None:
    """The asynchronous client's streams."""
    with served() as server:
        server.queue.enqueue_many([NewJob(scope=A, kind="work", payload=n) for n in range(3)])
        async with connect_async(server.address) as client:
            found = [
                lease async for leases in client.poll("w", max_in_flight=4, idle_timeout_ms=100) for lease in leases
            ]
            assert [lease.payload for lease in found] == [0, 1, 2]
            assert await client.counts() == server.queue.counts()
            rows = [job_id async for job_id, _ in client.rows()]
            assert rows == [lease.job_id for lease in found]


def test_a_page_is_full_whatever_a_message_holds(client: Client, server: Served) -> None:
    """Jobs that make too long a message for one answer come in several, and in one page."""
    for number in range(20):
        server.queue.enqueue(A, "large", bytes([number]) * 300_000)
    page = client.list_jobs(limit=19)
    assert [job.payload[0] for job in page.jobs] == list(range(19))
    assert [job.payload[0] for job in client.list_jobs(limit=19, after=page.after).jobs] == [19]


def test_what_is_told_of_commits(server: Served) -> None:
    """Answers and refusals tell the commit they saw; a poll's stands in its messages."""
    told: list[tuple[str, str]] = []

    def note(method: str, trailers: Any) -> None:
        told.append((method, dict(trailers).get("telha-commit-seq", "")))

    with connect(server.address, told=note) as client:
        client.enqueue(A, "work", 1)
        client.lease_next("w")
        client.lease_next("w")
        with pytest.raises(QueueError):
            client.complete(LeaseRef(MISSING, 1))
    assert told == [("Enqueue", "1"), ("PollJobs", "2"), ("PollJobs", ""), ("Submit", "2")]


def test_what_only_a_server_refuses(tmp_path: Path) -> None:
    """A token that it does not know, and none."""
    from telha_jobs.rpc.tokens import hash_of

    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        f'[[tokens]]\nname = "w"\nsha256 = "{hash_of("right").hex()}"\nroles = ["worker"]\nscopes = "*"\n', "utf-8"
    )
    with served(tokens=str(tokens)) as server:
        for token in (None, "wrong"):
            with connect(server.address, token=token) as client, pytest.raises(RemoteRefusalError) as caught:
                client.lease_next("w")
            assert caught.value.reason == "TOKEN_UNKNOWN"
        with connect(server.address, token="right") as client:
            assert client.lease_next("w") is None
            with pytest.raises(RemoteRefusalError) as caught:
                client.enqueue(A, "work", 1)
            assert caught.value.reason == "ROLE_MISSING"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"target": "7700"}, "target"),
        ({"target": "jobs.internal:7700", "token": "secret"}, "token"),
        ({"token": "no\nwonder"}, "token"),
        ({"token": ""}, "token"),
        ({"tls": TLS(ca="absent.pem")}, "tls.ca"),
        ({"tls": TLS(certificate="c.pem")}, "tls"),
        ({"tls": True}, "tls"),
    ],
)
def test_what_cannot_be_connected(given: dict[str, Any], field: str) -> None:
    """Bad targets, tokens in the clear to other machines, and files that are none, before anything is sent."""
    with pytest.raises(InvalidArgumentError) as caught:
        connect(given.pop("target", "127.0.0.1:7700"), **given)
    assert caught.value.field == field


def test_limits_are_the_server_s() -> None:
    """What the server's configuration does not take is refused as the library would."""
    with served(QueueConfig(payload_bytes_max=100, durability="os")) as server, connect(server.address) as client:
        with pytest.raises(InvalidArgumentError) as caught:
            client.enqueue(A, "work", b"x" * 200)
        assert caught.value.field == "payload"


def test_tls_both_ways(certificates: Path) -> None:
    """A client that trusts the authority and shows a certificate is served; one that does neither gets no answer."""
    given: dict[str, Any] = {
        "tls__certificate": str(certificates / "server.pem"),
        "tls__key": str(certificates / "server.key"),
        "tls__client_ca": str(certificates / "ca.pem"),
    }
    ours = TLS(ca=certificates / "ca.pem", certificate=certificates / "client.pem", key=certificates / "client.key")
    with served(**given) as server:
        with connect(server.address, tls=ours, token="travels encrypted") as client:
            assert sum(client.counts().values()) == 0
        for other in (None, TLS(ca=certificates / "ca.pem")):
            with (
                connect(server.address, tls=other, wait=False, timeout_s=5) as client,
                pytest.raises(QueueUnavailableError),
            ):
                client.counts()
