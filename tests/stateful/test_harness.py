"""The harness itself: programs go through data and come back, and the second decoder passes nothing over."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from telha_model import ops
from telha_model.alphabet import offers
from telha_model.ops import Op
from telha_model.step import step
from telha_model.trace import Act, TraceError
from telha_model.trace_data import read, write
from telha_model.types import OVERSIZE, Config, KindPolicy, NewJob, Ref
from tests.harness.decode import Decoder, Observed
from tests.harness.lockstep import DisagreementError, Lockstep
from tests.harness.program import as_code
from tests.harness.subject import WHOLE_EVERY, EngineSubject
from tests.harness.values import REAL_VALUES, Names, packed, scope_uuid, value_of
from tests.harness.walking import ci_graph, slice_of, walk_all

UNIVERSES = ("protocol", "keys", "bulk")


def offered(name: str) -> Iterator[Op]:
    """Every operation offered anywhere in a universe."""
    graph = ci_graph(name)
    offer = offers(graph.universe.alphabet)
    for queue in graph.states:
        yield from offer(queue)


@pytest.mark.parametrize("name", UNIVERSES)
def test_an_operation_comes_back_from_its_data(name: str) -> None:
    """Every operation of a universe survives JSON, and is what its code says."""
    every = set(offered(name))
    words: dict[str, Any] = {**vars(ops), "NewJob": NewJob, "Ref": Ref, "OVERSIZE": OVERSIZE}
    assert every == {read(Act, json.loads(json.dumps(write(Act, op))), "op") for op in every}
    assert every == {eval(as_code(op), words) for op in every}


def test_a_program_of_an_unknown_type_is_refused() -> None:
    """Data of another vocabulary is an error, not an operation that does nothing."""
    with pytest.raises(TraceError, match="'explode' is unknown"):
        read(Act, {"is": "explode"}, "op")
    with pytest.raises(TraceError, match="no field is called 'how'"):
        read(Act, {"is": "reap", "how": "slowly"}, "op")


def test_settings_come_back_from_their_data() -> None:
    """A configuration with policies survives JSON."""
    config = Config(kinds=(("a:*", KindPolicy(max_attempts=2)),), retention_completed_ms=None)
    assert config == read(Config, json.loads(json.dumps(write(Config, config))), "config")


@pytest.mark.parametrize("name", UNIVERSES)
def test_the_model_makes_whole_values(name: str) -> None:
    """No reply or state of the model lacks a field, also where it is made without its constructor."""
    graph = ci_graph(name)
    offer = offers(graph.universe.alphabet)
    for queue in graph.states:
        for op in offer(queue):
            for value in nested(step(graph.universe.config, queue, op)):
                assert len(value) == len(value._fields), op


def nested(value: Any) -> Iterator[Any]:
    """The named tuples inside a value."""
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            yield value
        for part in value:
            yield from nested(part)


def test_scopes_keep_their_order() -> None:
    """Numbers of scopes are ordered as the bytes they stand for, and 0 is the nil scope."""
    scopes = [scope_uuid(number).bytes for number in range(256)]
    assert (sorted(scopes), bytes(16)) == (scopes, scopes[0])


def test_values_are_told_apart_by_type() -> None:
    """1, True, 1.0, "1" and b"1" are five values."""
    assert list(REAL_VALUES) == [value_of(packed(real)) for real in REAL_VALUES.values()]


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("jobs", b"", b""),
        ("ready", bytes(49), b""),
        ("timers", bytes(23), b""),
        ("ids", bytes(16), bytes(50)),
        ("idem", bytes(32), b""),
        ("payloads", bytes(16), b"\x01\xc0"),
        ("quarantine", bytes(58), b"anything"),
        ("meta", b"surprise", b""),
        ("meta", b"count/" + bytes(25), bytes(8)),
    ],
)
def test_what_the_decoder_does_not_know_is_a_problem(family: str, key: bytes, value: bytes) -> None:
    """A pair of an unknown job, a wrong size or an unknown name is told, never passed over."""
    raw = {"jobs": [], family: [(key, value)]}
    assert len(Decoder(Names()).observe(raw).problems) == 1


class _Twice(EngineSubject):
    """A subject that looks at everything after each look at what was written, and counts the two that differ."""

    differing = 0
    amended = 0

    def _look(self) -> Observed:
        seen = super()._look()
        whole = Decoder(self.names).observe(self._raw())
        whole.fresh = seen.fresh
        self.differing += seen != whole
        self.amended += self._looks % WHOLE_EVERY > 0
        return seen


@pytest.mark.parametrize("name", UNIVERSES)
def test_reading_back_what_was_written_shows_the_whole_database(name: str) -> None:
    """A look at the keys of the batches since the last look sees what a look at every key does."""
    graph = ci_graph(name)
    subjects: list[_Twice] = []

    def subject(config: Config, start_ms: int) -> _Twice:
        subjects.append(_Twice(config, start_ms))
        return subjects[-1]

    walk_all(graph, slice_of(name, 1_500), subject)
    assert sum(one.differing for one in subjects) == 0
    assert sum(one.amended for one in subjects) > 100


@pytest.mark.parametrize("family", ["ready", "meta"])
def test_what_was_written_behind_the_queues_back_is_seen_at_the_next_step(family: str) -> None:
    """A pair that no batch of the queue holds is found by the count of writes, whatever look is due."""
    subject = EngineSubject(Config(), 1_000)
    lockstep = Lockstep(Config(), lambda _config, _start: subject)
    try:
        for _ in range(3):
            lockstep.step(ops.Enqueue(NewJob(1, "a")))
        dict(subject._handles())[family].put(b"stray", b"")
        with pytest.raises(DisagreementError, match=b"stray".hex()):
            lockstep.step(ops.Lease("w"))
    finally:
        lockstep.close()
