"""A server for one queue: where it listens, how it starts and how it ends.

It does not own the queue: whoever opened it closes it after `stop`.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from telha_jobs.errors import InvalidArgumentError, QueueUnavailableError
from telha_jobs.queue import JobQueue
from telha_jobs.rpc.dispatcher import Dispatcher
from telha_jobs.rpc.looking import Looker
from telha_jobs.rpc.methods import SERVICE
from telha_jobs.rpc.service import Limits, Service
from telha_jobs.rpc.tokens import Tokens
from telha_jobs.settings import ServerSettings
from telha_jobs.types import State

_MESSAGE_SLACK: Final = 1 << 17
"""What a message has besides payload and progress: headers, names, a key."""
_PEERS_PING_MS: Final = 10_000
_LAST_CALLS_S: Final = 1.0
"""How long calls that are being answered may take when the server ends."""
_STOP_LOOK_S: Final = 0.05

_log = logging.getLogger("telha_jobs")


class Server:
    """A running server. Make it with `Server.start`, in the event loop that it is to run in."""

    def __init__(self, queue: JobQueue, settings: ServerSettings, tokens: Tokens | None) -> None:
        self._queue = queue
        self._settings = settings
        self._dispatcher = Dispatcher(queue.engine)
        self._looker = Looker(queue)
        limits = Limits(settings.calls_max, settings.polls_max, settings.message_bytes_max)
        self.service = Service(queue, self._dispatcher, self._looker, tokens, limits)
        self.service.unavailable = self._unavailable
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            options=_options(settings), maximum_concurrent_rpcs=settings.calls_max + settings.polls_max
        )
        self._server.add_generic_rpc_handlers((self.service.handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self._notices: set[asyncio.Task[None]] = set()
        self.port = 0

    @classmethod
    async def start(cls, queue: JobQueue, settings: ServerSettings) -> "Server":
        """Serve the queue. Raises `InvalidArgumentError` for what cannot be listened on, read, or is not safe."""
        largest = queue.config.payload_bytes_max + queue.config.result_bytes_max + _MESSAGE_SLACK
        if settings.message_bytes_max < largest:
            raise InvalidArgumentError(
                "server.limits.message_bytes_max",
                f"must be at least {largest}, so that a job with the largest payload and progress fits",
            )
        tokens = None if settings.tokens is None else Tokens.load(settings.tokens)
        credentials = _credentials(settings)
        server = cls(queue, settings, tokens)
        try:
            server._bind(credentials)
            await server._server.start()
            await server._tell_health(health_pb2.HealthCheckResponse.SERVING)
        except BaseException:
            await server.stop(0)
            raise
        return server

    @property
    def address(self) -> str:
        """Where it listens, as a client takes it."""
        where = self._settings.listen
        return str(where) if where.path else str(where._replace(port=self.port))

    async def stop(self, grace_s: float) -> None:
        """Grant no more, end polls, take other calls until no lease is out any more or the grace is over; then end.

        May be called again, with less grace, while it is under way.
        """
        self.service.stopping = True
        await self._tell_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._dispatcher.polls.stop()
        until = asyncio.get_running_loop().time() + grace_s
        while asyncio.get_running_loop().time() < until and await self._leases_out():
            await asyncio.sleep(_STOP_LOOK_S)
        await self._end()

    async def stop_now(self) -> None:
        """End at once: calls that are not answered yet end as unavailable."""
        self.service.stopping = True
        self._dispatcher.polls.stop()
        await self._server.stop(0)
        await self._end()

    async def wait(self) -> None:
        """Return when it has ended."""
        await self._server.wait_for_termination()

    # -- inside

    async def _end(self) -> None:
        await self._server.stop(_LAST_CALLS_S)
        await self._dispatcher.drain()
        self._dispatcher.close()
        self._looker.close()

    async def _leases_out(self) -> bool:
        try:
            counts = await self._looker.run(self._queue.counts)
        except QueueUnavailableError:
            return False
        return counts[State.LEASED] > 0

    def _bind(self, credentials: grpc.ServerCredentials | None) -> None:
        where = str(self._settings.listen)
        try:
            if credentials is None:
                self.port = self._server.add_insecure_port(where)
            else:
                self.port = self._server.add_secure_port(where, credentials)
        except RuntimeError as error:
            raise InvalidArgumentError("server.listen", f"{where} cannot be listened on: {error}") from None

    def _unavailable(self) -> None:
        """The queue is gone. Whoever watches the health of this server learns of it; it can but be started again."""
        task = asyncio.get_running_loop().create_task(self._tell_health(health_pb2.HealthCheckResponse.NOT_SERVING))
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _tell_health(self, status: Any) -> None:
        for name in ("", SERVICE):
            await self._health.set(name, status)


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", settings.connections_max),
        ("grpc.so_reuseport", 0),
        # A peer that is gone without a word is found out, and its polls end.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _PEERS_PING_MS),
    ]


def _credentials(settings: ServerSettings) -> grpc.ServerCredentials | None:
    """The server's side of TLS; None without. Beyond this machine it needs one, unless told otherwise."""
    if settings.tls_certificate is None or settings.tls_key is None:
        if not settings.listen.local and not settings.insecure:
            raise InvalidArgumentError(
                "server.listen", f"{settings.listen} is reached from other machines: give a certificate and key"
            )
        return None
    pair = (_file("server.tls.key", settings.tls_key), _file("server.tls.certificate", settings.tls_certificate))
    authority = None if settings.tls_client_ca is None else _file("server.tls.client_ca", settings.tls_client_ca)
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def _file(field: str, path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(field, f"{path} cannot be read: {error.strerror}") from None
    if b"-----BEGIN " not in content:
        raise InvalidArgumentError(field, f"{path} is no PEM file")
    return content
