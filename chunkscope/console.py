"""What people see. stdout is data, stderr is talk; consoles are made per call, not at import."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chunkscope.errors import ChunkscopeError

if TYPE_CHECKING:
    from rich.console import Console


def out() -> "Console":
    """For results. Its width follows the terminal, or 80 columns where there is none."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=False, width=_width())


def show(render: "Callable[[Console], None]") -> None:
    """Print what `render` prints; rich itself would end the program when nobody reads it."""
    console = out()
    with console.capture() as shown:
        render(console)
    sys.stdout.write(shown.get())


def err() -> "Console":
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, width=_width())


def _width() -> int | None:
    """Rich asks the terminal; in a pipe it would wrap at 80, whatever COLUMNS says."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else None


def say(text: str = "") -> None:
    """One line of talk, exactly as it is: no markup, no wrapping."""
    print(text, file=sys.stderr)  # noqa: T201


def emit(data: bytes) -> None:
    """Data for a machine, and nothing else."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def show_error(error: ChunkscopeError) -> None:
    say(f"error: {error.message}")
    if error.hint:
        say(f"\nhint: {error.hint}")


def command() -> tuple[str, ...]:
    """What was typed, for an artefact: bytes of a name that are no UTF-8 are spelled out."""
    words = (os.fsencode(word).decode("utf-8", "backslashreplace") for word in sys.argv[1:])
    return ("chunkscope", *words)


def is_terminal() -> bool:
    return sys.stderr.isatty()


class _Bar:
    """A progress bar for a scan: rows, tokens, MB/s and what remains."""

    def __init__(self, total_bytes: int | None) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._rows = self._tokens = 0
        self._bar = Progress(
            TextColumn("counting"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[done]}"),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=err(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=total_bytes or None, done="")

    def advance(self, *, rows: int, tokens: int, bytes_read: int) -> None:
        self._rows += rows
        self._tokens += tokens
        done = f"{self._rows:,} rows  {self._tokens:,} tokens"
        self._bar.update(self._task, advance=bytes_read, done=done)

    def start(self) -> None:
        self._bar.start()

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator["ProgressHolder"]:
    """A bar that starts when the amount of work is known, and always goes away at the end."""
    holder = ProgressHolder(enabled=is_terminal() and not quiet)
    try:
        yield holder
    finally:
        holder.stop()


class ProgressHolder:
    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._bar: _Bar | None = None

    def start(self, total_bytes: int | None) -> _Bar | None:
        if self._enabled:
            self._bar = _Bar(total_bytes)
            self._bar.start()
        return self._bar

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
