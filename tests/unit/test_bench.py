"""The bench's own promises: exact counts, a guard that rings, a raw side that writes the same, a fresh document."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts._bench import __main__ as command
from scripts._bench import guard, report
from scripts._bench.amounts import MIB, PAYLOAD_LIMIT, excess
from scripts._bench.cycle import singles
from scripts._bench.measure import Figure, Limit, single
from scripts._bench.place import opened
from scripts._bench.probe import COUNTED, UNCOUNTED, Amounts, Bare, Tally, Tape, counting, recording
from scripts._bench.workload import CHURN, Counts, measure
from telha_jobs import JobQueue, LeaseRef, Receipt
from telha_jobs.store.database import Database
from telha_jobs.store.port import Delete, Family, Put

pytestmark = pytest.mark.xdist_group("bench")  # the workload is done once for all of them


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    """The guard's workload, done once."""
    return measure(tmp_path_factory.mktemp("bench"))


def test_no_count_grew(counts: Counts) -> None:
    """No operation asks the storage for over 5 % more than when the counts were recorded (scripts/bench --record)."""
    assert list(guard.grown(guard.recorded(), guard.numbers(counts))) == []


def test_the_guard_sees_a_read_that_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A completion that looks at its job once more is reported, and nothing that does not complete."""
    complete: Callable[..., list[Receipt]] = JobQueue.complete

    def looking(queue: JobQueue, lease: LeaseRef, *arguments: object, **named: object) -> list[Receipt]:
        queue.get(lease.job_id)
        return complete(queue, lease, *arguments, **named)

    monkeypatch.setattr(JobQueue, "complete", looking)
    found = [line for line in guard.grown(guard.recorded(), guard.numbers(measure(tmp_path))) if "gets grew" in line]
    assert {line.partition(":")[0] for line in found} >= {
        "complete",
        "complete, repeated",
        "complete, with a follow-up",
    }
    assert not [line for line in found if line.startswith(("enqueue", "lease", "extend", "fail", "reap"))]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a": {"times": 2, "gets": 100}}, {"a": {"times": 2, "gets": 105}}, []),
        ({"a": {"times": 2, "gets": 100}}, {"a": {"times": 2}}, []),
        (
            {"a": {"times": 2, "gets": 100}},
            {"a": {"times": 2, "gets": 106}},
            ["a: gets grew from 50 to 53 an operation"],
        ),
        ({"a": {"times": 1}}, {"a": {"times": 1, "graves": 1}}, ["a: graves grew from 0 to 1 an operation"]),
        ({"a": {"times": 2}}, {"a": {"times": 3}}, ["a: measured over 3 operations, recorded over 2"]),
        ({"a": {"times": 1}}, {}, ["a: recorded, but no longer measured"]),
        ({}, {"a": {"times": 1}}, ["a: measured, but not recorded"]),
    ],
)
def test_growth_past_a_twentieth_is_reported(before: guard.Numbers, now: guard.Numbers, expected: list[str]) -> None:
    """A count may fall or grow by 5 %; more is reported, and so is an operation that only one side has."""
    assert expected == list(guard.grown(before, now))


def test_the_guard_command_fails_on_growth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--guard` answers 1 and says how to record when a count grew."""
    monkeypatch.setattr(guard, "recorded", lambda: {"enqueue": {"times": 1, "gets": 1}})
    monkeypatch.setattr(guard, "measured", lambda: {"enqueue": {"times": 1, "gets": 2}})
    code = command.main(["--guard"])
    assert code == 1
    assert "--record" in capsys.readouterr().out


def test_one_sync_for_an_answer_that_commits(counts: Counts) -> None:
    """At "sync" a single thread pays exactly one sync for each answer that commits, and none for one that does not."""
    calls = {name: amounts for name, amounts in counts.amounts.items() if not name.startswith(("reap", str(CHURN)))}
    assert {name: amounts.batches for name, amounts in calls.items() if amounts.batches != amounts.syncs} == {}


def test_a_lease_after_many_others(counts: Counts) -> None:
    """F19: a lease asks the storage for the same, whether or not thousands of jobs of its group came and went."""
    prefix = f"{CHURN} jobs gone: "
    churned = {name.removeprefix(prefix): one for name, one in counts.amounts.items() if name.startswith(prefix)}
    assert set(excess(churned).values()) == {0}


def test_a_large_payload_is_written_once(counts: Counts) -> None:
    """1 MiB through an enqueue, three leases, ten heartbeats and a completion writes less than 1.5 MiB to the log."""
    [amounts] = [one for name, one in counts.amounts.items() if name.startswith("1 MiB payload")]
    assert 1 <= amounts.batch_bytes / MIB < PAYLOAD_LIMIT.value


