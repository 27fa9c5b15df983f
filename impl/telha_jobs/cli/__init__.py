"""`telha`, the command of operators. `docs/operations.md` shows every command at work.

Exit codes: 0 done, 1 refused (nothing was changed by what was refused; the reason is on stderr), 2 usage. stdout
carries data only.
"""

import logging
import sys


def main() -> None:
    """Run `telha` with the arguments of this process, and exit."""
    from telha_jobs.cli.commands import telha
    from telha_jobs.cli.output import NoteHandler

    logging.getLogger("telha_jobs").addHandler(NoteHandler())
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape, rather than the operator a traceback.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    telha(prog_name="telha")
