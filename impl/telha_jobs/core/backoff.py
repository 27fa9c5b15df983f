"""The delay before a job's next attempt (seed §3; the per-kind base of seed §14 is resolved in `config.Policy`)."""

from telha_jobs.config import Backoff


def backoff_ms(backoff: Backoff, attempts: int) -> int:
    """`min(cap, base * factor ** (attempts - 1))` in ms, for the `attempts`-th failure or expiry (1 or more)."""
    delay = backoff.base_ms
    for _ in range(attempts - 1):
        if delay >= backoff.cap_ms or backoff.factor == 1:
            break  # the power only grows: no need for its digits
        delay *= backoff.factor
    return min(backoff.cap_ms, delay)
