"""scripts/demo: one short run with its two kills, and the proof shown to ring."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scripts._demo import __main__ as demo
from scripts._demo import history, inbox, lives, proof
from scripts._demo.documents import Areas
from scripts._demo.embedding import DIMENSIONS
from telha_jobs import Job, JobQueue, State

# One run is shared by the module, so its tests stay in one process.
pytestmark = pytest.mark.xdist_group("demo")

PACKAGES = ("alder", "birch", "cedar-1.0.dist-info", "elm", "fir")
DOCUMENTS = 200
SPOILED = "alder/spoiled.toml"
KEPT_PROMISES = [
    "nothing lost: one job for each document",
    "every readable document completed once",
    "one embedding each, enqueued with the completion",
    "unreadable documents are dead, every attempt told",
    "no generation granted twice",
    "what the kills interrupted expired and came back",
    "a new incarnation after each kill",
    "each log leads to its job's state",
    "check() and counts() agree with the rows",
]


def write_documents(root: Path, count: int) -> None:
    """Documents of several packages and formats; one of them is broken, as real ones may be."""
    writers: list[tuple[str, Callable[[int], str]]] = [
        ("md", lambda n: f"# Chapter {n}\n\n" + f"word{'abcdefgh'[n % 8]} and more words of chapter {n}. " * 200),
        ("json", lambda n: json.dumps({"number": n, "names": ["alder", "birch", str(n)] * 500})),
        ("csv", lambda n: "\n".join(f"row {row},{n},tree" for row in range(500))),
        ("py", lambda n: "\n".join(f'def grow_{n}_{f}():\n    """Grow tree {f}."""\n' for f in range(300))),
    ]
    for number in range(count):
        suffix, write = writers[number % len(writers)]
        folder = root / PACKAGES[number % len(PACKAGES)]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"document-{number}.{suffix}").write_text(write(number), "utf-8")
    (root / SPOILED).write_text("[table\n", "utf-8")


class Finished:
    """A run that has ended: what it printed and left behind."""

    def __init__(self, root: Path) -> None:
        self.documents, self.out = root / "documents", root / "out"
        write_documents(self.documents, DOCUMENTS)
        self.printed = io.StringIO()
        arguments = ["--documents", str(self.documents), "--out", str(self.out), "--seed", "1"]
        self.code = demo.main(arguments, Console(file=self.printed, width=120))
        self.report: dict[str, Any] = json.loads((self.out / "report.json").read_text("utf-8"))
        areas = Areas(documents=self.documents, inbox=self.out / "inbox", out=self.out, limit=10_000, seed=1)
        kills = tuple(lives.Kill(**kill) for kill in self.report["run"]["kills"])
        with JobQueue.open(self.out / "data") as queue:
            self.evidence = proof.gather(queue, proof.read_again(areas, areas.walk()), kills)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run over a small directory."""
    return Finished(tmp_path_factory.mktemp("demo"))


def broken(evidence: proof.Evidence) -> set[str]:
    """The promises that the evidence contradicts."""
    return {claim.promise for claim in proof.claims(evidence) if claim.problems}


def test_a_run_with_two_kills_keeps_every_promise(finished: Finished) -> None:
    """Killed twice in the middle, the run ends with exit code 0 and the verdict in its last line."""
    assert (
        finished.code,
        finished.printed.getvalue().splitlines()[-1].partition(" (")[0],
    ) == (0, "demo: every promise held"), finished.printed.getvalue()
    assert [claim.promise for claim in proof.claims(finished.evidence) if not claim.problems] == KEPT_PROMISES


def test_both_kills_met_work_in_flight(finished: Finished) -> None:
    """Each kill met at least the leases that were seen from outside, and the next life found all of them."""
    kills = finished.evidence.kills
    assert len(kills) == 2
    for kill, met in zip(kills, finished.evidence.met, strict=True):
        assert 1 <= kill.in_flight <= met <= kill.found


