"""Loaded by every Python that starts with this folder on its path: applies the mutant named in the environment.

`TELHA_MUTANT` is JSON: the module, the text to replace and its replacement. The module's source is changed as it is
imported, nothing on disk is. A text that does not stand there exactly once ends the process with code 3, so that a
mutant which no longer applies can never pass for a killed one. Knows nothing of the repository: processes that tests
start load it too.
"""

import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, ModuleType

NOT_APPLIED = 3


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module with its source changed, never from a cache."""

    old = ""
    new = ""

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode("utf-8")
        if source.count(self.old) != 1:
            sys.stderr.write(f"mutant does not apply: {fullname} has {source.count(self.old)} places like it\n")
            sys.stderr.flush()
            os._exit(NOT_APPLIED)
        return compile(source.replace(self.old, self.new), self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, module: str, old: str, new: str) -> None:
        self._module = module
        self._old = old
        self._new = new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        loader = _Changed(fullname, spec.origin)
        loader.old, loader.new = self._old, self._new
        spec.loader = loader
        return spec


def _install() -> None:
    told = os.environ.get("TELHA_MUTANT")
    if told is not None:
        mutant = json.loads(told)
        sys.meta_path.insert(0, _Finder(mutant["module"], mutant["old"], mutant["new"]))


_install()
