"""One step of the model, the same step of a subject, and the comparison of reply and whole state."""

from collections.abc import Callable
from typing import Final

from telha_model.ops import Op
from telha_model.replies import Reply
from telha_model.state import Queue, new_queue
from telha_model.step import step
from telha_model.types import Config
from tests.harness.classes import Hits
from tests.harness.program import as_code, program
from tests.harness.subject import Subject
from tests.harness.translate import expected_reply

SHOWN: Final = 12
"""A longer run is no evidence anybody reads; its lane repeats it."""
SENTENCES_MAX: Final = 8

Subjects = Callable[[Config, int], Subject]
"""Makes a subject for a configuration and a time of the first open."""


class DisagreementError(AssertionError):
    """Model and subject differ. `ops` is the whole run, the last one being the step that differs."""

    def __init__(self, config: Config, ops: list[Op], start_ms: int, sentences: list[str]) -> None:
        self.config = config
        self.ops = ops
        self.start_ms = start_ms
        self.sentences = sentences
        super().__init__(self.describe())

    def describe(self) -> str:
        """What differs, and the last steps as a program. The whole run is in the trace that a lane keeps."""
        last = as_code(self.ops[-1]) if self.ops else "the first open"
        lines = [f"model and queue differ at step {len(self.ops)}, {last}:"]
        lines += [f"  - {sentence}" for sentence in self.sentences[:SENTENCES_MAX]]
        if len(self.sentences) > SENTENCES_MAX:
            lines.append(f"  - and {len(self.sentences) - SENTENCES_MAX} more")
        shown = self.ops[-SHOWN:]
        which = "the run" if len(shown) == len(self.ops) else f"the last {len(shown)} of {len(self.ops)} steps"
        lines += [f"{which}, under {as_code(self.config)} from {self.start_ms} ms:", program(shown)]
        return "\n".join(lines)


Keep = Callable[[DisagreementError], None]
"""Keeps a difference before it is raised."""


class Lockstep:
    """Drives model and subject together; what differs goes to `keep` before it is raised, what agrees to `hits`."""

    def __init__(
        self,
        config: Config,
        subjects: Subjects,
        *,
        start_ms: int = 1_000,
        keep: Keep | None = None,
        hits: Hits | None = None,
    ) -> None:
        self._keep = keep
        self._hits = hits
        self.config = config
        self.start_ms = start_ms
        self.queue: Queue = new_queue(start_ms)
        self.subject = subjects(config, start_ms)
        self.ops: list[Op] = []
        self.disagreed = False

    def step(self, op: Op) -> Reply:
        """Do one operation on both; the model's reply. Raises `DisagreementError`."""
        before = self.queue
        self.ops.append(op)
        reply, after = step(self.config, before, op)
        wanted = expected_reply(reply, self.subject.names.newest)
        try:
            found = self.subject.apply(op)
        except Exception as error:
            # No reply of the model's stands for it: whatever it is, it is a difference, and it needs the program.
            raise self._disagreement([f"model {as_code(wanted)}, queue raised {error!r}"]) from error
        if wanted != found:
            raise self._disagreement([f"reply: model {as_code(wanted)}, queue {as_code(found)}"])
        sentences = self.subject.differences(before, op, after)
        if sentences:
            raise self._disagreement(sentences)
        if self._hits is not None:
            self._hits.take(self.config, before, op, reply, after)
        self.queue = after
        return reply

    def compare(self, *, public: bool) -> None:
        """Compare whole snapshots, without an operation; `public`: also what the interface says of them.

        Raises `DisagreementError`.
        """
        sentences = self.subject.snapshot_differences(self.queue, public=public)
        if sentences:
            raise self._disagreement(sentences)

    def close(self) -> None:
        """End the subject."""
        self.subject.close()

    def _disagreement(self, sentences: list[str]) -> DisagreementError:
        self.disagreed = True
        error = DisagreementError(self.config, list(self.ops), self.start_ms, sentences)
        if self._keep is not None:
            self._keep(error)
        return error
