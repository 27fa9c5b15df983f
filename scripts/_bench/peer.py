"""The peer: a server of grpc.aio that answers each call with what it was sent. `python -m scripts._bench.peer`."""

import asyncio
import signal
import sys
from typing import Any

import grpc

SERVICE = "telha.bench.Echo"
METHOD = f"/{SERVICE}/Echo"


async def echo(request: bytes, _context: Any) -> bytes:
    """The same bytes."""
    return request


async def serve() -> None:
    """Until SIGTERM; prints one line when ready."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"an echo on 127.0.0.1:{port}", flush=True)
    await told.wait()
    await server.stop(0)


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
