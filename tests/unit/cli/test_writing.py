"""`retry`, `cancel`, `discard` and `enqueue`: what they change, what they refuse, and their exit codes."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from telha_jobs import SYSTEM_SCOPE, Receipt
from tests.unit.cli.desk import OTHER_SCOPE, SCOPE, Desk, held_elsewhere

REASONS = ("attempts", "expired", "rejected", "cancelled")


@pytest.mark.parametrize(
    ("command", "start", "done", "end"),
    [
        ("retry", "dead", "retried", ["pending"]),
        ("cancel", "pending", "cancelled", ["dead"]),
        ("discard", "dead", "discarded", []),
    ],
)
def test_a_job_is_changed_by_its_id(desk: Desk, command: str, start: str, done: str, end: list[str]) -> None:
    """The command changes the job, prints its id on stdout, and says so on stderr."""
    [job_id] = desk.bury("rejected") if start == "dead" else desk.add("embed")
    result = desk.run(command, str(job_id))
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{job_id}\n", f"telha: 1 job {done}\n")
    assert desk.states() == end


@pytest.mark.parametrize(("command", "start"), [("retry", "pending"), ("cancel", "dead"), ("discard", "pending")])
def test_a_job_in_the_wrong_state_is_refused(desk: Desk, command: str, start: str) -> None:
    """The refusal is on stderr, the exit code is 1, and the job is as it was."""
    [job_id] = desk.bury("rejected") if start == "dead" else desk.add("embed")
    result = desk.run(command, str(job_id))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"telha: job {job_id} is {start}, this needs ")
    assert desk.states() == [start]


def test_an_id_may_be_abbreviated(desk: Desk) -> None:
    """A beginning that one job has, without dashes and in capitals, names that job."""
    ids = desk.bury("rejected", "rejected")
    assert desk.run("retry", ids[1].hex[:20].upper()).stdout == f"{ids[1]}\n"
    assert desk.states() == ["dead", "pending"]


@pytest.mark.parametrize(("wrong", "code"), [("ffff", 1), ("0", 2), ("xyz", 2)])
def test_one_bad_id_and_nothing_is_changed(desk: Desk, wrong: str, code: int) -> None:
    """An unknown, ambiguous or malformed id among several stops the command before it changes anything."""
    ids = desk.bury("rejected", "rejected")
    result = desk.run("retry", str(ids[0]), wrong, str(ids[1]))
    assert (result.exit_code, result.stdout) == (code, "")
    assert desk.states() == ["dead", "dead"]


def test_of_several_jobs_the_refused_is_reported_and_the_others_are_done(desk: Desk) -> None:
    """One job in the wrong state: the others are changed and printed, it is named, and the exit code is 1."""
    [pending] = desk.add("embed")
    dead = desk.bury("rejected", "cancelled", kind="index")
    result = desk.run("retry", str(dead[0]), str(pending), str(dead[1]))
    assert (result.exit_code, result.stdout) == (1, f"{dead[0]}\n{dead[1]}\n")
    assert result.stderr.splitlines()[0].startswith(f"telha: job {pending} is pending, this needs dead")
    assert result.stderr.splitlines()[1] == "telha: 2 of 3 jobs retried"
    assert desk.states() == ["pending"] * 3


def test_an_id_given_twice_counts_once(desk: Desk) -> None:
    """The same job named twice is changed once."""
    [job_id] = desk.bury("rejected")
    result = desk.run("retry", str(job_id), job_id.hex)
    assert (result.exit_code, result.stdout) == (0, f"{job_id}\n")


def test_a_quarantined_job_is_refused(desk: Desk) -> None:
    """A job in quarantine cannot be acted on: exit code 1."""
    [bad] = desk.add("spoiled")
    desk.quarantine(bad)
    result = desk.run("cancel", str(bad))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot be read" in result.stderr


def test_retry_all_leaves_the_cancelled_out(desk: Desk) -> None:
    """--all retries jobs dead by attempts, expiry and rejection, and none that were cancelled."""
    ids = desk.bury(*REASONS)
    result = desk.run("retry", "--all", "--yes")
    assert result.stdout.split() == [str(job_id) for job_id in ids[:3]]
    assert desk.states() == ["pending", "pending", "pending", "dead"]


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (("--reason", "cancelled"), ["cancelled"]),
        (("--reason", "expired", "--reason", "attempts"), ["attempts", "expired"]),
        (("--reason", "cancelled", "--reason", "rejected"), ["rejected", "cancelled"]),
        (("--limit", "2"), ["attempts", "expired"]),
        (("--limit", "2", "--reason", "rejected"), ["rejected"]),
    ],
    ids=str,
)
def test_retry_all_takes_reasons_and_a_limit(desk: Desk, arguments: tuple[str, ...], kept: list[str]) -> None:
    """--reason names the deaths to retry, cancellation among them; --limit takes the oldest."""
    ids = dict(zip(REASONS, desk.bury(*REASONS), strict=True))
    result = desk.run("retry", "--all", "--yes", *arguments)
    assert result.stdout.split() == [str(ids[reason]) for reason in kept]


def test_retry_all_takes_scope_and_kind(desk: Desk) -> None:
    """--scope and --kind narrow --all down."""
    [wanted] = desk.bury("rejected", kind="ingest:pdf")
    desk.bury("rejected", kind="ingest:pdf", scope=OTHER_SCOPE)
    desk.bury("rejected", kind="embed")
    result = desk.run("retry", "--all", "--yes", "--scope", str(SCOPE), "--kind", "ingest:*")
    assert result.stdout == f"{wanted}\n"


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "perhaps\n"], ids=["no", "enter", "nobody", "neither"])
def test_without_confirmation_nothing_is_changed(desk: Desk, answer: str) -> None:
    """Anything but yes, or nobody to ask, changes nothing: exit code 1, stdout empty."""
    desk.bury("rejected", "expired")
    result = desk.run("retry", "--all", given=answer)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Retry 2 jobs dead by attempts, expired, rejected?" in result.stderr
    assert "nothing was changed" in result.stderr
    assert desk.states() == ["dead", "dead"]


def test_with_confirmation_the_jobs_are_retried(desk: Desk) -> None:
    """A yes is enough, and stdout holds the ids alone."""
    ids = desk.bury("rejected", "expired")
    result = desk.run("retry", "--all", given="y\n")
    assert (result.exit_code, result.stdout.split()) == (0, [str(job_id) for job_id in ids])
    assert result.stderr.endswith("telha: 2 jobs retried\n")


def test_retry_all_of_nothing_asks_nothing(desk: Desk) -> None:
    """When no dead job matches there is no question: exit code 0."""
    desk.bury("cancelled")
    result = desk.run("retry", "--all")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "telha: no dead job matches: nothing to retry\n"


@pytest.mark.parametrize(
    "arguments",
    [("retry",), ("retry", "--all", "00"), ("retry", "00", "--kind", "x"), ("cancel",), ("discard",)],
    ids=str,
)
def test_ids_and_all_exclude_each_other(desk: Desk, arguments: tuple[str, ...]) -> None:
    """No jobs at all, ids with --all, and filters without --all are usage errors."""
    desk.bury("rejected")
    assert desk.run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [("retry", "0"), ("retry", "--all", "--yes"), ("cancel", "0"), ("discard", "0"), ("enqueue", "system:x")],
    ids=str,
)
def test_writing_beside_another_process_is_refused(desk: Desk, arguments: tuple[str, ...]) -> None:
    """While another process has the queue open, writing is refused with the owner and the remedy: exit code 1."""
    desk.bury("rejected")
    with held_elsewhere(desk.directory) as process:
        result = desk.run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"is open elsewhere (by process {process}): close that queue first" in result.stderr
    assert desk.states() == ["dead", "pending"]


@pytest.mark.parametrize("arguments", [("retry", "0"), ("retry", "--all"), ("cancel", "0"), ("discard", "0")], ids=str)
def test_where_no_queue_is_nothing_is_made(desk: Desk, arguments: tuple[str, ...]) -> None:
    """Commands on existing jobs refuse a path without queue and do not make one."""
    result = desk.run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert not desk.directory.exists()


def test_enqueue_adds_a_job_as_told(desk: Desk) -> None:
    """Every option reaches the job, and stdout is its id alone."""
    desk.add("first")
    result = desk.run(
        *("enqueue", "embed", '{"n": [1, 2.5, null], "blob": {"$bytes": "AA=="}}', "--scope", str(SCOPE)),
        *("--priority", "5", "--key", "doc-7", "--run-at", "2030-01-31T08:00:00Z", "--max-attempts", "9"),
        *("--header", "trace=1=2", "--header", "tenant=a", "--payload-version", "3"),
    )
    assert (result.exit_code, result.stderr) == (0, "")
    with desk.queue() as queue:
        job = queue.list_jobs(kind="embed").jobs[0]
    assert result.stdout == f"{job.job_id}\n"
    assert job.payload == {"n": [1, 2.5, None], "blob": b"\0"}
    assert (job.scope, job.priority, job.idempotency_key, job.run_at_ms) == (SCOPE, 5, "doc-7", 1_896_076_800_000)
    assert (job.max_attempts, job.headers, job.payload_version) == (9, {"trace": "1=2", "tenant": "a"}, 3)


def test_enqueue_delays(desk: Desk) -> None:
    """--delay counts from the queue's now."""
    desk.add("first")
    desk.run("enqueue", "embed", "--scope", str(SCOPE), "--delay", "1h30m")
    with desk.queue() as queue:
        job = queue.list_jobs(kind="embed").jobs[0]
    assert job.run_at_ms == job.created_at_ms + 5_400_000


