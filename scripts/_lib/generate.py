"""Writes the generated documents, or compares them (`--check`). Exit 0 written or equal, 1 different, 2 usage."""

import argparse
import difflib
import sys
from pathlib import Path

from telha_model.describe import semantics

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(prog="scripts/generate", description="docs/semantics.md from the model's tables")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the file differs")
    check = parser.parse_args().check
    path, wanted = ROOT / "docs/semantics.md", semantics()
    found = path.read_text("utf-8") if path.exists() else ""
    if not check:
        path.write_text(wanted, "utf-8")
        print(f"generate: {path.relative_to(ROOT)} {'is unchanged' if found == wanted else 'written'}")
        return 0
    if found == wanted:
        print("generate: docs/semantics.md is up to date")
        return 0
    sys.stdout.writelines(
        difflib.unified_diff(found.splitlines(keepends=True), wanted.splitlines(keepends=True), "found", "wanted", n=1)
    )
    print("generate: docs/semantics.md differs from the model's tables (run scripts/generate)")
    return 1


if __name__ == "__main__":
    sys.exit(main())
