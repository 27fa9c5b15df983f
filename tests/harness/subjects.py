"""The subjects that a trace can be replayed on, by name. A new one (a server, an engine with faults) is added here."""

from functools import partial
from typing import Final

from tests.harness.lockstep import Subjects
from tests.harness.subject import EngineSubject, TamperedSubject, narrow_subject, tour_subject

MODEL: Final = "model"
"""The model alone, against the replies that the trace records and the promises. No subject: nothing is driven."""

SUBJECTS: Final[dict[str, Subjects]] = {
    "engine": EngineSubject,
    "engine-narrow": partial(EngineSubject, window_rows=1),
    "engine-renewed": tour_subject,
    "engine-narrow-renewed": narrow_subject,
    "engine-narrow-2-renewed": partial(EngineSubject, real_reopen_every=8, window_rows=2),
    "engine-tampered": TamperedSubject,
}
"""`narrow`: the smallest window of the agenda; `narrow-2`: the next larger one. `renewed`: seven of eight reopenings
keep the store open, as in tours. `tampered`: the canary, which always differs after an enqueue.
"""

ALL: Final = (MODEL, "engine", "engine-narrow")
"""What `--subject all` replays on."""