def test_enqueue_reads_the_payload_from_stdin(desk: Desk) -> None:
    """A payload of '-' is what stdin holds."""
    desk.add("first")
    assert desk.run("enqueue", "embed", "-", "--scope", str(SCOPE), given='{"title": "漢字"}').exit_code == 0
    with desk.queue() as queue:
        assert queue.list_jobs(kind="embed").jobs[0].payload == {"title": "漢字"}


def test_enqueue_without_payload_carries_none(desk: Desk) -> None:
    """The payload is null unless given."""
    desk.run("enqueue", "system:compact")
    with desk.queue() as queue:
        assert [(job.scope, job.payload) for job in queue.list_jobs().jobs] == [(SYSTEM_SCOPE, None)]


def test_enqueue_with_a_known_key_names_the_job(desk: Desk) -> None:
    """The same key and work again: the same id, exit code 0, and a note that nothing was added."""
    arguments = ("enqueue", "embed", "1", "--scope", str(SCOPE), "--key", "k")
    first, second = desk.run(*arguments), desk.run(*arguments)
    assert (second.exit_code, second.stdout) == (0, first.stdout)
    assert second.stderr == "telha: the key names this job already (pending): nothing was added\n"
    assert desk.states() == ["pending"]


def test_enqueue_with_a_taken_key_is_refused(desk: Desk) -> None:
    """The same key for other work is refused: exit code 1, nothing added."""
    desk.run("enqueue", "embed", "1", "--scope", str(SCOPE), "--key", "k")
    result = desk.run("enqueue", "embed", "2", "--scope", str(SCOPE), "--key", "k")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "use another key" in result.stderr
    assert desk.states() == ["pending"]


