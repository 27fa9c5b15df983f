"""Repair of what is derived: after it every family is that of a twin to which nothing happened."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telha_jobs import JobQueue, ManualClock, QueueConfig, State
from telha_jobs.consistency import repair
from telha_jobs.consistency import writer as writing
from telha_jobs.consistency.check import examine
from telha_jobs.keys import KIND_PREFIX, kind_key, ready_key, timer_key
from telha_jobs.store.port import Delete, Family, Put
from telha_jobs.store.rocks import RocksStore
from tests.harness.damage import DAMAGE, KIND_DAMAGE, MISSING, START_MS, A, Disk, damage, populated
from tests.unit.consistency.repairs import differences, opened, repaired

SEEDS = st.integers(0, 2**32 - 1)
WITHOUT_IDS = sorted(name for name in DAMAGE if not name.startswith("ids"))


@given(
    seed=SEEDS,
    jobs=st.integers(0, 12),
    names=st.lists(st.sampled_from(sorted(DAMAGE)), min_size=1, max_size=4)
    | st.tuples(st.sampled_from(sorted(KIND_DAMAGE)), st.sampled_from(WITHOUT_IDS)).map(list),
)
def test_a_repaired_database_equals_its_undamaged_twin(seed: int, jobs: int, names: list[str]) -> None:
    """Whatever befalls derived entries: each family is the twin's, byte for byte; the next repair finds nothing."""
    twin = populated(seed, jobs)
    hurt = twin.copied()
    damage(hurt.disk, names, seed)
    was_hurt = hurt.pairs() != twin.pairs()
    done = repaired(hurt)
    assert differences(twin.pairs(), hurt.pairs()) == []
    assert (done.report.problems, bool(done.report), bool(done.report.repaired)) == ((), True, was_hurt)
    again = repaired(hurt)
    assert (again.report.repaired, again.commits, again.done) == (0, 0, ())


@pytest.mark.parametrize("name", sorted(DAMAGE | KIND_DAMAGE))
def test_each_damage_is_found_and_mended(name: str) -> None:
    """By itself it does damage, the check tells of it, and it is mended: no case of the test above idles."""
    twin = populated(3, 8)
    hurt = twin.copied()
    damage(hurt.disk, [name], 3)
    assert hurt.pairs() != twin.pairs()
    store = opened(hurt)
    assert examine(store).problems
    store.close()
    assert repaired(hurt).done
    assert differences(twin.pairs(), hurt.pairs()) == []


def test_a_sound_database_is_not_written_to() -> None:
    """No commit, however many jobs there are."""
    hurt = populated(5, 12)
    store = opened(hurt)
    before = hurt.disk.sequence
    done = repair(store)
    assert (done.report.rows, done.report.repaired, before) == (16, 0, hurt.disk.sequence)


def test_commits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred jobs whose every entry is gone: many commits, each of few writes, and as good as one."""
    monkeypatch.setattr(writing, "BATCH_WRITES", 20)
    twin = populated(6, 300)
    hurt = twin.copied()
    for family in (Family.READY, Family.TIMERS, Family.IDS, Family.IDEM):
        hurt.disk.apply([Delete(family, key) for key in list(hurt.disk.keys[family])])
    store = opened(hurt)
    done = repair(store)
    store.close()
    assert max(store.sizes) <= 20 + 4
    assert done.commits == len(store.sizes) > 20
    assert differences(twin.pairs(), hurt.pairs()) == []


def test_commits_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that cannot be read are moved a few at a time when they are large."""
    monkeypatch.setattr(writing, "BATCH_BYTES", 4_000)
    hurt = populated(6, 0)
    with hurt.opened() as queue:
        for _ in range(10):
            queue.complete(_leased(queue), "r" * 1_500)
    rows = dict(hurt.disk.values[Family.JOBS])
    hurt.disk.apply([Put(Family.JOBS, key, value[:-1]) for key, value in rows.items()])
    assert repaired(hurt).commits >= 4
    assert rows.keys() == {key[16:] for key in hurt.disk.keys[Family.QUARANTINE]}


def _leased(queue: JobQueue) -> Any:
    queue.enqueue(A, "embed", None, priority=0)
    lease = queue.lease_next("w")
    assert lease is not None
    return lease


def test_what_is_done_is_told() -> None:
    """A sentence for each thing that was put right, with the job or the entry that it was."""
    hurt = populated(7, 0)
    [first, *_] = hurt.disk.keys[Family.IDS]
    [key] = [key for key in hurt.disk.keys[Family.READY] if key.endswith(first)]
    hurt.disk.apply([Delete(Family.READY, key), Put(Family.TIMERS, timer_key(START_MS, MISSING.bytes), b"")])
    done = repaired(hurt)
    assert [sentence.split(":")[-1].strip() for sentence in done.done] == [
        "its entry in ready was missing, written anew",
        f"the entry {timer_key(START_MS, MISSING.bytes).hex()} of job {MISSING.hex} has no row, removed",
    ]
    assert (done.report.repaired, done.report.rows) == (2, 4)


