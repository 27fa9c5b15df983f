"""Holds the sizes: a module has at most 400 lines and a function at most 60, docstrings included.

A size is no virtue in itself; past these a module is rarely one idea, and a function rarely one step. Generated
modules (`*_pb2*`) are left out.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
FOLDERS = ("impl", "model", "tests/harness")


def oversized(source: str) -> Iterator[str]:
    """One sentence for the module if it is too long, and one for each function that is."""
    lines = len(source.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"1: the module has {lines} lines, at most {MODULE_LINES_MAX}"
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
            continue
        length = node.end_lineno - node.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def main(root: Path) -> int:
    """Print what is too long under `root`; 1 if anything is."""
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py")) if "_pb2" not in path.name]
    found = [f"{path.relative_to(root)}:{line}" for path in files for line in oversized(path.read_text("utf-8"))]
    print("\n".join(found) if found else f"{len(files)} modules are within the sizes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[2]))
