"""`ls`, `show`, `counts` and `check`: what they print, where, and their exit codes."""

import json
from collections.abc import Callable
from dataclasses import fields

import pytest

from telha_jobs import SYSTEM_SCOPE, CheckReport, Job, NewJob, QueueConfig, State
from tests.unit.cli.desk import OTHER_SCOPE, SCOPE, START_MS, Desk, held_elsewhere, words

HOSTILE = "\x1b[2J\x07bell\u202eback\x9b31m\nnext"


def test_json_has_exactly_the_fields_of_job(desk: Desk) -> None:
    """Each line of `ls --json`, and `show --json`, is an object whose keys are the fields of Job, in their order."""
    ids = desk.add("embed", "embed")
    listed = [json.loads(line) for line in desk.run("ls", "--json").stdout.splitlines()]
    shown = json.loads(desk.run("show", str(ids[1]), "--json").stdout)
    assert [list(one) for one in (*listed, shown)] == [[field.name for field in fields(Job)]] * 3
    assert shown == listed[1]


def test_json_values_are_those_of_the_job(desk: Desk) -> None:
    """UUIDs are text, the state is its value, bytes have their form, and events are objects."""
    with desk.queue() as queue:
        job_id = queue.enqueue(SCOPE, "embed", {"blob": b"\xff"}, headers={"a": "b"}, idempotency_key="k").job_id
    shown = json.loads(desk.run("show", str(job_id), "--json").stdout)
    told = {name: shown[name] for name in ("job_id", "scope", "state", "payload", "headers", "due_ms", "events")}
    assert told == {
        "job_id": str(job_id),
        "scope": str(SCOPE),
        "state": "pending",
        "payload": {"blob": {"$bytes": "/w=="}},
        "headers": {"a": "b"},
        "due_ms": START_MS,
        "events": [{"at_ms": START_MS, "transition": "enqueued", "detail": {"due": START_MS}}],
    }


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ((), ["ingest:pdf", "embed", "system:compact", "index"]),
        (("--state", "dead"), ["index"]),
        (("--scope", str(SCOPE)), ["ingest:pdf", "embed", "index"]),
        (("--scope", "nil"), ["system:compact"]),
        (("--scope", str(OTHER_SCOPE)), []),
        (("--kind", "embed"), ["embed"]),
        (("--kind", "ingest:*"), ["ingest:pdf"]),
        (("--limit", "2"), ["ingest:pdf", "embed"]),
        (("--limit", "0"), ["ingest:pdf", "embed", "system:compact", "index"]),
    ],
    ids=str,
)
def test_ls_lists_what_the_filters_leave(desk: Desk, arguments: tuple[str, ...], kinds: list[str]) -> None:
    """The table and the JSON lines hold the jobs that the filters leave, in id order."""
    desk.add("ingest:pdf", "embed")
    desk.add("system:compact", scope=SYSTEM_SCOPE)
    desk.bury("cancelled", kind="index")
    lines = desk.run("ls", "--json", *arguments).stdout.splitlines()
    rows = desk.run("ls", *arguments).stdout.splitlines()[1:]
    assert [json.loads(line)["kind"] for line in lines] == kinds
    assert [words(row)[2] for row in rows] == kinds


def test_ls_in_a_pipe_shortens_nothing(desk: Desk) -> None:
    """Without a terminal every id, scope and kind stands in full, without colours."""
    kind = "ingest:" + "k" * 121
    [job_id] = desk.add(kind)
    header, row = desk.run("ls").stdout.splitlines()
    assert words(header) == ["ID", "STATE", "KIND", "SCOPE", "PRI", "ATT", "TIME"]
    assert words(row)[:6] == [str(job_id), "pending", kind, str(SCOPE), "128", "0"]


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
def test_ls_fits_the_terminal_and_its_ids_can_be_used(desk: Desk, columns: int) -> None:
    """No line is wider than the terminal, and every id as it is shown finds its job."""
    with desk.queue() as queue:
        new = [NewJob(scope=SCOPE, kind=f"ingest:{'k' * number}", payload=None) for number in range(60)]
        ids = [receipt.job_id for receipt in queue.enqueue_many(new)]
    desk.bury("cancelled")
    lines = desk.run("ls", columns=columns).stdout.splitlines()
    assert max(len(line) for line in lines) <= columns
    shown = [line.split()[0] for line in lines[1 : len(ids) + 1]]
    assert [json.loads(desk.run("show", one, "--json").stdout)["job_id"] for one in shown[::9]] == list(
        map(str, ids[::9])
    )


