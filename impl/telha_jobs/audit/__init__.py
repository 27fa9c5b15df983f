"""The audit: what a queue's event logs tell, held against the rules and against each other (promise 6, in the field).

`replay` takes one job's log through the transition table and compares where it ends with the job; `across` compares
jobs with each other; `lines` are jobs as an export writes them. All judge by public values alone, so that they can be
fed from a database or from an export, and none knows the configuration the queue ran under: what depends on that is
only held to be plausible.
"""

from telha_jobs.audit.across import Across
from telha_jobs.audit.lines import LineError, job_of, row_of
from telha_jobs.audit.replay import Finding, Marks, Replayed, replay

__all__ = ["Across", "Finding", "LineError", "Marks", "Replayed", "job_of", "replay", "row_of"]