def test_only_what_cannot_be_read_is_dead(finished: Finished) -> None:
    """The three poisoned documents and the one that was broken before are dead after four attempts, nothing else is."""
    dead = [job for job in finished.evidence.jobs if job.state is State.DEAD]
    expected = {"notes/roofing.md", "notes/order.json", "notes/minutes.txt", SPOILED}
    assert expected == {job.payload["path"] for job in dead}
    assert [job.attempts for job in dead] == [4] * 4
    assert {s: n for s, n in finished.evidence.counts.items() if n} == {State.COMPLETED: 2 * DOCUMENTS, State.DEAD: 4}


def test_the_result_stays(finished: Finished) -> None:
    """Database, picture, report and the documents of the demo's own are left in the output directory."""
    left = {path.name for path in finished.out.iterdir()}
    assert {"data", "inbox", "queue.log", "report.json", "states.png", inbox.MARKER} == left
    assert (finished.out / "states.png").read_bytes()[:4] == b"\x89PNG"


Tampering = Callable[[proof.Evidence], proof.Evidence]


def on_a_job(state: State, kind: str, change: Callable[[Job], Job]) -> Tampering:
    """Evidence in which one job of that state and family of kinds is changed."""

    def tamper(evidence: proof.Evidence) -> proof.Evidence:
        place = next(n for n, job in enumerate(evidence.jobs) if job.state is state and job.kind.startswith(kind))
        jobs = list(evidence.jobs)
        jobs[place] = change(jobs[place])
        return replace(evidence, jobs=tuple(jobs))

    return tamper


def without_a(kind: str) -> Tampering:
    """Evidence in which the row of one completed job is gone."""

    def tamper(evidence: proof.Evidence) -> proof.Evidence:
        gone = next(job for job in evidence.jobs if job.state is State.COMPLETED and job.kind.startswith(kind))
        return replace(evidence, jobs=tuple(job for job in evidence.jobs if job is not gone))

    return tamper


def leased_twice(job: Job) -> Job:
    """A history in which the job was leased, reaped and leased again under one generation."""
    lease, end = job.events[-2], job.events[-1]
    due = {"reason": "expired", "generation": job.generation, "attempts": 1, "due": lease.at_ms}
    return replace(job, events=(*job.events[:-1], replace(end, transition="reaped", detail=due), lease, end))


def completed_again(job: Job) -> Job:
    """A history in which the job was completed, and later once more."""
    again = replace(job.events[-2], detail={**job.events[-2].detail, "generation": job.generation + 1})
    return replace(job, generation=job.generation + 1, events=(*job.events, again, job.events[-1]))


def with_attempts_at_once(job: Job) -> Job:
    """A history in which a failed job never waited."""
    events = (replace(e, detail={**e.detail, "due": e.at_ms}) if "due" in e.detail else e for e in job.events)
    return replace(job, events=tuple(events))


def with_generations(change: Callable[[int], int]) -> Tampering:
    """Evidence in which every generation is another."""

    def other(job: Job) -> Job:
        events = (
            replace(e, detail={**e.detail, "generation": change(e.detail["generation"])})
            if "generation" in e.detail
            else e
            for e in job.events
        )
        return replace(job, generation=change(job.generation), events=tuple(events))

    return lambda evidence: replace(evidence, jobs=tuple(map(other, evidence.jobs)))


