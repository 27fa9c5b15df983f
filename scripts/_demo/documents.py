"""Documents: which files count as one, what format they are in, and the text inside.

The format follows from the name, whether a document can be read from its content alone. `text_of` raises
`UnreadableDocumentError` with the reason; the queue's workers and the proof both ask it, each for itself.
"""

import ast
import csv
import email.parser
import hashlib
import json
import os
import random
import re
import tomllib
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any, Final

SIZE_MAX_BYTES: Final = 1_048_576
"""Larger documents are refused: whoever ships one did not mean it to be read."""
TEXT_MAX_CHARS: Final = 4_096
"""How much of its text a document hands on to be embedded."""

SCOPES: Final = uuid.uuid5(uuid.NAMESPACE_URL, "telha-jobs/demo/packages")

_BY_NAME: Final[Mapping[str, str]] = {
    "metadata": "metadata",
    "pkg-info": "metadata",
    "wheel": "metadata",
    "record": "csv",
    "installer": "text",
    "authors": "text",
    "changelog": "text",
    "changes": "text",
    "contributors": "text",
    "copying": "license",
    "copyright": "license",
    "licence": "license",
    "license": "license",
    "notice": "license",
    "readme": "text",
}
_BY_SUFFIX: Final[Mapping[str, str]] = {
    ".cfg": "ini",
    ".csv": "csv",
    ".htm": "html",
    ".html": "html",
    ".ini": "ini",
    ".json": "json",
    ".markdown": "markdown",
    ".md": "markdown",
    ".py": "python",
    ".pyi": "stub",
    ".rst": "rst",
    ".svg": "xml",
    ".toml": "toml",
    ".txt": "text",
    ".xml": "xml",
    ".yaml": "yaml",
    ".yml": "yaml",
}
_RANKS: Final[Mapping[str | None, int]] = {"stub": 1, "python": 2}
"""Sources are documents too, for the text in them, but only where the limit leaves room beside the others."""
_INSTALLED: Final = re.compile(r"(?P<name>[^/]+?)-[^-/]+\.(?:dist|egg)-info")
_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", ".git", ".hg", ".svn"})


class UnreadableDocumentError(Exception):
    """The content is not what its format says; the text says why."""


@dataclass(frozen=True, order=True)
class Document:
    """A file as the walk found it. `area` names the directory that `path` (with slashes) is relative to."""

    area: str
    path: str
    format: str
    size_bytes: int
    sha256: str

    @property
    def kind(self) -> str:
        """The kind of its job."""
        return f"ingest:{self.format}"

    @property
    def package(self) -> str:
        """The top-level package it belongs to."""
        return package_of(self.path)

    @property
    def scope(self) -> uuid.UUID:
        """The scope of its jobs: one for each package."""
        return uuid.uuid5(SCOPES, self.package)

    @property
    def key(self) -> str:
        """The idempotency key of its job: path and content. A path too long for a key is in it as a digest."""
        path = f"{self.area}/{self.path}"
        if len(path.encode()) > 900:
            path = hashlib.sha256(path.encode()).hexdigest()
        return f"{path}@{self.sha256[:32]}"

    def payload(self) -> dict[str, Any]:
        """What a worker needs to find it and to know whether it is still the same."""
        return {"area": self.area, "path": self.path, "bytes": self.size_bytes, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True)
class Areas:
    """Where documents come from: real ones, and those the demo writes. Neither is looked for inside `out`."""

    documents: Path
    inbox: Path
    out: Path
    limit: int
    seed: int

    def locate(self, area: str, path: str) -> Path:
        """The file of a document."""
        return {"documents": self.documents, "inbox": self.inbox}[area] / path

    def walk(self) -> list[Document]:
        """Every document of the inbox, and of the others up to `limit`: the same choice for the same seed."""
        real = sorted(_files(self.documents, without=self.out))
        random.Random(self.seed).shuffle(real)
        real.sort(key=lambda path: _RANKS.get(format_of(path), 0))
        named = [("documents", path) for path in real[: self.limit]]
        named += [("inbox", path) for path in sorted(_files(self.inbox, without=None))]
        random.Random(self.seed).shuffle(named)
        return [document for area, path in named if (document := self._document(area, path)) is not None]

    def _document(self, area: str, path: str) -> Document | None:
        found = format_of(path)
        if found is None:
            return None
        with self.locate(area, path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        return Document(area=area, path=path, format=found, size_bytes=size, sha256=digest)


def _files(root: Path, *, without: Path | None) -> Iterator[str]:
    """Paths of the readable regular files under `root` that have a format, with slashes. Links are not followed."""
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and here / name != without]
        for name in names:
            file = here / name
            if format_of(name) is None or not name.isprintable() or file.is_symlink() or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            if os.access(file, os.R_OK) and path.isprintable():
                yield path


