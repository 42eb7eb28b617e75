"""What people see. stdout is data, stderr is talk; consoles are made per call, not at import."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from chunkscope.errors import ChunkscopeError

if TYPE_CHECKING:
    from rich.console import Console

_Told = TypeVar("_Told", "ScanProgress", "VerifyProgress")


# -- what strangers wrote ------------------------------------------------------------------------

_ACTED_ON = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# What a CI runner obeys where a line begins with it; our own annotations go through `emit`.
_COMMAND = re.compile(r"^(\s*)(?=::|##\[)", re.MULTILINE)


def printable(text: str) -> str:
    """A name as it can be written down: valid text, on one line, and nothing a terminal acts on.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    valid = text.encode("utf-8", "replace").decode("utf-8")
    return _ACTED_ON.sub(lambda c: c[0].encode("unicode_escape").decode(), valid)


def _cleaned(text: str) -> str:
    """Lines for people, whoever wrote the words in them."""
    lines = "\n".join(printable(line) for line in text.split("\n"))
    return _COMMAND.sub(r"\1\\", lines)


class _Clean:
    """What a renderable prints, with its text cleaned; colours are rich's own."""

    def __init__(self, renderable: Any) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: "Console", options: Any) -> Iterator[Any]:
        from rich.segment import Segment

        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else _cleaned(text), style, control)


NO_BREAK = "\ue000"  # a blank at which no line is broken; rich breaks at those of Unicode

# -- the two streams -----------------------------------------------------------------------------


def out() -> "Console":
    """For results. Its width follows the terminal, or 80 columns where there is none."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=False, width=_width())


def show(render: "Callable[[Console], None]") -> None:
    """Print what `render` prints; rich itself would end the program when nobody reads it."""
    from rich.console import RenderHook

    class Cleaning(RenderHook):
        def process_renderables(self, renderables: "list[Any]") -> "list[Any]":
            return [_Clean(renderable) for renderable in renderables]

    console = out()
    console.push_render_hook(Cleaning())
    with console.capture() as shown:
        render(console)
    lines = shown.get().replace(NO_BREAK, " ").split("\n")
    sys.stdout.write("\n".join(line.rstrip(" ") for line in lines))


def err() -> "Console":
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, width=_width())


def _width() -> int | None:
    """Rich asks the terminal; in a pipe it would wrap at 80, whatever COLUMNS says."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else None


def say(text: str = "") -> None:
    """One line of talk: no markup, no wrapping."""
    print(_cleaned(text), file=sys.stderr)  # noqa: T201


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


# -- progress ------------------------------------------------------------------------------------


class ScanProgress:
    """How far a scan is, told to nobody: the base of who tells it. Called from several threads."""

    def preparing(self, name: str) -> None:
        """A tokenizer is compiled and checked before anything can be counted."""
        say(f"preparing the tokenizer {name} (once; later runs start at once)")

    def begin(self, total_bytes: int) -> None:
        """What there is to read is known; 0 where it is not."""

    def at(self, *, rows: int, tokens: int, bytes_read: int) -> None:
        """So much is done by now."""

    def stop(self) -> None:
        pass


