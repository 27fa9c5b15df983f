"""Writes the generated files, or compares them (`--check`). Exit 0 written or equal, 1 different, 2 usage."""

import argparse
import difflib
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final

from grpc_tools import protoc

from telha_model.describe import semantics
from telha_model.trace_schema import schema

ROOT: Final = Path(__file__).parents[2]


def trace_schema() -> str:
    """The schema of traces as a file."""
    return json.dumps(schema(), indent=1) + "\n"


PROTO: Final = "telha_jobs/rpc/v1/jobs.proto"
MESSAGES: Final = ("telha_jobs/rpc/v1/jobs_pb2.py", "telha_jobs/rpc/v1/jobs_pb2.pyi")


@cache
def messages() -> dict[str, str]:
    """The Python code of the wire's messages, by file."""
    source = ROOT / "impl"
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--proto_path={source}", f"--python_out={folder}", f"--pyi_out={folder}", str(source / PROTO)]
        if protoc.main(["protoc", *options]):
            sys.exit(1)  # it has said why
        return {name: (Path(folder) / name).read_text("utf-8") for name in MESSAGES}


def message_code(name: str) -> str:
    """One file of it."""
    return messages()[name]


DOCUMENTS: Final[dict[str, Callable[[], str]]] = {
    "docs/semantics.md": semantics,
    "docs/traces.schema.json": trace_schema,
    **{f"impl/{name}": partial(message_code, name) for name in MESSAGES},
}


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(
        prog="scripts/generate",
        description=f"From the model's tables and types, and from the .proto: {', '.join(DOCUMENTS)}",
    )
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a file differs")
    check = parser.parse_args().check
    differing = [name for name, text in DOCUMENTS.items() if differs(name, text(), check=check)]
    if not differing:
        print(f"generate: {', '.join(DOCUMENTS)} are up to date")
    elif check:
        print(f"generate: {', '.join(differing)} differ from their source (run scripts/generate)")
    else:
        print(f"generate: {', '.join(differing)} written")
    return 1 if check and differing else 0


def differs(name: str, wanted: str, *, check: bool) -> bool:
    """Whether a file is not as wanted: then it is written, or (`check`) the difference is printed."""
    path = ROOT / name
    found = path.read_text("utf-8") if path.exists() else ""
    if found == wanted:
        return False
    if check:
        lines = [text.splitlines(keepends=True) for text in (found, wanted)]
        sys.stdout.writelines(difflib.unified_diff(lines[0], lines[1], "found", "wanted", n=1))
    else:
        path.write_text(wanted, "utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main())
