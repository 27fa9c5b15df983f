"""`telha serve` for the lanes that kill it: the very command, ending with whoever started it.

    python -m tests.chaos.serving [--broken NAME] serve --data DIR --listen unix:SOCKET

`--broken` takes the name of a flaw of `tests.chaos.broken` that the server is started with.
"""

import sys
import threading

from telha_jobs.cli import main
from tests.chaos.server import end_with_parent

if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    if sys.argv[1] == "--broken":
        from tests.chaos.broken import FLAWS

        FLAWS[sys.argv[2]]()
        del sys.argv[1:3]
    main()