def test_more_than_a_thousand_things_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentences end, the count does not."""
    monkeypatch.setattr(writing, "TOLD_MAX", 3)
    hurt = populated(8, 0)
    hurt.disk.apply([Delete(Family.IDS, key) for key in list(hurt.disk.keys[Family.IDS])])
    done = repaired(hurt)
    assert (len(done.done), done.report.repaired) == (3, 4)


def test_kinds_that_no_job_votes_for_take_the_gap() -> None:
    """The name is lost and so are the entries of `ids` that had its number: the kind takes the number that is free."""
    twin = populated(9, 6)
    hurt = twin.copied()
    hurt.disk.apply([Delete(Family.META, kind_key(2))])
    hurt.disk.apply([Delete(Family.IDS, key) for key in list(hurt.disk.keys[Family.IDS])])
    repaired(hurt)
    assert differences(twin.pairs(), hurt.pairs()) == []


def test_two_kinds_that_were_exchanged_keep_their_names() -> None:
    """A name of `meta` whose number the jobs of another kind have as well keeps it: `ids` follows, and so do the
    others.
    """
    hurt = populated(10, 4)
    hurt.disk.apply([Put(Family.META, kind_key(1), b"ingest:pdf"), Put(Family.META, kind_key(2), b"embed")])
    done = repaired(hurt)
    assert done.report.problems == ()
    names = {key: value for key, value in hurt.disk.values[Family.META].items() if key.startswith(KIND_PREFIX)}
    assert sorted(names.values()) == [b"embed", b"index", b"ingest:pdf"]
    with hurt.opened() as queue:
        assert {job.kind for job in queue.list_jobs(kind="embed").jobs} == {"embed"}


def test_an_entry_of_a_newer_version_stays() -> None:
    """A key of `meta` that this version does not know is left alone."""
    hurt = populated(11, 2)
    hurt.disk.apply([Put(Family.META, b"later/1", b"x"), Put(Family.READY, b"\0", b"")])
    repaired(hurt)
    assert hurt.disk.values[Family.META][b"later/1"] == b"x"


def test_the_mark_of_the_ring_is_a_scope_or_nothing() -> None:
    """`last_served` follows from no row: one that is no scope goes."""
    hurt = populated(12, 3)
    hurt.disk.apply([Put(Family.META, b"last_served", b"nonsense")])
    done = repaired(hurt)
    assert (done.done, b"last_served" in hurt.disk.values[Family.META]) == (
        ("meta: last_served was no scope, removed",),
        False,
    )


def test_the_same_on_rocksdb(tmp_path: Path) -> None:
    """Counters too, which the store keeps in a cache: a queue that repairs itself is one that is opened anew."""
    clock = ManualClock(START_MS)
    config = QueueConfig(durability="os", retention_completed_ms=None)
    with JobQueue.open(tmp_path / "queue", clock=clock, config=config) as queue:
        held = [queue.enqueue(A, kind, kind).job_id for kind in ("a", "b", "b", "c")]
        queue.complete(_leased(queue))
    store = RocksStore.open(tmp_path / "queue", clock=clock)
    before = {family: dict(store.scan(family, b"", None, 1_000)) for family in Family}
    counters = [key for key in before[Family.META] if key.startswith(b"count/")]
    store.commit(
        [],
        [
            Put(Family.META, counters[0], b"nonsense!"),
            Put(Family.META, counters[1], b"\0" * 7 + b"\x63"),
            Delete(Family.META, counters[2]),
            Put(Family.META, kind_key(2), b"\xff"),
            *(Delete(Family.READY, key) for key in before[Family.READY]),
            Put(Family.READY, ready_key(A.bytes, 1, 1, 1, MISSING.bytes), b""),
        ],
        b"",
    )
    store.close()
    store = RocksStore.open(tmp_path / "queue", clock=clock)
    assert repair(store).report.problems == ()
    after = {family: dict(store.scan(family, b"", None, 1_000)) for family in Family}
    store.close()
    for family in Family:
        before[family].pop(b"store/commit", None), after[family].pop(b"store/commit", None)
    assert differences(before, after) == []
    with JobQueue.open(tmp_path / "queue", clock=clock, config=config) as queue:
        assert queue.counts()[State.PENDING] == 4
        assert [lease.job_id for lease in queue.lease_batch("w", 9)] == held
        assert queue.counts()[State.LEASED] == 4
        assert queue.check()


def test_the_twin_sees_a_missing_entry() -> None:
    """A canary: one entry less, and the comparison says where."""
    twin: Disk = populated(13, 2)
    hurt = twin.copied()
    key = hurt.disk.keys[Family.READY][0]
    hurt.disk.apply([Delete(Family.READY, key)])
    assert differences(twin.pairs(), hurt.pairs()) == [f"ready {key.hex()}: b'' expected, None found"]