@pytest.mark.parametrize(
    ("limit", "notes"),
    [("2", "telha: 2 of 3 jobs shown: --limit 0 shows all\n"), ("3", ""), ("0", ""), ("100", "")],
)
def test_ls_says_when_there_is_more(desk: Desk, limit: str, notes: str) -> None:
    """A note on stderr tells of jobs past the limit, and only of those."""
    desk.add("embed", "embed", "embed")
    assert desk.run("ls", "--limit", limit).stderr == notes


def test_ls_of_nothing_says_so_on_stderr(desk: Desk) -> None:
    """An empty listing has no header; the note goes to stderr and the exit code is 0."""
    desk.add("embed")
    result = desk.run("ls", "--state", "dead")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "telha: no jobs\n")


def test_ls_prints_many_jobs_under_one_header(desk: Desk) -> None:
    """A listing longer than a chunk has one header and all its jobs."""
    with desk.queue() as queue:
        receipts = queue.enqueue_many(NewJob(scope=SCOPE, kind="embed", payload=None) for _ in range(1_100))
    lines = desk.run("ls", "--limit", "0").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", *(str(receipt.job_id) for receipt in receipts)]


def test_show_tells_a_job_and_its_log(desk: Desk) -> None:
    """`show` prints the fields of a job, and its events in order with their reasons."""
    with desk.queue(QueueConfig(max_attempts=2)) as queue:
        job_id = queue.enqueue(SCOPE, "ingest:pdf", {"path": "a.pdf"}, idempotency_key="doc-7").job_id
        lease = queue.lease_next("worker-1")
        assert lease is not None
        desk.clock.advance(2_000)
        queue.fail(lease, "cannot parse page 3")
        desk.clock.advance(10_000)
        queue.lease_next("worker-2")
        desk.clock.advance(400_000)
        queue.reap()
    lines = desk.run("show", str(job_id)).stdout.splitlines()
    told = [words(line) for line in lines]
    assert told[0] == [str(job_id)]
    assert ["state", "dead (expired)"] in told
    assert ["payload", '{"path": "a.pdf"}'] in told
    assert ["key", "doc-7"] in told
    log = told[told.index([]) + 1 :] if [] in told else told[told.index([""]) + 1 :]
    assert log[0] == ["AT (UTC)", "AGE", "AFTER", "EVENT", "DETAIL"]
    assert [(row[0], *row[2:]) for row in log[2:]] == [
        ("2023-11-14 22:13:20.000", "+0 ms", "leased", "attempt 1, by worker-1, generation 1"),
        (
            "2023-11-14 22:13:22.000",
            "+2 s",
            "failed",
            "cannot parse page 3 (attempts 1, generation 1, due 10 s later)",
        ),
        ("2023-11-14 22:13:32.000", "+10 s", "promoted"),
        ("2023-11-14 22:13:32.000", "+0 ms", "leased", "attempt 2, by worker-2, generation 2"),
        ("2023-11-14 22:20:12.000", "+6 m", "dead", "expired (attempts 2, generation 2)"),
    ]