def test_enqueue_json_is_the_receipt(desk: Desk) -> None:
    """--json prints an object named as the fields of Receipt."""
    told = json.loads(desk.run("enqueue", "system:x", "--json").stdout)
    assert list(told) == [field.name for field in fields(Receipt)]
    assert (told["created"], told["state"]) == (True, "pending")


def test_enqueue_makes_a_queue_and_says_so(desk: Desk) -> None:
    """Where nothing is, the queue is made, with a note on stderr."""
    result = desk.run("enqueue", "system:x")
    assert (result.exit_code, result.stderr) == (0, f"telha: there was no queue in {desk.directory}: made one\n")
    assert desk.states() == ["pending"]


def test_enqueue_makes_no_queue_among_other_files(desk: Desk) -> None:
    """A directory that holds other things and no queue is refused and left alone."""
    desk.directory.mkdir()
    (desk.directory / "letter.txt").write_text("hello")
    result = desk.run("enqueue", "system:x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert [file.name for file in desk.directory.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("embed",),
        ("system:x", "--scope", str(SCOPE)),
        ("bad kind", "--scope", "nil"),
        ("embed", "--scope", "nobody"),
        ("system:x", "{"),
        ("system:x", "NaN"),
        ("system:x", '{"a": 1, "a": 2}'),
        ("system:x", str(2**64)),
        ("system:x", '"\\ud800"'),
        ("system:x", "[" * 5_000 + "]" * 5_000),
        ("system:x", "-"),
        ("system:x", "--priority", "256"),
        ("system:x", "--key", ""),
        ("system:x", "--delay", "5"),
        ("system:x", "--run-at", "2030-01-31T08:00:00"),
        ("system:x", "--run-at", "1969-12-31T23:59:59Z"),
        ("system:x", "--delay", "5s", "--run-at", "5"),
        ("system:x", "--delay", "999999d"),
        ("system:x", "--max-attempts", "0"),
        ("system:x", "--header", "novalue"),
        ("system:x", "--header", "a=1", "--header", "a=2"),
        ("system:x", "--payload-version", "-1"),
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_enqueue_refuses_bad_arguments_before_anything_is_made(desk: Desk, arguments: tuple[str, ...]) -> None:
    """A bad argument is exit code 2 with a reason; no queue is made for it."""
    result = desk.run("enqueue", *arguments, given=b"\xff")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    assert not desk.directory.exists()


def test_data_may_stand_before_and_after_the_command(desk: Desk, tmp_path: Path) -> None:
    """--data of the command wins over the group's, and that over TELHA_DATA."""
    desk.add("embed")
    other = str(tmp_path / "missing")
    codes = [
        desk.run("counts").exit_code,
        desk.run("--data", other, "counts").exit_code,
        desk.run("--data", other, "counts", "--data", str(desk.directory)).exit_code,
        desk.run("counts", "--data", other).exit_code,
    ]
    assert codes == [0, 1, 0, 1]
