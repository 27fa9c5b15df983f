"""The subjects that a trace can be replayed on, by name. A new one (a server, an engine with faults) is added here."""

from functools import partial
from typing import Final

from telha_model.types import Config
from tests.harness.lockstep import Subjects
from tests.harness.subject import EngineSubject, Subject, TamperedSubject, narrow_subject, tour_subject

MODEL: Final = "model"
"""The model alone, against the replies that the trace records and the promises. No subject: nothing is driven."""
GRPC: Final = "grpc"
AT: Final = "grpc://"
"""Before an address of this machine: the same as `grpc`, but the server listens there, for others to look at it."""


def _served(config: Config, start_ms: int, *, real_reopen_every: int = 1, listen: str | None = None) -> Subject:
    # Imported when it is wanted: most processes of the harness never speak gRPC.
    from tests.harness.served import FREE_PORT, ServedSubject

    return ServedSubject(config, start_ms, real_reopen_every=real_reopen_every, listen=listen or FREE_PORT)


def _lenient(config: Config, start_ms: int) -> Subject:
    from tests.harness.served import LenientSubject

    return LenientSubject(config, start_ms)


SUBJECTS: Final[dict[str, Subjects]] = {
    "engine": EngineSubject,
    "engine-narrow": partial(EngineSubject, window_rows=1),
    "engine-renewed": tour_subject,
    "engine-narrow-renewed": narrow_subject,
    "engine-narrow-2-renewed": partial(EngineSubject, real_reopen_every=16, window_rows=2, rows_max=2),
    "engine-tampered": TamperedSubject,
    GRPC: _served,
    "grpc-renewed": partial(_served, real_reopen_every=16),
    "grpc-lenient": _lenient,
}
"""`narrow`: the smallest window of the agenda; `narrow-2`: the next larger one. `renewed`: seven of eight reopenings
keep the store open, as in tours. `grpc`: a client of a server that the replay starts, on a free port. Canaries:
`tampered` always differs after an enqueue, `lenient` answers a stale submit as if it had been taken.
"""

ALL: Final = (MODEL, "engine", "engine-narrow", GRPC)
"""What `--subject all` replays on."""


def subjects(name: str) -> Subjects:
    """The subject of a name, `grpc://HOST:PORT` among them. KeyError when there is none."""
    if name.startswith(AT):
        return partial(_served, listen=name.removeprefix(AT))
    return SUBJECTS[name]


def plain(name: str) -> str:
    """The name without an address: what a trace says that it differs on."""
    return GRPC if name.startswith(AT) else name