@pytest.mark.parametrize("command", [("ls",), ("ls", "--json"), ("show",), ("show", "--json")], ids=str)
def test_hostile_text_cannot_reach_the_terminal(desk: Desk, command: tuple[str, ...]) -> None:
    """Controls, escapes and direction marks in reasons, names, keys and payloads are printed as their escapes."""
    with desk.queue() as queue:
        job_id = queue.enqueue(
            SCOPE, "embed", {HOSTILE: HOSTILE}, idempotency_key=HOSTILE, headers={HOSTILE: HOSTILE}
        ).job_id
        lease = queue.lease_next(HOSTILE)
        assert lease is not None
        queue.fail(lease, HOSTILE, retryable=False)
    result = desk.run(*command, *([str(job_id)] if command[0] == "show" else []))
    assert result.exit_code == 0
    assert all(line.isprintable() for line in result.stdout.split("\n"))


def test_show_fits_wide_characters_into_the_terminal(desk: Desk) -> None:
    """Characters two columns wide are counted as two when a log is wrapped."""
    with desk.queue() as queue:
        job_id = queue.enqueue(SCOPE, "embed", {"title": "漢字" * 100}).job_id
        lease = queue.lease_next("worker")
        assert lease is not None
        queue.fail(lease, "失敗" * 100)
    lines = desk.run("show", str(job_id), columns=80).stdout.splitlines()
    widths = [sum(2 if char in "漢字失敗" else 1 for char in line) for line in lines]
    assert max(widths) <= 80
    assert sum(line.count("失") for line in lines) == 100


def test_show_cuts_what_is_long(desk: Desk) -> None:
    """A long payload is cut for people and says so; --json has all of it."""
    [job_id] = desk.add("embed", payload=list(range(10_000)))
    shown = desk.run("show", str(job_id)).stdout
    assert "… (cut: --json shows all)" in shown
    assert len(shown) < 6_000
    assert json.loads(desk.run("show", str(job_id), "--json").stdout)["payload"] == list(range(10_000))


def test_show_of_an_unknown_id_is_refused(desk: Desk) -> None:
    """An id that no job has is refused with exit code 1."""
    desk.add("embed")
    result = desk.run("show", "ffff")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "telha: no job has an id that begins with ffff\n"


def test_an_ambiguous_id_is_a_usage_error_with_candidates(desk: Desk) -> None:
    """A beginning that several ids share is exit code 2 and lists them."""
    ids = desk.add("embed", "embed")
    result = desk.run("show", str(ids[0])[:6])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-2:] == [f"  {job_id}" for job_id in ids]


def test_many_candidates_are_not_all_listed(desk: Desk) -> None:
    """Five candidates are named, then that there are more."""
    ids = desk.add(*["embed"] * 9)
    result = desk.run("show", "0")
    assert result.stderr.splitlines()[-6:] == [*(f"  {job_id}" for job_id in ids[:5]), "  and more"]


@pytest.mark.parametrize("given", ["xyz", "", "0" * 33, "-"])
def test_a_malformed_id_is_a_usage_error(desk: Desk, given: str) -> None:
    """What cannot be an id is exit code 2."""
    desk.add("embed")
    assert desk.run("show", given).exit_code == 2


def test_counts_are_the_five_states(desk: Desk) -> None:
    """`counts` prints each state and the sum; --json an object of the five states."""
    desk.add("embed", "index")
    desk.bury("rejected", "cancelled", kind="first")
    rows = dict(words(line) for line in desk.run("counts").stdout.splitlines())
    found = json.loads(desk.run("counts", "--json").stdout)
    assert rows == {"pending": "2", "leased": "0", "failed": "0", "completed": "0", "dead": "2", "total": "4"}
    assert found == {"pending": 2, "leased": 0, "failed": 0, "completed": 0, "dead": 2}
    assert list(found) == [state.value for state in State]


def test_counts_take_filters(desk: Desk) -> None:
    """`counts` counts only what its scope and kind leave; an unknown kind has zeros."""
    desk.add("ingest:pdf", "embed")
    desk.add("ingest:pdf", scope=OTHER_SCOPE)
    found = [
        json.loads(desk.run("counts", "--json", *filters).stdout)["pending"]
        for filters in (("--kind", "ingest:*"), ("--scope", str(SCOPE)), ("--kind", "unknown"))
    ]
    assert found == [2, 2, 0]