def test_every_call_of_the_storage_is_counted() -> None:
    """The counter knows every public call of the storage: a new one cannot pass by it."""
    public = {name for name in vars(Database) if not name.startswith("_")}
    assert public == COUNTED | UNCOUNTED


def test_amounts_are_exact(tmp_path: Path) -> None:
    """Reads, scans, the deleted keys they pass, and the contents of a batch are counted one by one."""
    tally = Tally()
    database = counting(tally).open(tmp_path)
    with tally.counted() as written:
        database.write(database.batch([Put(Family.READY, key, b"") for key in (b"a", b"b", b"c", b"d")]))
        database.write(database.batch([Delete(Family.READY, key) for key in (b"a", b"b", b"d")]))
        database.flush()
    with tally.counted() as read:
        database.get(Family.READY, b"c")
        database.iterate(Family.READY, b"", b"z", 1)
        database.iterate(Family.READY, b"b", b"z", 2)
        database.iterate(Family.TIMERS, b"", b"z", 1)
    database.close()
    assert Amounts(batches=2, puts=4, deletes=3, batch_bytes=written.batch_bytes, syncs=1) == written
    assert Amounts(gets=1, seeks=3, keys=2, graves=2 + 2) == read


def test_raw_writes_what_the_queue_wrote(tmp_path: Path) -> None:
    """A replayed tape leaves the database that the queue left, the mark of its end aside, with as many batches."""
    tape = Tape()
    (tmp_path / "bare").mkdir()
    bare = Bare.open(tmp_path / "bare")
    queue = opened(tmp_path / "queue", database=recording(tape))
    for phase in singles(queue, 20):
        phase()
    queue.close()
    bare.play(bare.reel(tape))
    owned = Bare.open(tmp_path / "queue")
    expected = {family: owned.iterate(family, b"", None, 1_000) for family in Family}
    actual = {family: bare.iterate(family, b"", None, 1_000) for family in Family}
    owned.close()
    bare.close()
    assert expected == actual


def test_the_document_has_the_recorded_counts() -> None:
    """The table of counts in docs/performance.md is the recorded one (scripts/bench --record writes both)."""
    document = report.DOCUMENT.read_text("utf-8")
    assert report.filled(document, {"counts": report.counts_section(guard.recorded())}) == document


def test_a_section_is_replaced_alone() -> None:
    """Filling one section leaves the rest of the document; one that is not there is refused."""
    document = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb\n"
    assert report.filled(document, {"x": "new"}) == "a\n<!-- bench:x -->\nnew\n<!-- /bench:x -->\nb\n"
    with pytest.raises(ValueError, match="no section <!-- bench:y -->"):
        report.filled(document, {"y": "new"})


def test_the_document_has_a_place_for_every_case() -> None:
    """Each case has its section in docs/performance.md."""
    names = [case.name for group in command.cases(long_jobs=20_000) for case in group]
    report.filled(report.DOCUMENT.read_text("utf-8"), dict.fromkeys(["machine", "counts", *names], "x"))


def test_the_service_is_measured_over_the_wire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--service` has all its work done by server and client processes, and a figure for each of its limits."""
    command.main(["--service", "--quick", "--rounds", "1", "--json", "--dir", str(tmp_path)])
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert {
        "Submit / echo (by CPU: of both ends)",
        "PollJobs and SubmitBatch, 8 streams (by CPU: a second of the server's)",
        "PollJobs and SubmitBatch / echo (by CPU: of both ends)",
        "enqueue to delivery / a round trip",
        "CPU of the polls, of a core",
    } == {one["name"] for one in figures if one["limit"] is not None}
    assert [one["name"] for one in figures if one["unit"] in {"/s", "jobs/s", "x"} and one["median"] <= 0] == []


@pytest.mark.parametrize(("value", "code"), [(2.0, 0), (2.01, 1)])
def test_a_missed_limit_is_the_verdict(value: float, code: int) -> None:
    """A median at its limit holds; one past it makes the run fail and is named."""
    figures = [single("c", "f", value, "s", limit=Limit(side="at most", value=2)), single("c", "g", 9, "s")]
    found, line = report.verdict(figures, by_cpu=False)
    assert code == found
    assert ("c: f" in line) == bool(code)


def test_limits_can_be_held_to_cpu_time() -> None:
    """With --cpu the CPU median decides, where there is one."""
    figure = Figure(case="c", name="f", unit="x", wall=[9.0], cpu=[1.0], limit=Limit(side="at most", value=2))
    assert (figure.holds(by_cpu=False), figure.holds(by_cpu=True)) == (False, True)


@pytest.mark.parametrize(
    "words",
    [["--only", "nothing"], ["--guard", "--json"], ["--guard", "--record"], ["--rounds", "0"], ["--quick", "--plot"]],
)
def test_a_senseless_command_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong arguments end the command with 2 before anything is measured."""
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err
