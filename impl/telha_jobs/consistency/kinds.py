"""The part of a repair that gives every kind of a row its number again.

`meta` has the name of each number; `ids` has the number of each job, and the rows have the names. So a lost or damaged
name is found again by the jobs of that kind, with the number it had. Where `ids` does not tell it, it gets the lowest
number that is free: numbers are given out without gaps, so a gap is where the lost one was.
"""

from collections import Counter
from collections.abc import Iterator

from telha_jobs.consistency.follows import paged, place_of, read_record
from telha_jobs.consistency.writer import Writer
from telha_jobs.core.record import Record
from telha_jobs.errors import QueueUnavailableError
from telha_jobs.keys import KIND_PREFIX, after, kind_key, parse_quarantine_key
from telha_jobs.kinds import Kinds, KindTable, read_kinds
from telha_jobs.recovery import pages
from telha_jobs.rules import KINDS_MAX
from telha_jobs.store.port import Delete, Family, Put, Store

Votes = dict[str, Counter[int]]
"""For each kind of a row: how many entries of `ids` give it which number."""


def mend_kinds(store: Store, writer: Writer) -> Kinds:
    """Make `meta` name every kind that a row has, each once; the kinds as they are then."""
    table = _table(store)
    votes = _votes(store)
    writer.begin()
    names = assigned(table.names, votes)
    for key, why in table.wrong:
        writer.change([Delete(Family.META, key)], f"meta: the kind at {key.hex()} made no sense ({why}), removed")
    for number in sorted(names):
        if names[number] != table.names.get(number):
            writer.change(
                [Put(Family.META, kind_key(number), names[number].encode("utf-8"))],
                f"meta: kind {number} is {names[number]!r} again",
            )
    writer.commit()
    return Kinds(names)


def known_kinds(store: Store) -> Kinds:
    """The kinds of `meta` where nothing is wrong with them."""
    return Kinds(_table(store).names)


def assigned(names: dict[int, str], votes: Votes) -> dict[int, str]:
    """The names by number, with every kind that was voted for; `names` are those that `meta` has.

    A name of `meta` keeps its number, unless no job of that kind has it and the jobs of a missing kind do.
    """
    kept = dict(names)
    missing = sorted(votes.keys() - set(kept.values()), key=lambda name: (-votes[name].total(), name))
    while missing:
        name = missing.pop(0)
        number = _number_for(name, kept, votes)
        if number > KINDS_MAX:
            raise QueueUnavailableError(f"there is no number left for the kind {name!r}: restore a backup")
        displaced = kept.pop(number, None)
        kept[number] = name
        if displaced in votes:
            missing.append(displaced)  # it has jobs, but under another number
    return kept


def _number_for(name: str, kept: dict[int, str], votes: Votes) -> int:
    for number, _ in sorted(votes[name].items(), key=lambda item: (-item[1], item[0])):
        holder = kept.get(number)
        if 1 <= number <= KINDS_MAX and (holder is None or not votes.get(holder, Counter())[number]):
            return number
    return next(number for number in range(1, KINDS_MAX + 2) if number not in kept)


def _table(store: Store) -> KindTable:
    return read_kinds(pages(store, Family.META, KIND_PREFIX, after(KIND_PREFIX)))


def _votes(store: Store) -> Votes:
    found: Votes = {}

    for key, record in _records(store):
        [stored] = store.read(((Family.IDS, record.job_id),))
        place = place_of(stored.value, record.job_id)
        mine = found.setdefault(record.kind, Counter())
        if place is not None and place[0] == key:
            mine[place[1]] += 1
    return found


def _records(store: Store) -> Iterator[tuple[bytes, Record]]:
    """Every record that can be read, in `jobs` and in quarantine."""
    for page in paged(store, Family.JOBS):
        for key, value in page:
            record = read_record(key, value)
            if not isinstance(record, str):
                yield key, record
    for page in paged(store, Family.QUARANTINE):
        for key, value in page:
            row_key = parse_quarantine_key(key).row_key
            record = read_record(row_key, value)
            if not isinstance(record, str):
                yield row_key, record
