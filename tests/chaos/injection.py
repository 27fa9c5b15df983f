"""Errors of the storage that are real to whoever meets them: system calls that fail, and disks of a few pages."""

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

_FILE_NUMBERS: Final = 40
"""RocksDB numbers its files one by one; a short life does not come far."""
_MARK: Final = "getxattr"
_READY: Final = "user.telha-traced"
_SET_PTRACER: Final = 0x59616D61
_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_READ_ONLY, _REMOUNT, _RECURSIVE, _PRIVATE = 0x1, 0x20, 0x4000, 0x40000


class TracerMissingError(Exception):
    """strace is not installed or may not trace; errors of the storage must not go unchecked because of that."""


class Failed(NamedTuple):
    """A system call that failed: its name, the file's name, how many marks stood before it, and whether the process's
    first thread made it (others are RocksDB's).
    """

    call: str
    file: str
    marks: int
    own: bool


class Injector:
    """From now on a kind of system call on the files of a database fails in this process.

    `when` counts the calls of each thread: "3" is its third, "3+" the third and all later ones. Returns once it is in
    force: a call that nothing else here makes is given an answer that only the tracer can give.
    """

    def __init__(self, database: Path, log: Path, call: str, error: str, when: str) -> None:
        self._log = log
        if shutil.which("strace") is None:
            raise TracerMissingError("strace is not installed: Debian has it as `strace`")
        # Where the system lets only ancestors trace, say that the child may.
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        self._marker = log.with_name("marker")
        self._marker.touch()
        command = ["strace", "-f", "-y", "-qq", "-o", str(log), "-p", str(os.getpid())]
        command += ["-e", f"trace={call},{_MARK}"]
        command += ["-e", f"inject={call}:error={error}:when={when}", "-e", f"inject={_MARK}:retval=1"]
        for path in (self._marker, database, *(database / name for name in _names())):
            command += ["-P", str(path)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while not self.mark():
            if self._process.poll() is not None:
                raise TracerMissingError(f"strace does not trace: {self._process.communicate()[1].strip()}")

    def mark(self) -> bool:
        """Leave a mark in the trace; False when nobody traces."""
        try:
            os.getxattr(self._marker, _READY)
        except OSError:
            return False
        return True

    def stop(self) -> list[Failed]:
        """End it; the calls that failed, in order."""
        self._process.terminate()
        self._process.communicate()
        return failed_calls(self._log.read_text("utf-8", "replace").splitlines(), str(os.getpid()))


def failed_calls(trace: Iterable[str], own: str) -> list[Failed]:
    """The calls that strace let fail, in the order of their ends; `own` is the number of the process's first thread."""
    # The first mark is the one that was waited for.
    found, begun, marks = list[Failed](), dict[str, str](), -1
    for line in trace:
        thread, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[thread] = rest
            continue
        if rest.startswith("<..."):
            # Another thread's call was told in between.
            rest = begun.pop(thread, "") + rest
        if "(INJECTED)" in rest:
            name, _, arguments = rest.partition("(")
            if name == _MARK:
                marks += 1
            else:
                file = Path(arguments.partition("<")[2].partition(">")[0]).name
                found.append(Failed(name, file, marks, own=thread == own))
    return found


@contextmanager
def mounted_tmpfs(where: Path, size_bytes: int) -> Iterator[None]:
    """A tmpfs of that size on a directory, for this process alone; OSError where the system allows none."""
    _own_mounts()
    _mount("tmpfs", where, "tmpfs", 0, f"size={size_bytes}")
    yield
    if ctypes.CDLL(None, use_errno=True).umount2(str(where).encode(), 2) != 0:
        raise OSError(ctypes.get_errno(), f"{where} cannot be unmounted")


def remount_read_only(where: Path) -> None:
    """Make a mounted file system read-only."""
    _mount("tmpfs", where, "tmpfs", _REMOUNT | _READ_ONLY, "")


def mounts_allowed() -> str | None:
    """Why this process may not mount, or None when it may. Asks a child."""
    child = os.fork()
    if child == 0:
        try:
            _own_mounts()
        except OSError as error:
            os._exit(error.errno or errno.EPERM)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return None if code == 0 else os.strerror(code)


def _own_mounts() -> None:
    """A mount namespace of this process's own; for who is not root, within a user namespace in which it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    flags = _NEW_MOUNTS if user == 0 else _NEW_MOUNTS | _NEW_USERS
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount("none", Path("/"), None, _RECURSIVE | _PRIVATE, "")


def _mount(source: str, where: Path, kind: str | None, flags: int, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    kinds = None if kind is None else kind.encode()
    if libc.mount(source.encode(), str(where).encode(), kinds, ctypes.c_ulong(flags), options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"{where} cannot be mounted: {os.strerror(ctypes.get_errno())}")


def _names() -> Iterator[str]:
    """The files of a database whose loss would matter; RocksDB's notes in LOG are not among them."""
    yield from ("IDENTITY", "rocksdict-config.json")
    for number in range(_FILE_NUMBERS):
        for name in ("{:06}.log", "{:06}.sst", "{:06}.dbtmp", "MANIFEST-{:06}", "OPTIONS-{:06}.dbtmp"):
            yield name.format(number)