TAMPERED: list[tuple[str, Tampering, str]] = [
    ("a document lost", without_a("ingest:"), KEPT_PROMISES[0]),
    ("a document twice", lambda e: replace(e, jobs=(*e.jobs, e.jobs[0])), KEPT_PROMISES[0]),
    (
        "a job left over",
        on_a_job(State.COMPLETED, "embed", lambda job: replace(job, state=State.PENDING)),
        KEPT_PROMISES[0],
    ),
    ("completed twice", on_a_job(State.COMPLETED, "ingest:", completed_again), KEPT_PROMISES[1]),
    (
        "another result",
        on_a_job(State.COMPLETED, "ingest:", lambda job: replace(job, result={"characters": 1})),
        KEPT_PROMISES[1],
    ),
    ("a follow-up lost", without_a("embed"), KEPT_PROMISES[2]),
    (
        "another vector",
        on_a_job(State.COMPLETED, "embed", lambda job: replace(job, result={"vector": [0.0] * DIMENSIONS})),
        KEPT_PROMISES[2],
    ),
    (
        "a follow-up made later",
        on_a_job(State.COMPLETED, "embed", lambda job: replace(job, created_at_ms=job.created_at_ms + 1)),
        KEPT_PROMISES[2],
    ),
    ("dead too early", on_a_job(State.DEAD, "ingest:", lambda job: replace(job, attempts=3)), KEPT_PROMISES[3]),
    ("no back-off", on_a_job(State.DEAD, "ingest:", with_attempts_at_once), KEPT_PROMISES[3]),
    (
        "an attempt untold",
        on_a_job(State.DEAD, "ingest:", lambda job: replace(job, events=(job.events[0], *job.events[3:]))),
        KEPT_PROMISES[3],
    ),
    ("a generation twice", on_a_job(State.COMPLETED, "ingest:", leased_twice), KEPT_PROMISES[4]),
    ("no kill", lambda e: replace(e, kills=()), KEPT_PROMISES[5]),
    (
        "a lease forgotten",
        lambda e: replace(e, kills=(replace(e.kills[0], found=e.kills[0].found + 1), e.kills[1])),
        KEPT_PROMISES[5],
    ),
    ("one incarnation for all", with_generations(lambda generation: generation & 0xFFFF_FFFF), KEPT_PROMISES[6]),
    (
        "a log cut",
        on_a_job(State.COMPLETED, "embed", lambda job: replace(job, events=job.events[:-1])),
        KEPT_PROMISES[7],
    ),
    (
        "a move that is none",
        on_a_job(State.COMPLETED, "embed", lambda job: replace(job, events=(job.events[0], job.events[-1]))),
        KEPT_PROMISES[7],
    ),
    ("a row unseen", lambda e: replace(e, check=replace(e.check, rows=e.check.rows + 1)), KEPT_PROMISES[8]),
    ("a problem found", lambda e: replace(e, check=replace(e.check, problems=("a stray timer",))), KEPT_PROMISES[8]),
    (
        "counts astray",
        lambda e: replace(e, counts={**e.counts, State.LEASED: 1}),
        KEPT_PROMISES[8],
    ),
]


@pytest.mark.parametrize(("tamper", "promise"), [case[1:] for case in TAMPERED], ids=[case[0] for case in TAMPERED])
def test_a_tampered_history_breaks_its_promise(finished: Finished, tamper: Tampering, promise: str) -> None:
    """Rows that contradict a promise are found by its claim."""
    assert {promise} == broken(tamper(finished.evidence)) & {promise}


def test_a_killed_lease_that_was_answered_is_found(finished: Finished) -> None:
    """A job that was in the dead process's hands and is nevertheless completed under that lease breaks the promise."""
    [grant, *_] = history.held_at(finished.evidence.jobs, 0, finished.evidence.kills[0].reopened_ms)

    def answered(job: Job) -> Job:
        if job.job_id != grant.job.job_id:
            return job
        place = next(n for n, event in enumerate(job.events) if event is grant.end)
        ended = replace(job.events[place], transition="completed", detail={"generation": grant.generation})
        return replace(job, events=(*job.events[:place], ended))

    tampered = replace(finished.evidence, jobs=tuple(map(answered, finished.evidence.jobs)))
    assert {KEPT_PROMISES[5]} == broken(tampered) & {KEPT_PROMISES[5]}


