"""`telha` as a process: streams, pipes, encodings, and what it says of itself."""

import json
import subprocess
import sys

from tests.unit.cli.desk import Desk, telha_process

MAIN = "from telha_jobs.cli import main; main()"


def test_data_is_on_stdout_and_notes_on_stderr(desk: Desk) -> None:
    """A whole run: the id of a new job on stdout, the note on stderr, exit code 0; a refusal on stderr, exit code 1."""
    added = telha_process(desk.directory, "enqueue", "system:x", "-", given='{"a": 1}')
    shown = telha_process(desk.directory, "show", added.stdout.strip(), "--json")
    refused = telha_process(desk.directory, "retry", added.stdout.strip())
    assert (added.returncode, added.stderr) == (0, f"telha: there was no queue in {desk.directory}: made one\n")
    assert json.loads(shown.stdout)["payload"] == {"a": 1}
    assert (refused.returncode, refused.stdout) == (1, "")


def test_without_data_the_command_is_wrong() -> None:
    """No --data and no TELHA_DATA is exit code 2."""
    command = [sys.executable, "-c", MAIN, "jobs", "ls"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert (result.returncode, result.stdout) == (2, "")
    assert "--data DIR" in result.stderr


def test_help_needs_no_queue_and_has_examples() -> None:
    """The group's help names its commands, has examples, and tells the exit codes."""
    command = [sys.executable, "-c", MAIN, "jobs", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert result.returncode == 0
    assert all(word in result.stdout for word in ("Examples:", "Exit codes:", "retry", "TELHA_DATA"))


def test_a_reader_that_goes_away_ends_it_quietly(desk: Desk) -> None:
    """When the pipe breaks there is no traceback and the exit code is the one of SIGPIPE."""
    desk.add(*["embed"] * 400)
    command = [sys.executable, "-c", MAIN, "jobs", "--data", str(desk.directory), "ls", "--json", "--limit", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_a_stream_without_unicode_gets_escapes(desk: Desk) -> None:
    """Where stdout has fewer characters than Unicode, the others are printed as escapes."""
    desk.add("embed", payload={"title": "漢字"})
    result = telha_process(desk.directory, "show", "0", environment=[("PYTHONIOENCODING", "latin-1")])
    assert result.returncode == 0
    assert "\\u6f22\\u5b57" in result.stdout


def test_what_the_library_warns_of_is_a_note(desk: Desk) -> None:
    """A warning of the library reaches stderr as a note, once."""
    desk.clock.advance(10 * 365 * 86_400_000)
    desk.add("embed")
    result = telha_process(desk.directory, "counts", "--json")
    assert result.returncode == 0
    assert [line.partition(" the wall clock is ")[0] for line in result.stderr.splitlines()] == ["telha:"]
