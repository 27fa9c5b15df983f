"""Mutants of the server and its client, which only calls over the wire can show."""

from typing import Final

from tests.harness.catalogue import Mutant

_CALLS: Final = "telha_jobs.rpc.calls"
_WIRE: Final = "telha_jobs.rpc.wire"
_DISPATCHER: Final = "telha_jobs.rpc.dispatcher"
_EXCHANGES: Final = "telha_jobs.client.exchanges"

OF_WIRE: Final[tuple[Mutant, ...]] = (
    Mutant(
        "the server answers a stale submit OK",
        "stale submit",
        "grpc:protocol",
        _CALLS,
        "        return _submitted(_given(replies[0]))\n",
        "        if isinstance(replies[0], StaleLeaseError):\n"
        "            return pb.SubmitResponse(state=wire.STATES[State.COMPLETED])\n"
        "        return _submitted(_given(replies[0]))\n",
    ),
    Mutant(
        "generations travel in 32 bits",
        "stale submit",
        "grpc:reopen",
        _WIRE,
        'return LeaseRef(uuid_in(f"{field}.job_id", given.job_id), given.generation)',
        'return LeaseRef(uuid_in(f"{field}.job_id", given.job_id), given.generation & 0xFFFFFFFF)',
    ),
    Mutant(
        "the client leaves the key out",
        "one key, one job",
        "grpc:keys",
        _EXCHANGES,
        "        idempotency_key=draft.key,\n",
        "",
    ),
    Mutant(
        "a poll asks for every scope",
        "fair scopes",
        "grpc:fairness",
        _EXCHANGES,
        "        scopes=[str(uuid_of(scope)) for scope in sorted(wanted.scopes or ())],\n",
        "",
    ),
    Mutant(
        "a job that is enqueued over the wire wakes no poll",
        "progress",
        "histories",
        _CALLS,
        "        frozenset(((draft.scope, draft.kind),)),\n",
        "        frozenset(),\n",
    ),
    Mutant(
        "a job that comes due wakes no poll",
        "progress",
        "pytest:tests/rpc/test_polls.py",
        _DISPATCHER,
        "            self._timer = self._loop.call_at(at, self._due)\n",
        "            self._timer = None\n",
    ),
    Mutant(
        "an answer names the commit before its own",
        "acknowledged is durable",
        "histories",
        _DISPATCHER,
        "Answers(replies[at:end], sequence, self._index)",
        "Answers(replies[at:end], sequence - 1, self._index)",
    ),
)
