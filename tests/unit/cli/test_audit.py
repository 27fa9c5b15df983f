"""`telha jobs audit` and `export`: what they find in a database and in lines, what they print, and their exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telha_jobs import NewJob
from telha_jobs.codec import decode_record, encode_record
from telha_jobs.core.record import LogEntry, Record, changed
from telha_jobs.store.port import Family, Put
from tests.unit.api.support import row_of, tamper
from tests.unit.cli.desk import SCOPE, Desk, held_elsewhere


def rewrite(desk: Desk, job_id: UUID, edit: Callable[[Record], Record]) -> None:
    """Edit a row by hand, as somebody who can compute the checksum would; it stays in its place."""
    with desk.queue() as queue:
        key, value = row_of(queue, job_id)
    record = edit(decode_record(key, value))
    written = encode_record(record, sequence=record.sequence, token=record.token)
    assert written[0] == key
    tamper(desk.directory, Put(Family.JOBS, *written))


def fewer_attempts(record: Record) -> Record:
    """A worker's failure made undone in the row, and left in the log."""
    return changed(record, attempts=0)


def another_end(record: Record) -> Record:
    """A log whose last event never happened like that; the row's state fits it."""
    last = record.events[-1]
    return changed(
        record, events=(*record.events[:-1], LogEntry(last.at_ms, last.transition, {**last.detail, "generation": 7}))
    )


def test_a_true_queue_passes(desk: Desk) -> None:
    """Jobs in many states: the sums on one line, exit code 0; the same over its export and over `ls --json`."""
    desk.add("embed", "ingest:pdf")
    desk.bury("attempts", "expired", "rejected", "cancelled")
    expected = "6 jobs, 13 events audited: every log tells the truth\n"
    exported, listed = desk.run("export").stdout, desk.run("ls", "--json", "--limit", "0").stdout
    for result in (
        desk.run("audit"),
        desk.run("audit", "--log", "-", given=exported),
        desk.run("audit", "--log", "-", given=listed),
    ):
        assert (result.stdout, result.stderr, result.exit_code) == (expected, "", 0)


@pytest.mark.parametrize(
    ("edit", "rule"), [(fewer_attempts, "attempts"), (another_end, "generation")], ids=["attempts", "log"]
)
def test_a_row_edited_by_hand_is_caught(desk: Desk, edit: Callable[[Record], Record], rule: str) -> None:
    """Although its checksum is right and `check` finds nothing: the job, the rule and the sentence are named."""
    [job_id] = desk.bury("attempts")
    desk.add("embed")
    rewrite(desk, job_id, edit)
    assert desk.run("check").exit_code == 0
    for result in (desk.run("audit"), desk.run("audit", "--log", "-", given=desk.run("export").stdout)):
        finding, sums = result.stdout.splitlines()
        assert finding.startswith(f"job {job_id}: {rule}: ")
        assert (sums, result.exit_code) == ("2 jobs, 4 events audited: 1 finding", 1)


def test_what_one_row_cannot_tell_is_told_by_two(desk: Desk) -> None:
    """A row whose commit cannot be true is found by comparison; `ls --json` tells no commits."""
    ids = desk.add("embed", "embed")
    rewrite(desk, ids[1], lambda record: record._replace(sequence=1, token=b"x" * 16))
    result = desk.run("audit")
    assert result.exit_code == 1
    assert f"job {ids[0]}: commit: " in result.stdout or f"job {ids[1]}: commit: " in result.stdout
    assert desk.run("audit", "--log", "-", given=desk.run("ls", "--json").stdout).exit_code == 0


def test_findings_as_json(desk: Desk) -> None:
    """An object per finding and one with the sums."""
    [job_id] = desk.bury("attempts")
    rewrite(desk, job_id, fewer_attempts)
    finding, sums = map(json.loads, desk.run("audit", "--json").stdout.splitlines())
    assert (finding["job_id"], finding["rule"]) == (str(job_id), "attempts")
    assert sums == {"jobs": 1, "events": 3, "findings": 1, "unreadable": 0}


def test_lines_that_are_no_jobs_are_findings(desk: Desk, tmp_path: Path) -> None:
    """Each by its number; the others are audited."""
    desk.add("embed")
    log = tmp_path / "log"
    log.write_bytes(b'{"torn\n\n\xff\n' + desk.run("ls", "--json").stdout_bytes)
    result = desk.run("audit", "--log", str(log))
    lines = result.stdout.splitlines()
    assert [line.split(":")[:3] for line in lines[:2]] == [
        ["log", " line", f" line {number} is no job"] for number in (1, 3)
    ]
    assert (lines[2], result.exit_code) == ("1 job, 1 event audited: 2 findings", 1)


def test_jobs_that_cannot_be_read_are_told(desk: Desk) -> None:
    """They are not audited, and no finding; `check` is named."""
    ids = desk.add("embed", "embed")
    desk.spoil(ids[0])
    result = desk.run("audit")
    assert (result.stdout, result.exit_code) == ("1 job, 1 event audited: every log tells the truth\n", 0)
    assert result.stderr == "telha: not audited, because unreadable: 1 job; see telha jobs check\n"
    exported = desk.run("export")
    assert (len(exported.stdout.splitlines()), exported.exit_code) == (1, 1)


def test_export_tells_the_job_and_its_row(desk: Desk) -> None:
    """What `ls --json` tells, values of every form included, and the row's marks."""
    desk.add("embed", payload={"blob": b"\xff", "marked": {"$bytes": 1}})
    [exported] = map(json.loads, desk.run("export").stdout.splitlines())
    [listed] = map(json.loads, desk.run("ls", "--json").stdout.splitlines())
    row: dict[str, Any] = exported.pop("row")
    assert exported == listed
    assert list(row) == ["sequence", "token", "leased_at_ms", "purge_at_ms", "lease_end"]


@pytest.mark.parametrize(
    "arguments",
    [("--log", "-", "--data", "x"), ("--log", "missing"), ("--log",)],
    ids=["both", "missing", "nothing"],
)
def test_usage(desk: Desk, arguments: tuple[str, ...]) -> None:
    """A bad combination or a file that is not there is exit code 2."""
    assert desk.run("audit", *arguments).exit_code == 2


def test_beside_an_owner(desk: Desk) -> None:
    """Another process's queue can be audited, with a note."""
    desk.add("embed")
    with held_elsewhere(desk.directory):
        result = desk.run("audit")
    assert (result.stdout, result.exit_code) == ("2 jobs, 2 events audited: every log tells the truth\n", 0)
    assert "open elsewhere" in result.stderr


def test_no_job_is_audited_twice_or_left_out(desk: Desk) -> None:
    """Past the pages of a scan."""
    with desk.queue() as queue:
        for _ in range(3):
            queue.enqueue_many(NewJob(scope=SCOPE, kind="embed", payload=None) for _ in range(400))
            desk.clock.advance(1)
    assert desk.run("audit").stdout == "1,200 jobs, 1,200 events audited: every log tells the truth\n"
