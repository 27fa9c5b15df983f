"""Loads a version of the specification from wherever it is: a folder, a wheel, a snapshot, a git revision, installed.

Each version is imported as `telha_model` from its own place while every other copy is set aside, so several live in one
process and none sees the other's types. Only imports at the top of a module work that way, and the model has no others.
"""

import importlib
import importlib.util
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from telha_model.versions import MODULES, MODULES_OF_NEWER, Version

ROOT: Final = Path(__file__).parents[2]
CHANGES: Final = ROOT / "model" / "changes"
RELEASED: Final = CHANGES / "base.zip"
"""The model of the last released specification, committed so that a shallow clone or an unpacked sdist has it."""
PACKAGE: Final = "telha_model"
_PARTS: Final = ("model/telha_model", "impl/telha_jobs")
_STEPPING: Final = (
    *("__init__.py", "types.py", "ops.py", "replies.py", "state.py", "states.py", "step.py"),
    *("rules.py", "policy.py", "transitions/*.py", "quotient.py"),
)
"""The part of the model that answers; a loaded snapshot fails at once when one of these needs more."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class VersionError(ValueError):
    """There is no such version, or it cannot be loaded; `str()` says what to do."""


class Place(NamedTuple):
    """Where a version is: the entry of the import path that has its model, and the one with its engine if there is."""

    name: str
    model: Path
    engine: Path | None


def located(text: str, scratch: Path) -> Place:
    """The place of a version as somebody names it; a revision is unpacked into `scratch`. Raises `VersionError`."""
    if text == "installed":
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise VersionError(f"{PACKAGE} is not installed")
        return _in_folder(text, Path(spec.origin).parents[1])
    if text == "released":
        return Place(f"released ({RELEASED.name})", _exists(RELEASED), None)
    path = Path(text)
    if path.is_dir():
        return _in_folder("the working tree" if path.resolve() == ROOT else text, path)
    if path.is_file():
        names = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
        if f"{PACKAGE}/__init__.py" not in names:
            raise VersionError(f"{text} is no wheel or snapshot with {PACKAGE} in it")
        return Place(text, path, path if "telha_jobs/__init__.py" in names else None)
    return _of_revision(text, scratch)


def _exists(path: Path) -> Path:
    if not path.is_file():
        raise VersionError(f"there is no {path.relative_to(ROOT)}: scripts/spec-diff --release writes it")
    return path


def _in_folder(name: str, folder: Path) -> Place:
    for model, engine in ((folder / "model", folder / "impl"), (folder, folder)):
        if (model / PACKAGE / "__init__.py").is_file():
            has_engine = (engine / "telha_jobs" / "__init__.py").is_file()
            return Place(name, model.resolve(), engine.resolve() if has_engine else None)
    raise VersionError(f"{name} has neither model/{PACKAGE} nor {PACKAGE} in it")


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


def _of_revision(text: str, scratch: Path) -> Place:
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    commit = found.stdout.decode().strip()
    if found.returncode or not commit:
        raise VersionError(
            f"no folder, wheel or revision is called {text!r} here"
            f" (a shallow clone has only what it fetched: git fetch --depth 1 origin {text})"
        )
    parts = [part for part in _PARTS if _git("cat-file", "-e", f"{commit}:{part}").returncode == 0]
    if not parts or parts[0] != _PARTS[0]:
        raise VersionError(f"revision {text} ({commit[:12]}) has no {_PARTS[0]}")
    folder = scratch / commit
    archive = _git("archive", "--format=tar", commit, "--", *parts)
    if archive.returncode:
        raise VersionError(f"revision {text}: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        # Python 3.11 has filters from 3.11.4 on; the archive is our own git's, and holds what is committed.
        filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(folder, **filtered)
    return _in_folder(f"{text} ({commit[:12]})", folder)


def loaded(place: Place, *, newer: bool) -> Version:
    """The version at a place; `newer`: with all that is needed to explore its universes. Raises `VersionError`."""
    with _alone(place.model):
        modules: dict[str, ModuleType] = {}
        try:
            package = importlib.import_module(PACKAGE)
            for name in MODULES:
                modules[name] = importlib.import_module(f"{PACKAGE}.{name}")
            for name in MODULES_OF_NEWER:
                try:
                    modules[name] = importlib.import_module(f"{PACKAGE}.{name}")
                except Exception:  # an older version may lack these, and its universes may not even load
                    if newer:
                        raise
        except Exception as error:  # whatever a version does when it is imported, it cannot be compared
            raise VersionError(f"{place.name}: {type(error).__name__}: {error}") from error
        origin = package.__file__ or ""
        if not origin.startswith(str(place.model)):
            raise VersionError(f"{place.name}: was loaded from {origin}")
        spec = getattr(package, "SPEC_VERSION", None)
    return Version(place.name if spec is None else f"{place.name}, specification {spec}", modules)


@contextmanager
def _alone(entry: Path) -> Iterator[None]:
    """Imports of the model come from this entry; afterwards everything is as it was."""
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == PACKAGE}
    sys.path.insert(0, str(entry))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(entry))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        sys.modules.update(aside)
        importlib.invalidate_caches()


def snapshot(target: Path) -> None:
    """Write what steps and classifies of the working tree's model into a zip whose bytes depend on nothing else."""
    folder = ROOT / "model"
    paths = [path for pattern in _STEPPING for path in (folder / PACKAGE).glob(pattern)]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(paths):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