def test_samples_end_in_the_final_counts(finished: Finished) -> None:
    """The states over time, read from the logs, add up to all jobs and end in what the rows say."""
    jobs = finished.evidence.jobs
    times = [event.at_ms for job in jobs for event in job.events]
    samples = history.sampled(jobs, range(min(times), max(times) + 20, 10))
    assert dict(finished.evidence.counts) == {state: counts[-1] for state, counts in samples.counts.items()}
    totals = [sum(counts) for counts in zip(*samples.counts.values(), strict=True)]
    assert totals == sorted(totals)


def test_a_picture_can_be_drawn_without_kills(finished: Finished, tmp_path: Path) -> None:
    """The picture needs no kill, and its format follows the suffix."""
    from scripts._demo import picture  # matplotlib takes a second, in each process that collects these tests

    picture.draw(finished.evidence.jobs, (), (), tmp_path / "states.svg")
    assert "<svg" in (tmp_path / "states.svg").read_text("utf-8")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A demo in a process of its own, at work: it has said how much is done."""
    write_documents(tmp_path / "documents", DOCUMENTS)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "scripts._demo", "--documents", str(tmp_path / "documents"), "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(lives.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background has interrupts ignored, and so would the demo.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  it starts no thread
    )
    with process:
        if process.stdout is not None:
            next(line for line in process.stdout if "jobs done" in line)
        yield process, out
        process.kill()


def test_an_interrupt_ends_the_queue_process_too(running: tuple[subprocess.Popen[str], Path]) -> None:
    """After an interrupt the demo says so, exits with 130, and nobody owns the database any more."""
    process, out = running
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    with JobQueue.open(out / "data") as queue:
        assert (process.returncode, bool(queue.check())) == (130, True)
    assert "demo: interrupted" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--limit", "19"], "at least 20"),
        (["--documents", "no-such-directory"], "is no directory"),
        (["--no-such-option"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that cannot be are refused with exit code 2 and the reason."""
    with pytest.raises(SystemExit) as exit_info:
        demo.main(arguments, Console(file=io.StringIO()))
    assert exit_info.value.code == 2
    assert said in capsys.readouterr().err


def test_too_few_documents_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory with nothing to be killed in the middle of exits with 2."""
    write_documents(tmp_path / "few", 3)
    code = demo.main(
        ["--documents", str(tmp_path / "few"), "--out", str(tmp_path / "out")], Console(file=io.StringIO())
    )
    assert (code, "holds 4 documents" in capsys.readouterr().err) == (2, True)


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """An output directory that holds anything and was not made by a demo is refused and untouched."""
    (tmp_path / "data").mkdir()
    with pytest.raises(inbox.NotOursError, match="was not made by scripts/demo"):
        inbox.prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_second_demo_in_one_directory_is_refused(tmp_path: Path) -> None:
    """While a demo holds its output directory another one is refused; afterwards the directory is made anew."""
    with inbox.prepare(tmp_path / "out"), pytest.raises(inbox.NotOursError, match="another demo is at work"):
        inbox.prepare(tmp_path / "out")
    (tmp_path / "out" / "data").mkdir()
    inbox.prepare(tmp_path / "out").close()
    assert not (tmp_path / "out" / "data").exists()


class Silent:
    """A `lives.Watcher` that does nothing."""

    def status(self, done: int, counts: Mapping[str, int]) -> None: ...
    def killed(self, number: int, done: int) -> None: ...
    def reopened(self, number: int, kill: lives.Kill) -> None: ...


def test_a_queue_process_that_ends_by_itself_is_no_success(tmp_path: Path) -> None:
    """A process that cannot open its queue ends the run with an error, and what it said is in the log."""
    (tmp_path / "data").write_text("no database", "utf-8")
    areas = Areas(documents=tmp_path, inbox=tmp_path / "inbox", out=tmp_path / "out", limit=10, seed=0)
    with pytest.raises(lives.DemoFailedError, match="ended by itself"):
        lives.drive(tmp_path / "data", areas, tmp_path / "log", [], Silent())
    assert "QueueUnavailableError" in (tmp_path / "log").read_text("utf-8")
