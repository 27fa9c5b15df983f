"""A small HTTP server for `/metrics` and `/healthz`, in threads of its own. It takes no bodies and changes nothing."""

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, ClassVar, NamedTuple

_TIMEOUT_S = 10
"""How long a peer may take to send its request; after that its connection is closed."""
_CONNECTIONS_MAX = 32


class Answer(NamedTuple):
    """What is answered to a GET."""

    status: HTTPStatus
    content_type: str
    body: bytes


def text(status: HTTPStatus, words: str) -> Answer:
    """An answer in plain text."""
    return Answer(status, "text/plain; charset=utf-8", f"{words}\n".encode())


class HTTPServerThread:
    """Answers GET and HEAD at `host:port` with what `routes` give for the path; `accept` is the Accept header."""

    def __init__(self, host: str, port: int, routes: dict[str, Callable[[str], Answer]]) -> None:
        handler = type("Handler", (_Handler,), {"routes": routes})
        self._server = _server(host, port, handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="telha-metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port, also when 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer. The address is taken since the constructor."""
        self._thread.start()

    def stop(self) -> None:
        """Give the address back; whoever is being answered is let finish."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    routes: ClassVar[dict[str, Callable[[str], Answer]]]
    timeout: ClassVar[float | None] = _TIMEOUT_S
    server_version = "telha"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class names it so
        """Say nothing: a scrape is no news."""

    def _answer(self, *, body: bool) -> None:
        route = self.routes.get(self.path.partition("?")[0])
        if route is None:
            answer = text(HTTPStatus.NOT_FOUND, f"there are {' and '.join(self.routes)}")
        else:
            answer = route(self.headers.get("Accept", ""))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if body:
            self.wfile.write(answer.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._room = threading.Semaphore(_CONNECTIONS_MAX)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without asking the network for the host's name, as the base class would: it may take its time."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for each connection, but not for more than some: further ones are closed at once."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that went away or was too slow is no error of ours."""


class _Server6(_Server):
    address_family: int = socket.AF_INET6


def _server(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> _Server:
    return (_Server6 if ":" in host else _Server)((host, port), handler)
