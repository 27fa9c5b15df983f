"""What stands at a path before it is opened: nothing, a database of ours, or something this library must not touch; and
what an open reads and writes first.

Everything that can refuse an open is looked at before the database is opened for writing, so that a refused open
changes nothing. RocksDB's lock on LOCK alone is ownership. The owner is looked up in the system's table of file locks
rather than by opening the file: closing any descriptor of a file drops the locks its process holds on it, and with them
the ownership.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

from telha_jobs.errors import FormatVersionError, QueueLockedError, QueueUnavailableError
from telha_jobs.store.database import (
    VIEW_PREFIX,
    Database,
    ForkedError,
    ViewChangedError,
    damaged_tables,
    exists,
    family_names,
)
from telha_jobs.store.layout import (
    COMMIT_KEY,
    FORMAT,
    FORMAT_KEY,
    INCARNATION_KEY,
    OPEN_KEY,
    OPEN_MARK,
    CommitState,
    FormatVersion,
    decode_commit,
    decode_format,
    decode_incarnation,
    encode_format,
    encode_incarnation,
)
from telha_jobs.store.port import META, Family, Put, Write

_LOCK_FILE = "LOCK"
_LOCK_TABLE = Path("/proc/locks")
_LOCK_LINE = re.compile(r"^\d+: POSIX +\S+ +WRITE +(\d+) +([0-9a-f]+):([0-9a-f]+):(\d+) ")
_VIEW_TRIES = 5
_VIEW = re.compile(rf"[^\s'\"]*{re.escape(VIEW_PREFIX)}\w+/")
_TABLE = re.compile(r"\b\d+\.sst\b")
_CURRENT = "CURRENT"
_NO_SUCH_HEAD = re.compile(r"No such file.*\bMANIFEST-\d+")
_HEAD = re.compile(r"\bMANIFEST-\d+|\bCURRENT\b")
_OPEN_BYTES = 1024 * 1024
"""What an open writes besides the tables it makes of the log: options, notes, lists of files, and spare."""
_FAMILY_NAMES = frozenset(family.value for family in Family)


@dataclass(frozen=True, slots=True)
class Vacant:
    """No database, or one whose very first open was cut short: an open may go on from there."""


@dataclass(frozen=True, slots=True)
class Ours:
    """A database of this library."""

    version: FormatVersion


@dataclass(frozen=True, slots=True)
class Foreign:
    """A database that is not this library's, and how one can tell."""

    reason: str


Found = Vacant | Ours | Foreign


def prepare(path: str | os.PathLike[str]) -> Path:
    """The directory's real path; creates it, parents too, when missing. Links are followed: one database has one name
    here.

    Raises `QueueUnavailableError` when it is no directory, cannot be made or written, or has no room.
    """
    where = Path(os.path.realpath(path))
    try:
        missing = [one for one in (where, *where.parents) if not one.exists()]
        if missing:
            _require_room(missing[-1].parent, where)
        where.mkdir(parents=True, exist_ok=True)
        # A new name is durable once the directory that holds it is.
        for made in missing:
            _sync_directory(made.parent)
    except OSError as error:
        raise QueueUnavailableError(
            f"{where} cannot be made a directory for the queue ({error}): give a directory that can be written"
        ) from error
    # Of the effective user: a service may have given up its rights for the time being.
    effective = os.access in os.supports_effective_ids
    if not os.access(where, os.R_OK | os.W_OK | os.X_OK, effective_ids=effective):
        raise QueueUnavailableError(
            f"{where} cannot be written by this user: give it the right to, or open another directory"
        )
    return where


def open_owned(where: Path, database: type[Database]) -> Database:
    """Open the database at `where` for writing, unless it is locked, foreign or of a newer format.

    Raises `QueueLockedError`, `FormatVersionError` or `QueueUnavailableError(outcome="not_applied")`.
    """
    owner = lock_owner(where)
    if owner is not None:
        raise QueueLockedError(str(where), detail=owner)
    try:
        require_ours(where, inspect(where, database), purpose="write")
        _require_room(where, where)
        return database.open(where)
    except ForkedError as error:
        raise QueueUnavailableError(f"{where} cannot be opened: {error}") from error
    except Exception as error:
        # rocksdict raises plain Exception with RocksDB's text; the errors of this library pass.
        if isinstance(error, QueueUnavailableError | FormatVersionError):
            raise
        text = str(error)
        if "lock hold by current process" in text:
            raise QueueLockedError(str(where), detail="by this process") from error
        if "While lock file" in text:
            raise QueueLockedError(str(where), detail=lock_owner(where) or "by another process") from error
        raise unusable(where, error) from error


def open_view(where: Path, database: type[Database]) -> Database:
    """Open the database at `where` for reading only, beside its owner; retries when files vanish under it.

    Raises `FormatVersionError`, or `QueueUnavailableError(outcome="not_applied")` also when there is no database.
    """
    failure: Exception = FileNotFoundError(where)
    for _ in range(_VIEW_TRIES):
        try:
            require_ours(where, inspect(where, database), purpose="read")
            return database.open_view(where, Family)
        except (QueueUnavailableError, FormatVersionError):
            raise
        except ForkedError as error:
            raise QueueUnavailableError(f"{where} cannot be opened: {error}") from error
        except Exception as error:  # noqa: BLE001  whatever it was, the owner may have replaced files; the last is reported
            failure = error
    raise unusable(where, failure) from failure


