"""Holds what makes the repository install and run elsewhere: exact pins, no addresses, no paths of one machine.

- Every line of constraints.txt is `name==version`: no address, no hash, no range.
- Every package that pyproject.toml asks for is pinned there, the build backend too.
- No tracked text file names a folder under a home, root or work directory of some machine.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==[0-9][A-Za-z0-9.!+]*")
MACHINE_PATH = re.compile(r"(?<![\w.:/~-])/(?:home|root|Users|work|tmp/plan)/[A-Za-z0-9._-]+")


def normalised(name: str) -> str:
    """The name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(constraints: str) -> tuple[set[str], list[str]]:
    """Normalised names of the pins, and a sentence for each line that is none."""
    names: set[str] = set()
    wrong: list[str] = []
    for number, line in enumerate(constraints.splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = PIN.fullmatch(text)
        if match is None:
            wrong.append(f"constraints.txt:{number}: {text!r} is no exact pin (name==version)")
        else:
            names.add(normalised(match["name"]))
    return names, wrong


def unpinned(pyproject: str, names: set[str]) -> Iterator[str]:
    """A sentence for each package that the project file asks for and `names` lacks."""
    data = tomllib.loads(pyproject)
    asked = [*data["build-system"]["requires"], *data["project"]["dependencies"]]
    for extra in data["project"]["optional-dependencies"].values():
        asked += extra
    for requirement in asked:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name is not None and normalised(name[0]) not in names:
            yield f"pyproject.toml: {requirement!r} has no pin in constraints.txt"


def machine_paths(root: Path) -> Iterator[str]:
    """Tracked lines that name a folder of one machine."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True).stdout
    for name in filter(None, listing.decode().split("\0")):
        path = root / name
        if not path.is_file():
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not text: a picture or a recorded database
        for number, line in enumerate(text.splitlines(), 1):
            found = MACHINE_PATH.search(line)
            if found is not None:
                yield f"{name}:{number}: names {found[0]}, a path of one machine"


def main(root: Path) -> int:
    """Print what would not hold on another machine; 1 if anything."""
    names, found = pinned((root / "constraints.txt").read_text("utf-8"))
    found += unpinned((root / "pyproject.toml").read_text("utf-8"), names)
    found += machine_paths(root)
    print("\n".join(found) if found else f"{len(names)} exact pins, no machine paths")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[2]))
