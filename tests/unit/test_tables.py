"""The two towers have one state machine, although they share nothing."""

from tests.harness.tables import codes_without_moves, engine_edges, model_edges, transition_names


def test_the_tables_agree_edge_for_edge() -> None:
    """What the audit replays through is the model's transition table."""
    assert engine_edges() == model_edges()


def test_the_names_of_events_agree() -> None:
    """Every transition that a log can tell has the same name on both sides, and all but the elision are moves."""
    ours, theirs = transition_names()
    assert ours == theirs
    assert codes_without_moves() == set()
