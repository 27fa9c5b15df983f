"""How a client reaches a server: address, TLS, token, and the options of its connection."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from telha_jobs.errors import InvalidArgumentError
from telha_jobs.rpc.methods import METHODS
from telha_jobs.settings import Address, address

TIMEOUT_S: Final = 30.0
_PathLike = str | PathLike[str]

OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A server that is gone without a word is found out.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # What is sent again is decided here, call by call.
    ("grpc.enable_retries", 0),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
)


@dataclass(frozen=True, kw_only=True)
class TLS:
    """TLS of a client, as paths of PEM files.

    - `ca`: who signs the server; None: those that gRPC trusts.
    - `certificate` and `key`: what the client shows, for mutual TLS.
    - `server_name`: the name in the server's certificate, where it is not the target's.
    """

    ca: _PathLike | None = None
    certificate: _PathLike | None = None
    key: _PathLike | None = None
    server_name: str | None = None


class Endpoint(NamedTuple):
    """A server and how to talk to it."""

    target: str
    credentials: grpc.ChannelCredentials | None
    options: tuple[tuple[str, Any], ...]
    metadata: tuple[tuple[str, str], ...]


def endpoint(target: str, token: str | None, tls: Any, *, insecure: bool) -> Endpoint:
    """The endpoint. Raises `InvalidArgumentError`, also for a token that would travel in the clear."""
    where = _address(target)
    if tls is not None and not isinstance(tls, TLS):
        raise InvalidArgumentError("tls", f"must be a TLS, not {type(tls).__name__}")
    if token is not None and tls is None and not where.local and not insecure:
        raise InvalidArgumentError("token", f"would travel to {where} in the clear: give tls, or insecure=True")
    metadata = () if token is None else (("authorization", f"Bearer {_token(token)}"),)
    options: tuple[tuple[str, Any], ...] = OPTIONS
    if tls is not None and tls.server_name is not None:
        options += (("grpc.ssl_target_name_override", tls.server_name),)
    return Endpoint(str(where), None if tls is None else _credentials(tls), options, metadata)


def stubs(channel: Any) -> dict[str, Any]:
    """Every method as a callable of the channel, whether it is grpc's or grpc.aio's."""
    return {
        name: (channel.unary_stream if method.streams else channel.unary_unary)(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        for name, method in METHODS.items()
    }


def _address(target: str) -> Address:
    try:
        return address(target)
    except ValueError as error:
        raise InvalidArgumentError("target", str(error)) from None


def _token(token: Any) -> str:
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
        raise InvalidArgumentError("token", "must be printable ASCII text")
    return token.strip()


def _credentials(tls: TLS) -> grpc.ChannelCredentials:
    if (tls.certificate is None) != (tls.key is None):
        raise InvalidArgumentError("tls", "certificate and key go together")
    return grpc.ssl_channel_credentials(_pem("ca", tls.ca), _pem("key", tls.key), _pem("certificate", tls.certificate))


def _pem(field: str, path: _PathLike | None) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"tls.{field}", f"{path} cannot be read: {error.strerror}") from None
    if b"-----BEGIN " not in content:
        raise InvalidArgumentError(f"tls.{field}", f"{path} is no PEM file")
    return content
