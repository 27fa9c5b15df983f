"""Opens that must be refused: with the library's own error, a sentence that helps, and every byte left alone."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rocksdict import Options, Rdict

from telha_jobs import FormatVersionError, QueueUnavailableError
from telha_jobs.store import layout
from telha_jobs.store.database import Database
from telha_jobs.store.port import Family, Put
from tests.chaos.faultload import fingerprint
from tests.chaos.forks import Forks
from tests.chaos.frame import FoundError, Run

REFUSED: Final = "tests.chaos.faultload:refused"
REFUSED_ON_DISK: Final = "tests.chaos.faultload:refused_on_disk"

DISKS: Final[dict[str, int | None]] = {"a full disk": 0, "a disk almost full": 20, "a read-only disk": None}
"""By the pages that are left; None: read-only."""


def _unwritable(room: Path) -> None:
    (room / "queue").chmod(0o555)


def _closed(room: Path) -> None:
    (room / "queue").chmod(0)


def _hidden(room: Path) -> None:
    room.chmod(0)


def _files_unreadable(room: Path) -> None:
    (room / "queue").chmod(0o777)
    for file in (room / "queue").iterdir():
        file.chmod(0)


def _files_unwritable(room: Path) -> None:
    (room / "queue").chmod(0o777)
    for file in (room / "queue").iterdir():
        file.chmod(0o444)


def _newer(room: Path) -> None:
    newer = layout.FormatVersion(layout.FORMAT.major + 1, 0)
    database = Database.open(room / "queue")
    database.write(database.batch([Put(Family.META, layout.FORMAT_KEY, layout.encode_format(newer))]))
    database.close()


def _foreign(room: Path) -> None:
    shutil.rmtree(room / "queue")
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    database = Rdict(str(room / "queue"), options, column_families={"pages": Options(raw_mode=True)})
    database.put(b"a", b"1")
    database.close()


def _file(room: Path) -> None:
    shutil.rmtree(room / "queue")
    (room / "queue").write_text("no directory")


RIGHTS: Final[dict[str, Callable[[Path], None]]] = {
    "a directory that may not be written": _unwritable,
    "a directory that may not be entered": _closed,
    "a directory below one that may not be entered": _hidden,
    "files that may not be read": _files_unreadable,
    "files that may not be written": _files_unwritable,
}
OTHERS: Final[dict[str, Callable[[Path], None]]] = {
    "a newer format": _newer,
    "somebody else's database": _foreign,
    "a file": _file,
}


def refusals(run: Run, forks: Forks, killed: Path, *, mounts: bool) -> None:
    """Each open is tried on a copy of the killed queue, brought into the state that its name tells."""
    for name, prepare in (*RIGHTS.items(), *OTHERS.items()):
        room = run.room("refusal")
        shutil.copytree(killed, room / "queue")
        # Whoever is nobody has to come as far as here.
        for path in (run.root, room):
            path.chmod(0o755)
        if name in OTHERS:
            prepare(room)
        before = fingerprint(room)
        if name in RIGHTS:
            prepare(room)
        said = forks.run(REFUSED, {"database": str(room / "queue"), "nobody": name in RIGHTS}).answer
        _let_in(room)
        _judge(run, name, said, sorted({file for file, _ in before.items() ^ fingerprint(room).items()}))
        shutil.rmtree(room)
    for name, pages in DISKS.items() if mounts else ():
        room = run.room("refusal")
        answer = forks.run(REFUSED_ON_DISK, {"copy_of": str(killed), "disk": str(room), "pages": pages}).answer
        _judge(run, name, answer["there"], answer["changed"])
        _judge(run, f"{name}, and no queue there", answer["new"], answer["changed"])
        shutil.rmtree(room)


def _judge(run: Run, name: str, said: dict[str, Any] | None, changed: list[str]) -> None:
    expected = FormatVersionError if name == "a newer format" else QueueUnavailableError
    outcome = None if expected is FormatVersionError else "not_applied"
    if said is None:
        raise FoundError(f"{name}: the queue was opened")
    if (said["error"], said["outcome"]) != (expected.__name__, outcome):
        raise FoundError(f"{name}: refused by {said}")
    if changed:
        run.tally.unexpected += len(changed)
        raise FoundError(f"{name}: refused, and yet there are changes: {', '.join(changed)}")
    run.tally.covered["opens refused, nothing touched"] += 1


def _let_in(room: Path) -> None:
    """Give the rights back."""
    room.chmod(0o755)
    if (room / "queue").is_dir():
        (room / "queue").chmod(0o755)
        for file in (room / "queue").iterdir():
            file.chmod(0o644)
