"""A queue that a server owns (`telha serve`), used like one's own. Needs the extra `[server]`.

    from telha_jobs.client import connect

    with connect("127.0.0.1:7700") as queue:
        queue.enqueue(scope, "embed", {"document": 7})
        lease = queue.lease_next("worker-1", wait_ms=5_000)
        queue.complete(lease, {"vectors": 12})

`Client` is a `telha_jobs.protocol.Queue`, as `JobQueue` is: code moves by changing the line that opens the queue.
`connect_async` gives the same for an event loop. docs/client.md says what the wire adds: deadlines, what is sent again
and what is not, tokens, TLS.
"""

from telha_jobs.client.asynchronous import AsyncClient
from telha_jobs.client.blocking import Client, Told
from telha_jobs.client.channel import TIMEOUT_S, TLS, endpoint
from telha_jobs.rpc.status import RemoteRefusalError

__all__ = ["TLS", "AsyncClient", "Client", "RemoteRefusalError", "connect", "connect_async"]


def connect(
    target: str,
    *,
    token: str | None = None,
    tls: TLS | None = None,
    timeout_s: float = TIMEOUT_S,
    wait: bool = True,
    insecure: bool = False,
    told: Told | None = None,
) -> Client:
    """A client of the server at `target`: `127.0.0.1:7700`, `[::1]:7700`, `unix:/run/telha.sock`.

    Nothing is sent before the first call. Raises `InvalidArgumentError`.

    - `token`: who calls. It is not sent in the clear beyond this machine, unless `insecure` says so.
    - `tls`: how to check the server, and what to show it.
    - `timeout_s`: how long a call may take, all attempts together.
    - `wait`: whether calls wait for a server that is not there (yet), and are sent again where that is safe.
    - `told`: called with the method and the trailing metadata of every answer: `telha-commit-seq` and the like.
    """
    return Client(endpoint(target, token, tls, insecure=insecure), timeout_s=timeout_s, wait=wait, told=told)


def connect_async(
    target: str,
    *,
    token: str | None = None,
    tls: TLS | None = None,
    timeout_s: float = TIMEOUT_S,
    wait: bool = True,
    insecure: bool = False,
    told: Told | None = None,
) -> AsyncClient:
    """The same for code in an event loop; call it there."""
    return AsyncClient(endpoint(target, token, tls, insecure=insecure), timeout_s=timeout_s, wait=wait, told=told)
