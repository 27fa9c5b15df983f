"""Facts about the protocol in TLA+: TLC and the Python explorer agree, and the comparison notices when they do not."""

import json
import re

import pytest

from scripts._lib import tla as command
from telha_model.alphabet import symbols
from telha_model.explore import explore
from telha_model.tla_view import Edge, action, labelled, pairs
from telha_model.universes import universes


@pytest.fixture(scope="module")
def python_edges() -> set[Edge]:
    """The explorer's graph in the terms of TLA+."""
    return labelled(explore(universes()["protocol"]).graph)


@pytest.mark.slow
def test_tlc_says_what_is_expected_and_the_graphs_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    """Properties hold, seeded bugs fail, and the two state graphs have the same states and labelled edges."""
    code = command.main(["--json"])
    said = json.loads(capsys.readouterr().out)
    assert (code, said["ok"]) == (0, True), said["verdict"]
    assert {result["config"]: result["as_expected"] for result in said["checks"]} == dict.fromkeys(
        [check.config for check in command.CHECKS], True
    )
    graph = said["graph"]
    assert (graph["tlc_states"], graph["tlc_edges"]) == (388, 20_837)
    assert (graph["python_states"], graph["python_edges"], graph["differences"]) == (388, 20_837, 0)


def test_every_configuration_is_checked() -> None:
    """No .cfg in model/tla is left out."""
    assert {path.stem for path in command.MODULES.glob("*.cfg")} == {check.config for check in command.CHECKS}


def test_protocol_tla_names_every_operation() -> None:
    """Each symbol the universe offers anywhere has its action in Next, and there is no other."""
    graph = explore(universes()["protocol"]).graph
    named = symbols(graph.universe.alphabet)
    offered = {action(symbol) for queue in graph.states for symbol in named(queue)}
    listed = re.findall(r"^    \\/ (\w+)$", (command.MODULES / "Protocol.tla").read_text("utf-8"), re.MULTILINE)
    assert set(listed) == offered
    assert len(listed) == len(offered)


def test_a_difference_is_told(python_edges: set[Edge]) -> None:
    """One edge less, or one that leads elsewhere, is a difference on each side where it is."""
    edge = min(python_edges)
    source, label, target = edge
    moved = (source, label, max(other for _, _, other in python_edges if other != target))
    less = command.compared(python_edges - {edge}, python_edges)
    assert (less.differences, less.only_tlc, less.only_python) == (1, (), (command.worded(edge),))
    elsewhere = command.compared(python_edges - {edge} | {moved}, python_edges)
    assert (elsewhere.differences, elsewhere.only_tlc) == (2, (command.worded(moved),))
    assert command.compared(python_edges, python_edges).differences == 0


DOT = r"""strict digraph DiskGraph {
33 [label="/\\ x = 0\n/\\ r = [what |-> \"none\", generation |-> 0]\n/\\ b = TRUE",style = filled]
33 -> -7 [label="Do_Current",color="black",fontcolor="black"];
-7 [label="/\\ x = -1\n/\\ r = [what |-> \"fail x\", generation |-> 1]\n/\\ b = FALSE"];
-7 -> -7 [label="Tick",color="black",fontcolor="black"];
{rank = same; 33;}
}"""


def test_a_dumped_graph_is_read() -> None:
    """Numbers, strings, booleans and records come out as values; edges keep their labels."""
    start = pairs({"x": 0, "r": pairs({"what": "none", "generation": 0}), "b": True})
    after = pairs({"x": -1, "r": pairs({"what": "fail x", "generation": 1}), "b": False})
    assert command.dumped(DOT) == {(start, "Do_Current", after), (after, "Tick", after)}


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("fail for good, job 1, older", "FailForGood_Older"),
        ("release for -1, job 1, current", "ReleaseForMinus1_Current"),
        ("retry, job 1", "Retry_Job"),
        ("extend, gone", "Extend_Gone"),
        ("enqueue with run_at and delay", "EnqueueWithRunAtAndDelay_Call"),
    ],
)
def test_a_symbol_has_its_name_in_tla(symbol: str, expected: str) -> None:
    """The rule is mechanical."""
    assert action(symbol) == expected


def test_without_java_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing Java is no skip: exit code 1, and the line to run."""

    def refuses() -> str:
        raise command.NotReadyError("TLC needs Java: sudo apt-get install default-jre-headless")

    monkeypatch.setattr(command, "java", refuses)
    code = command.main([])
    captured = capsys.readouterr()
    assert (code, captured.out) == (1, "tla: NOT CHECKED, see above\n")
    assert "apt-get install" in captured.err
