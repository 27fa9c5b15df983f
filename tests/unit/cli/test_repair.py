"""`check --repair`: it asks, repairs what nobody has open, lists what was done, and exits by what is left."""

import json
from pathlib import Path

import pytest

from telha_jobs import JobUnreadableError, QueueConfig, State
from telha_jobs.keys import kind_key, timer_key
from telha_jobs.store.port import Delete, Family, Put
from tests.unit.api.support import MISSING, tamper
from tests.unit.cli.desk import SCOPE, START_MS, Desk, held_elsewhere, telha_process

ORPHAN = timer_key(START_MS, MISSING.bytes)
TWO_NAMES = "its idempotency key is that of job {} too, which idem names; end and discard one of them"
TOLD = f"timers: the entry {ORPHAN.hex()} of job {MISSING.hex} has no row, removed"


@pytest.fixture
def hurt(desk: Desk) -> Desk:
    """A queue of two jobs with a timer that no job has."""
    desk.add("embed", "index")
    tamper(desk.directory, Put(Family.TIMERS, ORPHAN, b""))
    return desk


def test_it_asks_and_repairs(hurt: Desk) -> None:
    """What is wrong and the question on stderr, what was done on stdout; then nothing is wrong: exit code 0."""
    result = hurt.run("check", "--repair", given="y\n")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [f"repaired: {TOLD}", "2 rows checked, 1 repaired, 0 in quarantine: nothing is wrong"],
    )
    assert result.stderr.splitlines()[0] == "telha: timers: 1 entries, 0 follow from the rows"
    assert "Repair 1 problem? [y/N]" in result.stderr
    assert hurt.run("check").exit_code == 0


@pytest.mark.parametrize("answer", ["n\n", "", "\n"])
def test_without_a_yes_nothing_is_changed(hurt: Desk, answer: str) -> None:
    """No, nothing, and nobody to answer: refused, and the problem is there."""
    result = hurt.run("check", "--repair", given=answer)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("telha: not confirmed: nothing was changed (--yes does not ask)\n")
    assert hurt.run("check").exit_code == 1


def test_a_sound_queue_is_not_opened(desk: Desk) -> None:
    """Nothing is wrong: nobody is asked, and no file changes."""
    desk.add("embed")
    before = {path.name: path.stat().st_mtime_ns for path in desk.directory.iterdir()}
    result = desk.run("check", "--repair")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "1 row checked, 0 repaired, 0 in quarantine: nothing is wrong\n",
        "",
    )
    assert before == {path.name: path.stat().st_mtime_ns for path in desk.directory.iterdir()}


def test_json_has_what_was_done(hurt: Desk) -> None:
    """The fields of CheckReport, and the sentences under `done`."""
    result = hurt.run("check", "--repair", "--yes", "--json")
    assert json.loads(result.stdout) == {
        "rows": 2,
        "problems": [],
        "repaired": 1,
        "quarantined": [],
        "done": [TOLD],
    }


def test_what_is_left_is_exit_code_1(hurt: Desk) -> None:
    """Two jobs with one key: both stay, and the repair says so."""
    with hurt.queue() as queue:
        first = queue.enqueue(SCOPE, "embed", 1, idempotency_key="k").job_id
        [key] = [key for key, _ in queue._store.scan(Family.IDEM, b"", None, 9)]
    tamper(hurt.directory, Delete(Family.IDEM, key))
    with hurt.queue() as queue:
        second = queue.enqueue(SCOPE, "embed", 2, idempotency_key="k").job_id
    result = hurt.run("check", "--repair", "--yes")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        f"problem: job {first}: {TWO_NAMES.format(second)}",
        "4 rows checked, 1 repaired, 0 in quarantine: 1 problem",
    ]


def test_a_queue_that_does_not_open_is_repaired(desk: Desk) -> None:
    """A damaged kind refuses the open and names the command; the command finds the kind again by its jobs."""
    desk.add("embed", "index", "index")
    tamper(desk.directory, Put(Family.META, kind_key(2), b"\xff\xff"))
    refused = desk.run("ls")
    assert (refused.exit_code, "telha jobs check --repair" in refused.stderr) == (1, True)
    result = desk.run("check", "--repair", "--yes")
    assert (result.exit_code, "repaired: meta: kind 2 is 'index' again" in result.stdout) == (0, True)
    assert json.loads(desk.run("counts", "--kind", "index", "--json").stdout)["pending"] == 2


def test_a_row_that_cannot_be_read_goes_to_quarantine(desk: Desk) -> None:
    """Listed, and no problem any more."""
    good, bad = desk.add("embed", "spoiled")
    desk.spoil(bad)
    result = desk.run("check", "--repair", "--yes")
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (
        0,
        [f"quarantined: {bad}", "1 row checked, 1 repaired, 1 in quarantine: nothing is wrong"],
    )
    with desk.queue() as queue:
        assert queue.get(good).state is State.PENDING
        with pytest.raises(JobUnreadableError):
            queue.get(bad)


def test_a_queue_that_is_open_elsewhere_is_refused(hurt: Desk) -> None:
    """Before anybody is asked."""
    with held_elsewhere(hurt.directory) as owner:
        result = hurt.run("check", "--repair", "--yes")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"is open elsewhere (by process {owner})" in result.stderr


def test_no_queue_is_made(desk: Desk, tmp_path: Path) -> None:
    """A mistyped directory is refused, and stays missing."""
    result = desk.run("check", "--repair", "--yes")
    assert (result.exit_code, "there is no queue in" in result.stderr, desk.directory.exists()) == (1, True, False)


def test_yes_goes_with_repair(desk: Desk) -> None:
    """A yes to nothing is a usage error."""
    assert desk.run("check", "--yes").exit_code == 2


def test_text_from_jobs_is_made_safe(desk: Desk) -> None:
    """A kind that would command the terminal is shown as its escape."""
    desk.add("embed")
    tamper(desk.directory, Put(Family.META, kind_key(7), b"\x1b[2J"))
    result = desk.run("check", "--repair", given="y\n")
    assert (result.exit_code, "\x1b" in result.output) == (0, False)


def test_the_command_as_a_process(hurt: Desk) -> None:
    """Also by itself; stdout alone tells what was done."""
    result = telha_process(hurt.directory, "check", "--repair", "--yes")
    assert (result.returncode, result.stdout.splitlines()[0]) == (0, f"repaired: {TOLD}")
    assert result.stderr == ""
    with hurt.queue(QueueConfig()) as queue:
        assert queue.check()
