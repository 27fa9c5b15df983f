"""Tries changes, each in a process of its own, in a lane whose parts come in the order of how fast they kill.

The process forked for a change has everything loaded but the queue: libraries, the model, its explored graphs. It
imports the queue with the change made, and runs the parts: random runs in lock-step, the corpus, slices of every tour,
and the tests that look at core, agenda and engine. The first difference ends it. A process that hangs, eats time or
memory, or dies is a kill too: nobody would miss that.

Nothing here may import `telha_jobs`, or use RocksDB, before the fork.
"""

import gc
import importlib.util
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from telha_model.explore import Graph
from telha_model.tours import Walk
from telha_model.universes import universes
from tests.harness.graphs import ci_graph, plan
from tests.harness.mutate.changes import Change, source_of

ROOT: Final = Path(__file__).parents[3]
SITE: Final = Path(__file__).parents[1] / "mutation_site"
MEMORY: Final = Path("/dev/shm")
RUNS: Final = (("engine", 1), ("engine-narrow", 2), ("engine", 3), ("engine-narrow", 4), ("engine", 5), ("engine", 6))
RUN_STEPS: Final = 500
SLICE_STEPS: Final = 400
SLICES: Final = 3
NARROW: Final = ("agenda", "order")
TESTS: Final = (
    "tests/unit/engine",
    "tests/contract/test_engine_on_memory_store.py",
    *[
        f"tests/unit/api/test_{name}.py"
        for name in ("changed_settings", "lease", "submit", "enqueue", "operators", "looking", "time")
    ],
    "tests/unit/api/test_waiting.py",
    "tests/field_failures",
    "tests/unit/test_audit.py",
    "--deselect=tests/field_failures/test_rows.py::test_f4_ten_thousand_orphans_are_swept",
)
"""What pytest is told: what looks at core, agenda and engine, and takes no longer than its worth."""
STAGE_WALL_S: Final = 200.0
"""A part that lasts longer hangs: the tests, the slowest, take a tenth of it alone on a machine."""
STAGE_CPU_S: Final = 10.0
"""What a part may compute in the process itself: five times what the slowest needs. The tests run in another."""
CPU_S: Final = 180
ADDRESS_BYTES: Final = 12 * 1024**3

Tours = dict[str, tuple[Graph, list[Walk]]]


class Tried(NamedTuple):
    """What became of a change: `stage` is the part that killed it, empty when all of them passed."""

    key: str
    stage: str
    how: str
    cpu_s: float

    @property
    def killed(self) -> bool:
        """Whether anything noticed."""
        return bool(self.stage)


class Forge:
    """A process that has loaded all but the queue. It stays single-threaded: it forks."""

    def __init__(self) -> None:
        import hypothesis.stateful
        import jsonschema
        import pytest
        import rocksdict

        del hypothesis, jsonschema, pytest, rocksdict
        self._tours: Tours = {name: (graph := ci_graph(name), _slices(graph)) for name in universes()}
        gc.collect()
        gc.freeze()

    def try_all(
        self, changes: Sequence[Change | None], *, jobs: int = 1, tests: bool = False
    ) -> Iterator[tuple[Change | None, Tried]]:
        """Try changes, `jobs` at a time (None: none made, which must pass), in the order in which they end.

        In the lock-step parts, or, `tests`, in the tests: those cost ten times as much, and are for what is left.
        """
        waiting = list(changes)[::-1]
        running: list[_Attempt] = []
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(_Attempt(waiting.pop(), {} if tests else self._tours))
                select.select([one.pipe for one in running], [], [], 0.5)
                for one in list(running):
                    tried = one.look()
                    if tried is not None:
                        running.remove(one)
                        yield one.change, tried
        finally:
            for one in running:
                one.end()


