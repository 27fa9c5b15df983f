"""`telha serve` and `telha token`. What they need beyond the embedded queue comes with the extra `[server]`."""

import asyncio
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from telha_jobs.cli import whereabouts
from telha_jobs.cli.access import refusals
from telha_jobs.cli.configuring import settings_of, settings_options
from telha_jobs.cli.options import examples
from telha_jobs.cli.output import Refused, line, note, safe
from telha_jobs.errors import InvalidArgumentError
from telha_jobs.queue import JobQueue
from telha_jobs.settings import Address, Flag, ServerSettings

if TYPE_CHECKING:
    from telha_jobs.metrics import Metrics
    from telha_jobs.rpc.server import Server

_ROLES: Final = ("producer", "worker", "operator")
_EXTRA: Final = frozenset({"google", "grpc", "grpc_health", "grpc_reflection", "prometheus_client"})


@click.command(
    short_help="Serve a queue over gRPC.",
    epilog=examples(
        "telha serve --data /var/lib/engine/jobs",
        "telha serve --data /var/lib/engine/jobs --listen unix:/run/telha.sock --metrics 127.0.0.1:7701",
        "telha serve --data /var/lib/engine/jobs --config /etc/telha.toml --set jobs.lease_ttl=10m",
    ),
)
@click.option("--listen", metavar="ADDRESS", help="127.0.0.1:7700, [::1]:7700 or unix:/run/telha.sock.")
@click.option("--metrics", metavar="ADDRESS", help="Where /metrics and /healthz are answered.")
@click.option("--tokens", metavar="FILE", help="The tokens that may call (see telha token).")
@click.option("--insecure", is_flag=True, default=None, help="Listen beyond this machine without TLS all the same.")
@settings_options
@click.option(
    "--data", metavar="DIR", envvar="TELHA_DATA", required=True, help="The queue's directory.  [env: TELHA_DATA]"
)
def serve(
    data: str,
    listen: str | None,
    metrics: str | None,
    tokens: str | None,
    config: str | None,
    assignments: Sequence[str],
    *,
    insecure: bool | None,
) -> None:
    """Serve the queue in DIR to other processes, until SIGTERM or SIGINT. Makes the queue if there is none.

    Prints one line when it is ready. On the first signal it grants no more, takes submits until no lease is out or
    server.grace is over, and closes the database; on the second it ends at once. Listens on this machine only, unless
    it has a certificate (server.tls) or --insecure.
    """
    given = {"server.listen": listen, "server.metrics": metrics, "server.tokens": tokens, "server.insecure": insecure}
    flags = [Flag(key, value, f"--{key.partition('.')[2]}") for key, value in given.items() if value is not None]
    found = settings_of(config, assignments, flags)
    server_class, metrics_class = _classes()
    with refusals(), JobQueue.open(data, config=found.queue) as queue:
        measured = metrics_class(queue) if found.server.metrics is not None else None
        try:
            queue.start_reaper()
            asyncio.run(_serve(server_class, queue, found.server, data, measured))
        finally:
            if measured is not None:
                measured.stop()
    note("the queue is closed")


@click.command(
    short_help="Make a token for callers of a server.",
    epilog=examples("telha token ingest --role worker --scope 3f1c5a52-0e57-4c8e-9d1d-2f6f6f3f0f11 >>tokens.toml"),
)
@click.argument("name")
@click.option(
    "--role", "roles", type=click.Choice(_ROLES), multiple=True, required=True, help="May be given several times."
)
@click.option("--scope", "scopes", type=click.UUID, multiple=True, help="May be given several times.  [default: every]")
def token(name: str, roles: Sequence[str], scopes: Sequence[object]) -> None:
    """Make a token, and print the entry by which a server's file of tokens knows it; the token itself on stderr.

    It is shown this once: the file has its hash only.
    """
    import hashlib
    import json
    import secrets

    made = secrets.token_urlsafe(32)
    listed = json.dumps([str(scope) for scope in scopes]) if scopes else '"*"'
    line("[[tokens]]")
    line(f"name = {json.dumps(name)}")
    line(f'sha256 = "{hashlib.sha256(made.encode()).hexdigest()}"')
    line(f"roles = {json.dumps(list(roles))}")
    line(f"scopes = {listed}")
    line("")
    note(f"the token: {made}")


def _classes() -> "tuple[type[Server], type[Metrics]]":
    """What serves and what measures."""
    try:
        from telha_jobs.metrics import Metrics
        from telha_jobs.rpc.server import Server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        missing = f"{error.name} is missing"
        raise Refused(f"serve needs the extra [server] ({missing}): pip install 'telha-jobs[server]'") from None
    return Server, Metrics


async def _serve(
    server_class: "type[Server]", queue: JobQueue, settings: ServerSettings, data: str, metrics: "Metrics | None"
) -> None:
    """Serve until told to stop; twice told, at once."""
    told: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, told.put_nowait, one)
    server = await server_class.start(queue, settings)
    try:
        with whereabouts.told(data, server.address, tls=settings.tls_key is not None):
            line(f"telha serves {safe(data)} on {server.address}{_measured(metrics, settings.metrics)}")
            name = (await told.get()).name
            note(f"{name}: stopping, leases may be submitted for {settings.grace_ms / 1_000:g} s more")
    finally:
        if metrics is not None:
            metrics.unwell("the server is stopping")
        stopping = loop.create_task(server.stop(settings.grace_ms / 1_000))
        again = loop.create_task(told.get())
        await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
        if again.done():
            note(f"{again.result().name} again: ending at once")
            stopping.cancel()
            await server.stop_now()
        again.cancel()


def _measured(metrics: "Metrics | None", where: Address | None) -> str:
    """Have the metrics answered; where, as a part of the line that says so."""
    if metrics is None or where is None:
        return ""
    try:
        port = metrics.serve(where.host, where.port)
    except OSError as error:
        raise InvalidArgumentError("server.metrics", f"{where} cannot be listened on: {error}") from None
    return f", metrics on {where._replace(port=port)}"
