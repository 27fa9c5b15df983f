"""The states of a database as its history tells them, and as it holds them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from telha_jobs.store.layout import COMMIT_KEY, FORMAT_KEY, INCARNATION_KEY, OPEN_KEY
from telha_jobs.store.port import Family
from telha_jobs.store.rocks import RocksStore

State = dict[str, dict[str, str]]
"""Every pair of every family, in hexadecimal, without the store's own four keys."""
_OWN_KEYS: Final = frozenset(key.hex() for key in (COMMIT_KEY, FORMAT_KEY, INCARNATION_KEY, OPEN_KEY))
_ROWS_MAX: Final = 1_000_000


def state_of(store: RocksStore) -> State:
    """Every pair that an open store holds now."""
    return {
        family.value: {
            key.hex(): value.hex()
            for key, value in store.scan(family, b"", None, _ROWS_MAX)
            if key.hex() not in _OWN_KEYS
        }
        for family in Family
    }


def differences(expected: State, found: State) -> Iterator[str]:
    """What differs, a family and key each."""
    for family, pairs in expected.items():
        there = found[family]
        yield from (f"{family} {key}: missing" for key in sorted(pairs.keys() - there.keys()))
        yield from (f"{family} {key}: too many" for key in sorted(there.keys() - pairs.keys()))
        yield from (f"{family} {key}: another value" for key in sorted(pairs) if there.get(key, "") != pairs[key])


def change(state: State, changes: Sequence[tuple[str, str, str | None]]) -> None:
    """Apply a batch as the history tells it."""
    for family, key, value in changes:
        if key in _OWN_KEYS:
            continue
        if value is None:
            state[family].pop(key, None)
        else:
            state[family][key] = value


def empty() -> State:
    """Before the first commit."""
    return {family.value: {} for family in Family}


def copied(state: Mapping[str, Mapping[str, str]]) -> State:
    """A state that stays as it is now."""
    return {family: dict(pairs) for family, pairs in state.items()}


def telling(differing: Iterator[str], most: int = 4) -> str:
    """The first few, and how many there are."""
    found = list(differing)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(found[:most]) + more