def test_check_of_a_sound_queue_is_0(desk: Desk) -> None:
    """`check` says how many rows it read and that nothing is wrong."""
    desk.add("embed", "embed")
    result = desk.run("check")
    assert (result.exit_code, result.stdout) == (0, "2 rows checked, 0 in quarantine: nothing is wrong\n")


def test_check_of_a_damaged_queue_is_1(desk: Desk) -> None:
    """`check` lists what is wrong on stdout and exits with 1; --json has the fields of CheckReport."""
    [bad] = desk.add("embed")
    desk.spoil(bad)
    result = desk.run("check")
    told = json.loads(desk.run("check", "--json").stdout)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith("problem: jobs ")
    assert result.stdout.splitlines()[-1] == "1 row checked, 0 in quarantine: 1 problem"
    assert list(told) == [field.name for field in fields(CheckReport)]
    assert len(told["problems"]) == 1


def test_a_job_that_cannot_be_read_is_named_by_every_reader(desk: Desk) -> None:
    """An unreadable row: `show` refuses it, `ls` says that one is left out, and lists the others."""
    bad, good = desk.add("embed", "embed")
    desk.spoil(bad)
    shown, listed = desk.run("show", str(bad)), desk.run("ls")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "cannot be read" in shown.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["ID", str(good)]
    assert listed.stderr == "telha: 1 more cannot be read: see telha jobs check\n"


def test_a_quarantined_job_is_shown_as_unreadable(desk: Desk) -> None:
    """A job in quarantine: `show` refuses it, `ls` counts it, `check` lists it and finds nothing wrong."""
    [bad] = desk.add("spoiled")
    desk.quarantine(bad)
    shown, listed, checked = desk.run("show", str(bad)), desk.run("ls"), desk.run("check")
    assert (shown.exit_code, listed.exit_code, checked.exit_code) == (1, 0, 0)
    assert "cannot be read" in shown.stderr
    assert listed.stderr == "telha: no jobs\ntelha: 1 in quarantine, in no list: see telha jobs check\n"
    assert checked.stdout.splitlines() == [
        f"quarantined: {bad}",
        "0 rows checked, 1 in quarantine: nothing is wrong",
    ]


@pytest.mark.parametrize("command", ["ls", "show", "counts", "check"])
def test_reading_beside_another_process_says_so(desk: Desk, command: str) -> None:
    """While another process has the queue open, reading works, shows its jobs, and warns on stderr only."""
    [job_id] = desk.add("embed")
    with held_elsewhere(desk.directory) as process:
        result = desk.run(command, *([str(job_id)] if command == "show" else []))
    warning = f"telha: {desk.directory} is open elsewhere (by process {process}): "
    assert result.exit_code == 0
    assert result.stderr == f"{warning}this may show what is not durable yet\n"
    assert command != "ls" or "held" in result.stdout


@pytest.mark.parametrize("command", [("ls",), ("counts",), ("check",), ("show", "0")], ids=str)
def test_reading_never_changes_the_database(desk: Desk, command: tuple[str, ...]) -> None:
    """Reading commands leave every file as it was, also when the last owner ended uncleanly."""
    desk.crash()
    files = [file for file in desk.directory.iterdir() if file.name != "LOCK"]
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}
    assert desk.run(*command).exit_code == 0
    after = [file for file in desk.directory.iterdir() if file.name != "LOCK"]
    assert {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in after} == before


@pytest.mark.parametrize(
    "make",
    [lambda path: path.exists(), lambda path: path.mkdir(), lambda path: path.write_text("x")],
    ids=["none", "empty", "file"],
)
def test_where_no_queue_is_reading_is_refused(desk: Desk, make: Callable[..., object]) -> None:
    """A path without a queue is refused with exit code 1, and nothing is made there."""
    make(desk.directory)
    before = sorted(desk.directory.parent.rglob("*"))
    result = desk.run("ls")
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(desk.directory) in result.stderr
    assert sorted(desk.directory.parent.rglob("*")) == before
