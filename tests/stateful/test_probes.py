"""Steps that no tour takes, because no universe offers them: one of each transition class, on the real queue."""

import pytest

from telha_model.reachable import PROBED
from tests.harness.classes import Hits, counted
from tests.harness.lockstep import DisagreementError
from tests.harness.probing import probes_of, take
from tests.harness.subject import TamperedSubject
from tests.harness.subjects import SUBJECTS
from tests.harness.traces import Keeper
from tests.harness.walking import ci_graph


def test_the_queue_takes_every_probe_as_the_model_does() -> None:
    """Reply and whole state agree along the shortest way to the first state that has the class, and after the probe."""
    keep = Keeper("probes", "engine", repeat="scripts/test tests/stateful/test_probes.py")
    with counted("probes") as hits:
        for probe in probes_of(*map(ci_graph, PROBED)):
            take(probe, SUBJECTS["engine"], keep=keep, hits=hits)


def test_a_probe_is_of_the_class_that_it_is_for() -> None:
    """The last step of each run has the class; what comes before are edges of the universe."""
    for probe in probes_of(ci_graph("keys"))[::20]:
        hits = Hits("here")
        take(probe, SUBJECTS["engine"], hits=hits)
        assert hits.counts[probe.wanted] >= 1


def test_the_probes_ring_over_a_tampered_queue() -> None:
    """A canary: one derived entry too many ends the run."""
    probe = next(one for one in probes_of(ci_graph("protocol")) if one.wanted.state == "leased")
    with pytest.raises(DisagreementError, match="timers: has"):
        take(probe, TamperedSubject)
