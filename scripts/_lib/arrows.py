"""Holds the arrows that import-linter cannot see, because they concern single files or calls rather than packages.

- `telha_model` imports itself and the standard library, and of that nothing that makes a step depend on more than its
  arguments.
- Only `telha_jobs/clock.py` reads a clock.
- The two towers meet in `tests/harness` and nowhere else.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CLOCK_MODULES = frozenset({"time", "sched", "timeit"})
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})
IMPURE_MODULES = CLOCK_MODULES | {"asyncio", "random", "secrets", "socket", "subprocess", "threading", "uuid"}
TOWERS = frozenset({"telha_jobs", "telha_model"})


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every absolute import, inside functions too."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name.partition(".")[0]) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield node.lineno, module.partition(".")[0]
            case _:
                pass


def clock_reads(tree: ast.AST) -> Iterator[str]:
    """Imports of a clock's module, and calls such as `datetime.now(...)`."""
    for line, package in imports(tree):
        if package in CLOCK_MODULES:
            yield f"{line}: imports {package}, but only clock.py reads a clock"
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name)):
                if owner in {"datetime", "date"} and name in CLOCK_CALLS:
                    yield f"{node.lineno}: calls {owner}.{name}, but only clock.py reads a clock"
            case _:
                pass


def model_impurities(tree: ast.AST) -> Iterator[str]:
    """Imports from outside the standard library, and of its modules that hold clocks, chance or the world."""
    for line, package in imports(tree):
        if package != "telha_model" and package not in sys.stdlib_module_names:
            yield f"{line}: imports {package}, but the model needs nothing but the standard library"
        elif package in IMPURE_MODULES:
            yield f"{line}: imports {package}, but a step of the model depends on its arguments alone"


def meetings(tree: ast.AST) -> Iterator[str]:
    """The second tower's first import in a file that imports both."""
    seen: dict[str, int] = {}
    for line, package in imports(tree):
        if package in TOWERS:
            seen.setdefault(package, line)
    if len(seen) == len(TOWERS):
        yield f"{max(seen.values())}: imports both towers, but they meet in tests/harness only"


def broken(path: str, source: str) -> list[str]:
    """What the file at `path` (relative to the root, with slashes) breaks, one sentence each."""
    tree = ast.parse(source)
    found: list[str] = []
    if path.startswith("model/"):
        found += model_impurities(tree)
    if path.startswith("impl/") and path != "impl/telha_jobs/clock.py":
        found += clock_reads(tree)
    if not path.startswith("tests/harness/"):
        found += meetings(tree)
    return [f"{path}:{sentence}" for sentence in found]


def is_python(path: Path) -> bool:
    """A module, or a command without suffix whose first line names Python."""
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        first = file.readline()
    return first.startswith(b"#!") and b"python" in first


def main(root: Path) -> int:
    """Print the broken arrows under `root`; 1 if there are any."""
    folders = ("impl", "model", "scripts", "tests")
    files = [p for folder in folders for p in sorted((root / folder).rglob("*")) if p.is_file() and is_python(p)]
    found = [line for path in files for line in broken(path.relative_to(root).as_posix(), path.read_text("utf-8"))]
    print("\n".join(found) if found else f"{len(files)} files keep the arrows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[2]))
