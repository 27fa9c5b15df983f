"""A worker in a process of its own, for lanes that kill and stop it.

    python -m tests.chaos.hand '{"address": ..., "history": ..., "name": "w1", "do": ["lease", "wait", "complete"]}'

It takes its steps in order and says one line on standard output after each, as JSON:

- `lease`: wait for a job; the lease
- `wait`: until a line comes in on standard input
- `complete`: submit a result, its own name; what was told
- `complete unheard`: the same, but it kills itself once the call is sent, and hears no answer
- `stop`: until it is told to end, by SIGTERM
- `release`: give the job back; what was told
- `hang`: for ever
"""

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tests.chaos.history import History
from tests.chaos.remote import Caller

_WAIT_MS = 20_000


def main(told: dict[str, Any]) -> None:
    """Take the steps."""
    name, lease = told["name"], dict[str, Any]()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # for `stop`; before there are threads
    with History(Path(told["history"]), name) as history:
        caller = caller_of(told["address"], history)
        for step in told["do"]:
            said: Any = None
            match step:
                case "lease":
                    [lease] = caller.ask("lease", worker=name, limit=1, wait_ms=_WAIT_MS)
                    said = lease
                case "wait":
                    sys.stdin.readline()
                case "complete":
                    said = caller.ask("complete", **_token(lease), result=name, jobs=[])
                case "complete unheard":
                    caller.unheard("complete", **_token(lease), result=name, jobs=[])
                case "stop":
                    signal.sigwait([signal.SIGTERM])
                case "release":
                    said = caller.ask("release", **_token(lease))
                case "hang":
                    threading.Event().wait()
                case _:
                    raise ValueError(f"{step!r} is no step")
            print(json.dumps({step: said}), flush=True)
        caller.close()


def caller_of(address: str, history: History) -> Any:
    """A caller of the simple channel, or over gRPC."""
    if not address.startswith("unix:"):
        return Caller(address, history)
    from tests.chaos.service import GrpcCaller  # who does not need it does not wait for its import

    return GrpcCaller(address, history)


def _token(lease: dict[str, Any]) -> dict[str, Any]:
    return {"job": lease["job"], "generation": lease["generation"]}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
