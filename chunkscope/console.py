"""What people see: stdout is data, stderr is talk."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console


# -- what strangers wrote
# ------------------------------------------------------------------------

_ACTED_ON = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# What a CI runner obeys where a line begins with it; our own annotations go through
# `emit`.
_COMMAND = re.compile(r"^(\s*)(?=::|##\[)", re.MULTILINE)


def printable(text: str) -> str:
    """A name as valid text on one line, with nothing that a terminal acts on.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    valid = text.encode("utf-8", "replace").decode("utf-8")
    return _ACTED_ON.sub(lambda c: c[0].encode("unicode_escape").decode(), valid)


def _cleaned(text: str) -> str:
    """Lines for people, whoever wrote the words in them."""
    lines = "\n".join(printable(line) for line in text.split("\n"))
    return _COMMAND.sub(r"\1\\", lines)


Tell = Callable[[Any], None]  # says a Note: its words are made far above
# A blank at which no line is broken; rich breaks lines at those of Unicode.
NO_BREAK = "\ue000"

# -- the two streams
# -----------------------------------------------------------------------------


def rich_console(stream: TextIO) -> "Console":
    """Its width is COLUMNS, else that of the terminal, and 80 in a pipe."""
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) > 0 else None
    return Console(file=stream, highlight=False, width=width)


def show(render: "Callable[[Console], None]") -> None:
    """Print what `render` prints, also where nobody reads it to the end."""
    console = rich_console(sys.stdout)
    with console.capture() as shown:
        render(console)
    text = re.sub(" +$", "", shown.get().replace(NO_BREAK, " "), flags=re.MULTILINE)
    emit(_COMMAND.sub(r"\1\\", text).encode(sys.stdout.encoding, "replace"))


def say(text: str = "") -> None:
    """One line of talk: no markup, no wrapping."""
    with suppress(OSError):  # nobody reads it, or its disk is full
        print(_cleaned(text), file=sys.stderr)  # noqa: T201


def emit(data: bytes) -> None:
    """Write data; where the reader has seen enough (`| head`), the command goes on."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Python would try once more while closing stdout, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Options that do not change what a command makes, and those that make less of it: an
# artefact's command is for making it once more, whole.
_SWITCHES_OF_ONE_RUN = ("--json", "--details", "--quiet", "-q", "--check", "--anyway")
_OPTIONS_OF_ONE_RUN = ("--emit", "--sample")


def command() -> tuple[str, ...]:
    """What was typed, for an artefact, without how to show it and without `--sample`.

    Bytes that are no UTF-8 are spelled.
    """
    words = ["chunkscope"]
    is_value = False  # of the option before, which is left out
    for word in sys.argv[1:]:
        option, equals, _ = word.partition("=")
        if is_value:
            is_value = False
        elif option in _OPTIONS_OF_ONE_RUN:
            is_value = not equals
        elif word not in _SWITCHES_OF_ONE_RUN:
            words.append(os.fsencode(word).decode("utf-8", "backslashreplace"))
    return tuple(words)


def is_terminal() -> bool:
    return sys.stderr.isatty()


# -- progress
# ------------------------------------------------------------------------------------


class Progress:
    """Progress listener that displays nothing. Several threads may call it."""

    tell: Tell = staticmethod(lambda _: None)
    _setting = _last = ""

    def begin(self, total_bytes: int) -> None:
        """What there is to read is known; 0 where it is not."""

    def at(self, *, rows: int, tokens: int, bytes_read: int) -> None:
        """So much is counted by now."""

    def setting(self, name: str, number: int, of: int) -> None:
        """Settings are measured one after the other; this one begins."""
        self._setting = f"{name} ({number} of {of}): "

    def phase(self, phase: str, detail: str = "") -> None:
        """Loading weights, compiling, warming up, measuring and so on."""

    def progress(self, done: int, of: int) -> None:
        """Requests answered in this phase, or settings simulated."""

    def stop(self) -> None:
        """Nothing more comes."""


def _joined(phase: str, detail: str) -> str:
    return f"{phase}, {detail}" if detail else phase


class _Lines(Progress):
    """In a log: one line whenever something new begins."""

    def phase(self, phase: str, detail: str = "") -> None:
        line = self._setting + _joined(phase, detail)
        if line != self._last:
            say(f"{time.strftime('%X')} {line}")
        self._last = line


class _Bar(Progress):
    """On a terminal: one line that moves, and goes away at the end."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._what = ""
        self._total: int | None = None
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=rich_console(sys.stderr),
            transient=True,
            expand=True,
        )
        self._task = self._bar.add_task("", total=None, count="")

    def _show(
        self, what: str, *, total: float | None = None, done: float = 0, count: str
    ) -> None:
        self._bar.start()
        self._bar.update(
            self._task, description=what, total=total, completed=done, count=count
        )

    def begin(self, total_bytes: int) -> None:
        self._total = total_bytes or None
        self._bar.reset(self._task, total=self._total, count="")

    def at(self, *, rows: int, tokens: int, bytes_read: int) -> None:
        count = f"{rows:,} rows  {tokens:,} tokens"
        self._show("counting", total=self._total, done=bytes_read, count=count)

    def phase(self, phase: str, detail: str = "") -> None:
        self._what = self._setting + _joined(phase, detail)
        self._show(self._what, count="")

    def progress(self, done: int, of: int) -> None:
        self._show(self._what, total=of, done=done, count=f"{done:,} of {of:,}")

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def progress(*, quiet: bool = False, tell: Tell = Progress.tell) -> Iterator[Progress]:
    """A bar on a terminal, else a line for each phase; when quiet none of them."""
    bar = Progress()
    if not quiet:
        bar = _Bar() if is_terminal() else _Lines()
    bar.tell = tell
    try:
        yield bar
    finally:
        bar.stop()


@contextmanager
def simulating() -> Iterator[Callable[[], None]]:
    """What to call after each simulated setting; a bar counts them on a terminal."""
    with progress(quiet=not is_terminal()) as bar:
        done = count(1)
        yield lambda: bar.phase("simulating", f"setting {next(done):,}")
