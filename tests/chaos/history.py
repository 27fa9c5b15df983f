"""The record of a run, kept outside the database: what was about to be asked, and what was answered.

A file of lines, one JSON object each (NDJSON):

    {"say": "intent", "id": "p1-7", "at": 1.25, "call": "enqueue", "given": {...}}
    {"say": "outcome", "id": "p1-7", "at": 1.26, "told": {...}}
    {"say": "note", "at": 2.5, "what": "killed", "data": {...}}

An intent is on disk (fsync) before the call it announces is made, an outcome follows once the answer is known. So a
call of which there is an intent and no outcome may have happened or not: nobody was told. `at` is seconds of the
system's monotonic clock, the same for every process of a run; `id` is unique in it. A line is written in one piece, so
that several processes can share a file; a last line without its end was cut by a kill and is no line.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self


class Call(NamedTuple):
    """A call of the history. `told` and `told_at` are None while nobody knows what came of it."""

    id: str
    call: str
    given: dict[str, Any]
    asked_at: float
    told: dict[str, Any] | None
    told_at: float | None


class Note(NamedTuple):
    """Something that happened around the calls: an open, a kill."""

    what: str
    data: dict[str, Any]
    at: float


class History:
    """Writes a run's history. `writer` makes the ids of several writers of one file different. Thread-safe."""

    def __init__(self, path: Path, writer: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._writer = writer
        self._lock = threading.Lock()
        self._calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def intent(self, call: str, given: dict[str, Any]) -> str:
        """Announce a call, durably; its id."""
        with self._lock:
            self._calls += 1
            name = f"{self._writer}-{self._calls}"
        self._write({"say": "intent", "id": name, "at": _now(), "call": call, "given": given})
        os.fsync(self._fd)
        return name

    def outcome(self, name: str, told: dict[str, Any]) -> None:
        """What the call of that id was told, refusals included."""
        self._write({"say": "outcome", "id": name, "at": _now(), "told": told})

    def note(self, what: str, **data: Any) -> None:
        """Something else that whoever judges has to know."""
        self._write({"say": "note", "at": _now(), "what": what, "data": data})

    def close(self) -> None:
        """Nothing is written any more."""
        os.close(self._fd)

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._fd, json.dumps(line, ensure_ascii=False).encode() + b"\n")


def read(path: Path) -> list[Call | Note]:
    """A history in the order of its lines; calls stand where their intent does, each with its outcome if it has one.

    Raises ValueError for an outcome without intent or a second one.
    """
    found: list[Call | Note] = []
    places: dict[str, int] = {}
    for line in _lines(path):
        match line["say"]:
            case "intent":
                places[line["id"]] = len(found)
                found.append(Call(line["id"], line["call"], line["given"], line["at"], None, None))
            case "outcome":
                place = places.pop(line["id"], None)
                call = None if place is None else found[place]
                if place is None or not isinstance(call, Call):
                    raise ValueError(f"{path}: {line['id']} has an outcome too many")
                found[place] = call._replace(told=line["told"], told_at=line["at"])
            case "note":
                found.append(Note(line["what"], line["data"], line["at"]))
            case other:
                raise ValueError(f"{path}: a line says {other!r}, which means nothing")
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    *whole, _ = path.read_bytes().split(b"\n")
    for line in whole:
        yield json.loads(line)


def _now() -> float:
    return round(time.monotonic(), 6)
