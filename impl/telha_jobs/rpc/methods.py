"""The methods of `telha.jobs.v1.Jobs` as data, from the .proto's descriptor; server and client use the same."""

from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from telha_jobs.rpc.v1 import jobs_pb2 as pb

_DESCRIPTOR: Final[Any] = pb.DESCRIPTOR.services_by_name["Jobs"]
SERVICE: Final[str] = _DESCRIPTOR.full_name


class Method(NamedTuple):
    """One method: its path on the wire, and the types of its messages."""

    path: str
    request: type[Message]
    response: type[Message]
    streams: bool


METHODS: Final[dict[str, Method]] = {
    one.name: Method(
        f"/{SERVICE}/{one.name}",
        getattr(pb, one.input_type.name),
        getattr(pb, one.output_type.name),
        one.server_streaming,
    )
    for one in _DESCRIPTOR.methods
}
