"""How a verification goes on, told on stderr: a line that moves, or one line per phase."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from chunkscope import console


@contextmanager
def verify_progress(*, quiet: bool) -> Iterator["Told"]:
    """The line goes away at the end; nothing is told when quiet."""
    told = Told() if quiet else Moving() if console.is_terminal() else Lines()
    try:
        yield told
    finally:
        told.stop()


class Told:
    """Keeps count of where things are; the others say it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._setting_began = self._began
        self._name, self._number, self._of = "", 0, 0
        self._phase = ""

    def setting(self, name: str, number: int, of: int) -> None:
        self._name, self._number, self._of = name, number, of
        self._setting_began = time.monotonic()

    def phase(self, phase: str, detail: str = "") -> None:
        self._phase = f"{phase}, {detail}" if detail else phase

    def progress(self, done: int, of: int) -> None:
        pass

    def stop(self) -> None:
        pass

    def _remaining(self) -> str:
        """What the settings still to come will take, if they are like those that are done."""
        done = self._number - 1
        if done < 1:
            return ""
        each = (self._setting_began - self._began) / done
        left = each * (self._of - done) - (time.monotonic() - self._setting_began)
        return f"about {_clock(max(0.0, left))} left"


class Lines(Told):
    """In a log: one line whenever something new begins."""

    def phase(self, phase: str, detail: str = "") -> None:
        super().phase(phase, detail)
        elapsed = _clock(time.monotonic() - self._began)
        console.say(f"{elapsed} {self._name} ({self._number} of {self._of}): {self._phase}")


class Moving(Told):
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
            console=console.err(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, count="", left="")
        self._bar.start()

    def phase(self, phase: str, detail: str = "") -> None:
        super().phase(phase, detail)
        self._show(total=None, count="")

    def progress(self, done: int, of: int) -> None:
        self._show(total=of, completed=done, count=f"{done:,} of {of:,}")

    def _show(self, *, total: int | None, count: str, completed: int = 0) -> None:
        described = f"{self._name} ({self._number} of {self._of}): {self._phase}"
        self._bar.update(
            self._task,
            description=described,
            total=total,
            completed=completed,
            count=count,
            left=self._remaining(),
        )

    def stop(self) -> None:
        self._bar.stop()


def _clock(seconds: float) -> str:
    """As a clock shows it.

    >>> _clock(3725)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
