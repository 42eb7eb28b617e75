"""A check: one line of the budget held against the artefacts, with both numbers."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from chunkscope._version import __version__
from chunkscope.artefacts import numbers
from chunkscope.artefacts.artefact import Shown, now
from chunkscope.artefacts.note import Fact, Note
from chunkscope.lengths.profile import ALL

SCHEMA = "chunkscope/gate/2"
UNITS: dict[str, numbers.Unit] = {
    "tokens": numbers.TOKENS,
    "count": numbers.COUNT,
    "share": numbers.SHARE,
    "seconds": numbers.SECONDS,
    "GiB": numbers.SIZE,
    "tokens/s": numbers.RATE,
}
Key = tuple[str, ...]  # a place in the budget: ("data", "p95")


class Relation(StrEnum):
    """How a value has to stand to its limit."""

    AT_MOST = "at most"
    AT_LEAST = "at least"
    WITHIN = "within"  # a relative change, either way
    EQUAL = "equal"
    UNCHANGED = "unchanged"
    MADE_FROM = "made from"
    ACCEPTED = "accepted"  # by a vLLM
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that the gate looked at, and whether it is as the budget wants it.

    `subject` is the dataset, setting or file it is about; `key` its place in the budget
    where the name does not say it. `reason` explains the value. `cause` is the stale
    artefact that the value rests on. `remedy` is a command that mends a failed check,
    or that makes today's state the one that is asked for.
    """

    name: str
    passed: bool
    subject: str = ALL
    relation: Relation = Relation.EQUAL
    limit: Fact = None
    value: Fact = None
    unit: str = ""
    reason: Note | None = None
    cause: Note | None = None
    remedy: str = ""
    key: Key = ()

    @property
    def place(self) -> Key:
        return self.key or tuple(self.name.split("."))

    @property
    def title(self) -> str:
        return self.name if self.subject == ALL else f"{self.name} of {self.subject}"

    @property
    def table(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GateResult(Shown):
    """All checks of a budget file, in its order, and the text of the file."""

    budget: Path
    folder: Path
    checks: tuple[Check, ...]
    digests: dict[str, str] = field(default_factory=dict)
    text: str = ""
    created: str = field(default_factory=now)

    @property
    def passed(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    def line_of(self, check: Check) -> int | None:
        """Where the check stands in the budget file; else where its table begins."""
        *tables, key = check.place
        header = ".".join(("gate", *tables))
        inside = False
        line_of_table = None
        for number, line in enumerate(self.text.splitlines(), start=1):
            text = line.replace('"', "").strip()
            if text.startswith("["):
                inside = text.partition("]")[0].endswith(header)
                if inside:
                    line_of_table = number
            elif inside and text.partition("=")[0].strip() == key:
                return number
        return line_of_table

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "chunkscope": __version__,
            "created": self.created,
            "budget": str(self.budget),
            "folder": str(self.folder),
            "artefacts": self.digests,
            "passed": self.passed,
            "failed": len(self.failed),
            "checks": [asdict(check) for check in self.checks],
        }
