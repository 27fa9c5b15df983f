"""What reaches the terminal: data on stdout, everything else on stderr, and nothing that could command it.

Kinds, reasons, payloads and keys come from anybody. Characters that are not printable (controls, escapes, marks that
turn the direction of writing) are shown as their escapes.
"""

import logging
import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EXIT_DONE, EXIT_REFUSED, EXIT_USAGE = 0, 1, 2
EXIT_PIPE = 141
"""The reader of a pipe went away: what a shell reports of a program that SIGPIPE ended."""

_UNBOUNDED_COLUMNS = 10_000


class Refused(click.ClickException):
    """The command was refused; what was refused changed nothing."""

    exit_code = EXIT_REFUSED

    def show(self, file: object = None) -> None:
        del file
        note(self.message)


def safe(text: str) -> str:
    """The text on one line, with every unprintable character as its escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii") for char in text
    )


def many(number: int, noun: str) -> str:
    """`1 job`, `1,234 jobs`."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def note(message: str) -> None:
    """A line for people, on stderr."""
    click.echo(f"telha: {safe(message)}", err=True)


def confirm(question: str) -> None:
    """Ask on stderr; anything but yes, and nobody to answer, is a refusal."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        agreed = False
    if not agreed:
        raise Refused("not confirmed: nothing was changed (--yes does not ask)")


class NoteHandler(logging.Handler):
    """What the library logs at warning or above, as notes."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def line(text: str) -> None:
    """A line of data on stdout. The text must be safe already."""
    try:
        click.echo(text)
    except BrokenPipeError:
        # Nobody reads stdout any more: end quietly, also when Python flushes it at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(EXIT_PIPE) from None


def show(*blocks: "RenderableType") -> None:
    """Print tables and texts on stdout, in colour where the terminal has it."""
    console = _console()
    with console.capture() as captured:
        for block in blocks:
            console.print(block)
    line("\n".join(text.rstrip() for text in captured.get().removesuffix("\n").split("\n")))


def width() -> int:
    """Columns to fill; a pipe or file has no width, so nothing is shortened for it."""
    return _console().width


def _console() -> "Console":
    from rich.console import Console

    columns = None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else _UNBOUNDED_COLUMNS
    return Console(width=columns, markup=False, highlight=False, emoji=False)
