"""Who is told how a verification goes on: the progress line, or nobody."""

from typing import Protocol


class Listener(Protocol):
    def setting(self, name: str, number: int, of: int) -> None:
        """Settings are measured one after the other; this one begins."""

    def phase(self, phase: str, detail: str = "") -> None:
        """loading, compiling, warming up, measuring."""

    def progress(self, done: int, of: int) -> None:
        """Requests answered in this phase."""


class Nobody:
    """Nobody listens."""

    def setting(self, name: str, number: int, of: int) -> None:
        pass

    def phase(self, phase: str, detail: str = "") -> None:
        pass

    def progress(self, done: int, of: int) -> None:
        pass