class _Attempt:
    """One change in one child, seen from the parent."""

    def __init__(self, change: Change | None, tours: Tours) -> None:
        self.change = change
        self._scratch = Path(tempfile.mkdtemp(prefix="telha-mutate-", dir=MEMORY if MEMORY.is_dir() else None))
        self.pipe, write = os.pipe()
        self._stage_began = time.monotonic()
        self._cpu_s = 0.0
        self._stage, self._told = "start", b""
        sys.stdout.flush()
        sys.stderr.flush()
        self._child = os.fork()
        if self._child == 0:
            os.close(self.pipe)
            _child(change, tours, write, self._scratch)
        os.close(write)

    def look(self) -> Tried | None:
        """What became of it, once that is known."""
        if select.select([self.pipe], [], [], 0)[0]:
            told = os.read(self.pipe, 65_536)
            self._told += told
            *lines, self._told = self._told.split(b"\n")
            for line in lines:
                said = json.loads(line)
                if "end" in said:
                    return self._tried(said["end"], said["how"])
                self._stage, self._stage_began = said["stage"], time.monotonic()
            if not told:
                return self._tried(self._stage, "the process died")
        if time.monotonic() - self._stage_began > STAGE_WALL_S:
            return self._tried(self._stage, "hangs")
        return None

    def _tried(self, stage: str, how: str) -> Tried:
        self.end()
        key = "" if self.change is None else self.change.key
        return Tried(key, stage, how, round(self._cpu_s, 2))

    def end(self) -> None:
        """The child and what it started are gone."""
        for kill in (os.killpg, os.kill):  # the group too: it may never have come as far as its own, or be gone
            with suppress(ProcessLookupError):
                kill(self._child, signal.SIGKILL)
        _, _, used = os.wait4(self._child, 0)
        self._cpu_s = used.ru_utime + used.ru_stime
        os.close(self.pipe)
        shutil.rmtree(self._scratch, ignore_errors=True)


def _slices(graph: Graph) -> list[Walk]:
    """A few stretches of the tour, from its start to its end."""
    parts = max(1, sum(map(len, graph.targets)) // SLICE_STEPS)
    chosen = {number * (parts - 1) // (SLICES - 1) for number in range(SLICES)}
    return [walk for shard in sorted(chosen) for walk in plan(graph, shard=shard, shards=parts)]


def _child(change: Change | None, tours: Tours, pipe: int, scratch: Path) -> None:
    """Never returns."""

    def tell(**said: str) -> None:
        os.write(pipe, json.dumps(said).encode("ascii") + b"\n")

    stage = "import"
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
        with (scratch / "output").open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.environ["TMPDIR"] = str(scratch)
        tempfile.tempdir = str(scratch)
        _put_in_place(change)
        signal.signal(signal.SIGVTALRM, _loops)
        for stage, part in _stages(tours, scratch):
            tell(stage=stage)
            signal.setitimer(signal.ITIMER_VIRTUAL, STAGE_CPU_S)
            part()
    except BaseException as error:  # noqa: BLE001  whatever a broken queue raises is a kill
        lines = str(error).splitlines() or [""]
        tell(end=stage, how=f"{type(error).__name__}: {' '.join(line.strip() for line in lines[:2])}"[:200])
    else:
        tell(end="", how="")
    os._exit(0)


def _loops(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"computes for more than {STAGE_CPU_S} s")


def _put_in_place(change: Change | None) -> None:
    """From here on the queue is imported with the change made, also by processes that tests start."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SITE), str(ROOT), os.environ.get("PYTHONPATH")]))
    if change is not None:
        told = {"module": change.module, "old": source_of(change.module), "new": change.source}
        os.environ["TELHA_MUTANT"] = json.dumps(told)
        spec = importlib.util.spec_from_file_location("mutation_site", SITE / "sitecustomize.py")
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(str(SITE))
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _stages(tours: Tours, scratch: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    if not tours:
        yield "tests", partial(_tests, scratch)
        return
    from tests.harness import quick, subject

    setattr(subject, "MEMORY", scratch)  # noqa: B010  mypy: the constant is final, but not for this process
    for name, seed in RUNS:
        yield f"run:{name}:{seed}", partial(quick.run, name, seed, RUN_STEPS)
    yield "corpus", quick.corpus
    for name, (graph, slices) in tours.items():
        subjects = "engine-narrow-renewed" if name in NARROW else "engine-renewed"
        yield f"tour:{name}", partial(quick.tour, graph, slices, subjects)


def _tests(scratch: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "--basetemp", str(scratch / "tests"), *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR tests"))]
        raise AssertionError((failed or [f"pytest ended with {done.returncode}"])[0])
