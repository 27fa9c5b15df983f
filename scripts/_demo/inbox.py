"""The demo's own area: made anew at each run, with three documents that no worker can read.

They are poison by content only. Nothing in their names or places tells them from the real ones, and no worker knows of
them: each fails while it does its work, is tried again with growing back-off, and ends dead.
"""

import fcntl
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from scripts._demo.documents import SIZE_MAX_BYTES

MARKER: Final = ".telha-demo"
"""The file that says a directory is a demo's own, and is held locked while the demo runs."""
_CONTENTS: Final = ("data", "inbox", "queue.log", "report.json", "states.png")


class NotOursError(Exception):
    """The directory holds something that no demo put there, or another demo is at work in it."""


def prepare(out: Path) -> TextIO:
    """Make `out` a fresh output directory; returns the open marker, whose lock ends with it.

    Raises `NotOursError`; then nothing was touched.
    """
    marker = out / MARKER
    if out.exists() and not out.is_dir():
        raise NotOursError(f"{out} is no directory")
    if out.is_dir() and any(out.iterdir()) and not marker.is_file():
        raise NotOursError(f"{out} is not empty and was not made by scripts/demo: name another with --out")
    out.mkdir(parents=True, exist_ok=True)
    file = marker.open("a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise NotOursError(f"another demo is at work in {out}: wait for it, or name another with --out") from None
    for name in _CONTENTS:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            with suppress(FileNotFoundError):
                path.unlink()
    write_poison(out / "inbox")
    return file


def write_poison(inbox: Path) -> None:
    """Three documents: bytes that are no UTF-8, JSON cut in the middle, and more than the size limit."""
    notes = inbox / "notes"
    notes.mkdir(parents=True)
    prose = "The tiles are laid from the eaves up to the ridge, each over the joint of the two below it.\n"
    (notes / "roofing.md").write_bytes(prose.encode() * 3 + b"Best done at 20\xb0 and in no wind.\n" + prose.encode())
    order: dict[str, Any] = {"order": 1207, "items": [{"tile": "ridge", "count": 48}, {"tile": "eaves", "count": 310}]}
    whole = json.dumps(order, indent=2)
    (notes / "order.json").write_text(whole[: len(whole) * 2 // 3], "utf-8")
    (notes / "minutes.txt").write_text(prose * (SIZE_MAX_BYTES // len(prose) + 1), "utf-8")