def format_of(path: str) -> str | None:
    """The format that a file's name promises; None when it is no document."""
    name = PurePosixPath(path).name.lower()
    stem, _, _ = name.partition(".")
    suffix = PurePosixPath(name).suffix
    if suffix in _BY_SUFFIX:
        # LICENSE.txt and LICENSE-MIT.md are licenses, license.py is a program.
        is_license = _BY_NAME.get(re.split(r"[-_.]", name)[0]) == "license"
        return "license" if is_license and suffix in {".txt", ".md", ".rst"} else _BY_SUFFIX[suffix]
    found = _BY_NAME.get(stem)
    # LICENSE.APACHE is a license; METADATA and the like have no suffix.
    return found if not suffix or found == "license" else None


def package_of(path: str) -> str:
    """The top-level package a path belongs to: `click/core.py` and `click-8.1.dist-info/METADATA` are both `click`."""
    first = PurePosixPath(path).parts[0]
    installed = _INSTALLED.fullmatch(first)
    if installed is not None:
        first = installed["name"]
    elif len(PurePosixPath(path).parts) == 1:
        first = PurePosixPath(first).stem
    return re.sub(r"[-_.]+", "_", first).lower()


def text_of(document: Document, file: Path) -> str:
    """The text of a document, at most `TEXT_MAX_CHARS` of it. Raises `UnreadableDocumentError`."""
    try:
        with file.open("rb") as stream:
            content = stream.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableDocumentError(f"cannot be opened: {error.strerror}") from error
    if len(content) > SIZE_MAX_BYTES:
        raise UnreadableDocumentError(f"{document.size_bytes:,} bytes, at most {SIZE_MAX_BYTES:,} are read")
    if hashlib.sha256(content).hexdigest() != document.sha256:
        raise UnreadableDocumentError("changed since it was enqueued")
    return extract(document.format, content)


def extract(format_name: str, content: bytes) -> str:
    """The text in `content`, read as its format demands. Raises `UnreadableDocumentError`."""
    try:
        decoded = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableDocumentError(f"no UTF-8: {error.reason} at byte {error.start:,}") from error
    reader = _READERS.get(format_name, _plain)
    try:
        text = reader(decoded)
    except (ValueError, SyntaxError, RecursionError, MemoryError, csv.Error, AssertionError) as error:
        # Syntax errors of XML, too; html.parser asserts on some broken declarations; nesting may be too deep to parse.
        raise UnreadableDocumentError(f"no valid {format_name}: {str(error) or type(error).__name__}") from error
    # Escapes may spell half a character, which no UTF-8 can carry.
    return text[:TEXT_MAX_CHARS].encode("utf-8", "replace").decode("utf-8")


def _plain(text: str) -> str:
    return text


def _json(text: str) -> str:
    return " ".join(_strings(json.loads(text)))


def _toml(text: str) -> str:
    return " ".join(_strings(tomllib.loads(text)))


def _strings(value: Any) -> Iterator[str]:
    """Every string in a tree of values, the keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _csv(text: str) -> str:
    return " ".join(cell for row in csv.reader(text.splitlines()) for cell in row)


def _xml(text: str) -> str:
    return " ".join("".join(ET.fromstring(text).itertext()).split())


class _TextOfHtml(HTMLParser):
    """Collects the text between the tags."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def _html(text: str) -> str:
    parser = _TextOfHtml()
    parser.feed(text)
    parser.close()
    return " ".join(" ".join(parser.parts).split())


def _metadata(text: str) -> str:
    message = email.parser.Parser().parsestr(text)
    body = message.get_payload()
    headers = [str(message[name]) for name in ("Name", "Summary", "Keywords", "Classifier") if name in message]
    return "\n".join([*headers, body if isinstance(body, str) else ""])


def _python(text: str) -> str:
    """What a program says about itself: the names and docstrings of its classes and functions, nested ones too."""
    said: list[str] = []
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        # Statements only, not what is in them: definitions are all that is looked for.
        match node:
            case ast.Module(body=body):
                said.append(ast.get_docstring(node) or "")
            case ast.ClassDef(name=name, body=body) | ast.FunctionDef(name=name, body=body):
                said += [name, ast.get_docstring(node) or ""]
            case _:
                continue
        waiting += reversed(body)
    return "\n".join(filter(None, said))


_READERS: Final[Mapping[str, Callable[[str], str]]] = {
    "csv": _csv,
    "html": _html,
    "json": _json,
    "metadata": _metadata,
    "python": _python,
    "stub": _python,
    "toml": _toml,
    "xml": _xml,
}
