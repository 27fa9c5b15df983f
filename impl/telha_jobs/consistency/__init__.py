"""Whether everything derived follows from the rows (`check`), and making it so (`repair`).

The source of truth is `jobs` and `payloads`, and beside them `quarantine`. Everything else can be rebuilt from these:
`follows` says what follows from a row, `check` compares, `repair` writes.
"""

from telha_jobs.consistency.check import check
from telha_jobs.consistency.directory import check_directory, repair_directory
from telha_jobs.consistency.repair import Repaired, repair

__all__ = ["Repaired", "check", "check_directory", "repair", "repair_directory"]