def require_ours(where: Path, found: Found, *, purpose: Literal["read", "write"]) -> None:
    """Refuse what must not be opened: `FormatVersionError`, or `QueueUnavailableError` with what to do."""
    match found:
        case Vacant():
            if purpose == "read":
                raise QueueUnavailableError(
                    f"there is no queue in {where}: check the path; opening a queue there creates one"
                )
        case Ours(version):
            if version.major > FORMAT.major:
                raise FormatVersionError(found=version.major, supported=FORMAT.major)
        case Foreign(reason):
            raise QueueUnavailableError(
                f"{where} holds a RocksDB database that is no job queue ({reason}): open another directory"
            )
        case _:
            assert_never(found)


def inspect(where: Path, database: type[Database]) -> Found:
    """Look at what stands at `where`, reading only. Raises what rocksdict raises when it cannot be read."""
    if not exists(where):
        return Vacant()
    names = family_names(where)
    if names - _FAMILY_NAMES:
        return Foreign(f"it has the column family {min(names - _FAMILY_NAMES)!r}")
    families = tuple(family for family in Family if family.value in names)
    if Family.META in families:
        # Only `meta`: the log is replayed for the families that are opened, and this is on the path of every open.
        view = _view(where, (Family.META,), database)
        try:
            value = view.get(Family.META, FORMAT_KEY)
        finally:
            view.close()
        if value is not None:
            return _ours(value)
    view = _view(where, families, database)
    try:
        if not view.default_is_empty():
            return Foreign("its column family 'default' holds data")
        for family in families:
            if view.iterate(family, b"", None, 1):
                return Foreign(
                    f"its column family {family.value!r} holds data, but there is no format version in 'meta'"
                )
    finally:
        view.close()
    return Vacant()


def begin(database: Database, incarnation: int) -> int:
    """Mark the database as open, durably, before the first commit; returns the incarnation from now on."""
    if database.get(META, OPEN_KEY) is not None:
        incarnation += 1
    changes: list[Write] = [
        Put(META, INCARNATION_KEY, encode_incarnation(incarnation)),
        Put(META, OPEN_KEY, OPEN_MARK),
    ]
    if database.get(META, FORMAT_KEY) is None:
        changes.append(Put(META, FORMAT_KEY, encode_format(FORMAT)))
    database.write(database.batch(changes))
    database.flush()
    return incarnation


def recorded(database: Database) -> tuple[int, CommitState]:
    """The incarnation and the newest commit as they stand in the database."""
    state = database.get(META, COMMIT_KEY)
    incarnation = database.get(META, INCARNATION_KEY)
    return (
        0 if incarnation is None else decode_incarnation(incarnation),
        CommitState(0, 0) if state is None else decode_commit(state),
    )


def lock_owner(where: Path) -> str | None:
    """Who holds RocksDB's lock on the database at `where`, as text, or None when nobody is known to. Opens nothing."""
    process = lock_process(where)
    if process is None:
        return None
    return "by this process" if process == os.getpid() else f"by process {process}"


def lock_process(where: Path) -> int | None:
    """The same as a process id."""
    try:
        status = (where / _LOCK_FILE).stat()
        table = _LOCK_TABLE.read_text()
    except OSError:
        return None
    wanted = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    for line in table.splitlines():
        match = _LOCK_LINE.match(line)
        if match is not None and (int(match[2], 16), int(match[3], 16), int(match[4])) == wanted:
            return int(match[1])
    return None


def _view(where: Path, families: tuple[Family, ...], database: type[Database]) -> Database:
    for _ in range(_VIEW_TRIES - 1):
        try:
            return database.open_view(where, families)
        except ViewChangedError:
            continue
    return database.open_view(where, families)


def _ours(value: bytes) -> Found:
    try:
        return Ours(decode_format(value))
    except ValueError as error:
        return Foreign(str(error))


def unusable(where: Path, error: Exception) -> QueueUnavailableError:
    """The refusal for a database that the storage cannot open or read; a damaged file is named."""
    text = told(error, where)
    advice = "see to space, permissions and hardware there, or restore a backup"
    if is_damage(text):
        advice = f"the damaged file is {' or '.join(_damaged(where, text)) or 'not known'}: restore a backup"
    return QueueUnavailableError(f"the database in {where} cannot be opened ({text}): {advice}")


def _damaged(where: Path, text: str) -> list[str]:
    """The damaged files. RocksDB blames the manifest for much that it finds elsewhere, so that comes last."""
    if named := _TABLE.findall(text):
        return sorted(set(named))
    if _NO_SUCH_HEAD.search(text):
        return [_CURRENT]  # it names a manifest that never was
    if "ahead of WALs" in text:
        return sorted(one.name for one in where.glob("*.log"))
    return damaged_tables(where) or sorted(set(_HEAD.findall(text)))


def told(error: BaseException, where: Path | None = None) -> str:
    """What the storage said, with files named where they are: a view stands on links to them."""
    return _VIEW.sub("" if where is None else f"{where}{os.sep}", str(error) or repr(error))


def is_damage(text: str) -> bool:
    """Whether RocksDB tells of a file whose bytes are not what they were."""
    return "Corruption" in text or _NO_SUCH_HEAD.search(text) is not None


def _require_room(there: Path, where: Path) -> None:
    """Refuse an open that the disk of `there` has no room for: RocksDB would begin, and leave half a recovery behind.

    May raise OSError.
    """
    status = os.statvfs(there)
    if status.f_blocks == 0:
        return  # this file system does not tell
    free = (status.f_bfree if os.geteuid() == 0 else status.f_bavail) * status.f_frsize
    # Whatever the log holds is written once more, into tables.
    needed = _OPEN_BYTES + sum(log.stat().st_size for log in where.glob("*.log"))
    if free < needed:
        raise QueueUnavailableError(
            f"there is no room to open the queue in {where}: {free:,} bytes are free, {needed:,} may be needed"
        )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
