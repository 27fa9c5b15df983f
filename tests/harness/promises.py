"""The promises as people name them, and the names under which the model states them."""

from typing import Final

from telha_model.invariants import ALWAYS, GOALS

PROMISES: Final[dict[str, str]] = {
    "exclusive lease": "exclusive_lease",
    "stale submit": "stale_submit",
    "no job is lost": "no_job_is_lost",
    "acknowledged is durable": "acknowledged_is_durable",
    "attempts are exact": "attempts_are_exact",
    "the event log tells the truth": "the_log_tells_the_truth",
    "order": "order",
    "no early run": "no_early_run",
    "fair scopes": "fair_scopes",
    "one key, one job": "one_key_one_job",
    "progress": "progress",
}

if set(PROMISES.values()) != {*ALWAYS, *GOALS}:
    raise ValueError("the model states other promises than these")
