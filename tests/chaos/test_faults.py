"""Storage faults: every write and sync fails once, disks are full, opens refused; and a deaf queue is found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.faults import CI_STRIDE, IMPORTS, LANE, NO_MOUNTS, Faults, calls_fail, disks_full, opens_refused
from tests.chaos.forks import Forks
from tests.chaos.frame import KEPT_VARIABLE, Run, Verdict, play
from tests.chaos.injection import Failed, failed_calls
from tests.chaos.refusals import DISKS, OTHERS, RIGHTS
from tests.harness.mutants import mutant
from tests.harness.mutation import environment

PINNED = {
    True: {"first open: write": 37, "first open: fdatasync": 19, "first open: fsync": 10},
    False: {"open after a kill: write": 61, "open after a kill: fdatasync": 16, "open after a kill: fsync": 10},
}
"""How many calls of each kind failed, one life each."""
IN_CALLS = {"write": range(34, 37), "fdatasync": range(15, 18)}
"""Which writes and syncs of a first open's life are made by its calls: three of them write."""


def lived(body: Callable[[Run, Forks], None]) -> Verdict:
    """The verdict over some lives of seed 1."""

    def forked(run: Run) -> None:
        with Forks(IMPORTS) as forks:
            body(run, forks)

    return play(replace(LANE, body=forked), seed=1)


@pytest.mark.parametrize("fresh", [True, False], ids=["first open", "open after a kill"])
def test_f20_families_agree_after_every_failed_write_and_sync(fresh: bool) -> None:
    """F20: one family had a batch and another had not. Each write and sync fails once: all agree, nothing is lost."""
    verdict = lived(lambda run, forks: calls_fail(run, forks, 1, fresh=fresh, stride=CI_STRIDE))
    assert verdict.finding is None, verdict.told()
    assert PINNED[fresh] == {name: verdict.covered[name] for name in PINNED[fresh]}
    assert verdict.covered["refused opens"] > 30
    assert verdict.covered["first refusals: unknown"] > 5


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_f18_after_a_real_io_error_every_call_is_refused(call: str) -> None:
    """F18: after one I/O error the server went on in memory. Here a call fails with EIO once, and all later ones are
    refused until the queue is opened again; what was answered is there then.
    """

    def body(run: Run, forks: Forks) -> None:
        faults = Faults(run, forks, 1)
        for number in IN_CALLS[call]:
            faults.life({"kind": "call", "call": call, "error": "EIO", "when": str(number)}, fresh=True)

    verdict = lived(body)
    assert verdict.finding is None, verdict.told()
    assert (verdict.covered["first refusals"], verdict.covered["later refusals"]) == (3, 6)


def test_a_full_disk_refuses_and_loses_nothing() -> None:
    """No room at any byte of the log: the call is refused, and after reopening with room all that was answered is
    there. Opens that cannot or must not succeed touch nothing.
    """

    def body(run: Run, forks: Forks) -> None:
        opens_refused(run, forks, 4)
        disks_full(run, forks, 3)

    verdict = lived(body)
    assert verdict.finding is None, verdict.told()
    assert verdict.covered["first refusals"] >= 9
    refused = len(RIGHTS) + len(OTHERS)
    if NO_MOUNTS in verdict.covered:
        assert verdict.covered["opens refused, nothing touched"] == refused
        pytest.skip("full and read-only disks need a mount namespace, and this system allows none: run as root")
    assert verdict.covered["first refusals"] >= 12
    assert verdict.covered["opens refused, nothing touched"] == refused + 2 * len(DISKS)


def test_failed_calls_are_told_from_a_trace_of_several_threads() -> None:
    """A call whose line was cut by another thread's keeps its file; marks are counted from the second."""
    trace = [
        '7 getxattr("/x/marker", "user.telha-traced", "", 128) = 1 (INJECTED)',
        "7 write(5</q/000004.log>, ..., 9 <unfinished ...>",
        "8 fdatasync(6</q/000009.sst>) = 0",
        "7 <... write resumed>) = -1 EIO (Input/output error) (INJECTED)",
        '7 getxattr("/x/marker", "user.telha-traced",  <unfinished ...>',
        "8 fdatasync(6</q/MANIFEST-000005>) = -1 EIO (Input/output error) (INJECTED)",
        '7 <... getxattr resumed>"", 128) = 1 (INJECTED)',
        "8 fdatasync(6</q/000010.sst>) = -1 EIO (Input/output error) (INJECTED)",
    ]
    assert failed_calls(trace, "7") == [
        Failed("write", "000004.log", 0, own=True),
        Failed("fdatasync", "MANIFEST-000005", 0, own=False),
        Failed("fdatasync", "000010.sst", 1, own=False),
    ]


DEAF = (
    "a write error is swallowed",
    "the store goes on after an error",
    "a sync error is swallowed",
    "nobody looks for room",
)


@pytest.mark.parametrize("name", DEAF)
def test_a_queue_that_does_not_hear_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that swallows an error, goes on after it, or opens where there is no room does not pass."""
    for variable in ("TELHA_MUTANT", "PYTHONPATH"):
        monkeypatch.setenv(variable, environment(mutant(name))[variable])
    monkeypatch.setenv(KEPT_VARIABLE, str(tmp_path))

    def body(run: Run, forks: Forks) -> None:
        faults = Faults(run, forks, 1)
        for call, numbers in IN_CALLS.items():
            fault = {"kind": "call", "call": call, "error": "EIO", "when": str(numbers[1])}
            for durability in ("sync", "os") if call == "write" else ("sync",):
                faults.life({**fault, "durability": durability}, fresh=True)
        opens_refused(run, forks, 4)
        disks_full(run, forks, 3)

    verdict = lived(body)
    assert verdict.finding is not None
    assert verdict.kept is not None