class _ScanBar(ScanProgress):
    """On a terminal: rows, tokens, MB/s and what remains."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),  # what the others leave of the line
            TextColumn("{task.fields[done]}"),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=err(),
            transient=True,
            expand=True,
        )
        self._total: int | None = None
        self._task = self._bar.add_task("counting", total=None, done="")

    def preparing(self, name: str) -> None:
        # Of a long path its end: the bar needs room to move.
        short = name if len(name) < 25 else name.rstrip("/").rpartition("/")[2]
        said = f"preparing the tokenizer {printable(short)}, once"
        self._bar.update(self._task, description=said, total=None)  # it moves, and tells no end
        self._bar.start()

    def begin(self, total_bytes: int) -> None:
        self._total = total_bytes or None
        self._bar.reset(self._task, total=self._total)
        self._bar.start()

    def at(self, *, rows: int, tokens: int, bytes_read: int) -> None:
        done = f"{rows:,} rows  {tokens:,} tokens"
        self._bar.update(
            self._task,
            description="counting",
            total=self._total,
            completed=bytes_read,
            done=done,
        )

    def stop(self) -> None:
        self._bar.stop()


class VerifyProgress:
    """How far a verification is, told to nobody: the base of who tells it."""

    def __init__(self) -> None:
        self._began = self._setting_began = time.monotonic()
        self._name, self._number, self._of = "", 0, 0
        self._phase = ""

    def setting(self, name: str, number: int, of: int) -> None:
        """Settings are measured one after the other; this one begins."""
        self._name, self._number, self._of = name, number, of
        self._setting_began = time.monotonic()

    def phase(self, phase: str, detail: str = "") -> None:
        """loading, loading weights, compiling and so on, warming up, measuring."""
        self._phase = f"{phase}, {detail}" if detail else phase

    def progress(self, done: int, of: int) -> None:
        """Requests answered in this phase."""

    def stop(self) -> None:
        pass

    def _doing(self) -> str:
        return f"{self._name} ({self._number} of {self._of}): {self._phase}"

    def _remaining(self) -> str:
        """What the settings still to come will take, if they are like those that are done."""
        done = self._number - 1
        if done < 1:
            return ""
        each = (self._setting_began - self._began) / done
        left = each * (self._of - done) - (time.monotonic() - self._setting_began)
        return f"about {_clock(max(0.0, left))} left"


class _VerifyLines(VerifyProgress):
    """In a log: one line whenever something new begins."""

    def phase(self, phase: str, detail: str = "") -> None:
        super().phase(phase, detail)
        say(f"{_clock(time.monotonic() - self._began)} {self._doing()}")


class _VerifyBar(VerifyProgress):
    """On a terminal: one line that moves, with what has passed and what remains."""

    def __init__(self) -> None:
        super().__init__()
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=err(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, count="", left="")
        self._bar.start()

    def phase(self, phase: str, detail: str = "") -> None:
        super().phase(phase, detail)
        self._show(total=None, completed=0, count="")

    def progress(self, done: int, of: int) -> None:
        self._show(total=of, completed=done, count=f"{done:,} of {of:,}")

    def _show(self, *, total: int | None, completed: int, count: str) -> None:
        self._bar.update(
            self._task,
            description=self._doing(),
            total=total,
            completed=completed,
            count=count,
            left=self._remaining(),
        )

    def stop(self) -> None:
        self._bar.stop()


def scan_progress(*, quiet: bool) -> AbstractContextManager[ScanProgress]:
    """A bar on a terminal, else nothing; it goes away at the end."""
    return _stopped(_ScanBar() if is_terminal() and not quiet else ScanProgress())


def verify_progress(*, quiet: bool) -> AbstractContextManager[VerifyProgress]:
    """A line that moves on a terminal, else one line per phase; nothing when quiet."""
    if quiet:
        return _stopped(VerifyProgress())
    return _stopped(_VerifyBar() if is_terminal() else _VerifyLines())


@contextmanager
def sweep_progress(*, quiet: bool) -> Iterator[Callable[[int], Callable[[], None]]]:
    """A bar over the settings of a sweep; it goes away at the end, also on Ctrl-C."""
    if quiet or not is_terminal():
        yield lambda _: lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        TextColumn("simulating"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("settings"),
        console=err(),
        transient=True,
    ) as bar:

        def starting(count: int) -> Callable[[], None]:
            task = bar.add_task("", total=count)
            return lambda: bar.advance(task)

        yield starting


@contextmanager
def _stopped(told: _Told) -> Iterator[_Told]:
    try:
        yield told
    finally:
        told.stop()


def _clock(seconds: float) -> str:
    """As a clock shows it.

    >>> _clock(3725)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
