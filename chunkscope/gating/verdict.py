"""What became of a promise: kept or broken, with both numbers."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.artefact import now
from chunkscope.artefacts.figures import Better
from chunkscope.artefacts.units import Unit, exceeds
from chunkscope.errors import InputError
from chunkscope.lengths.profile import ALL

SCHEMA = "chunkscope/gate/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`subject`: the dataset, setting or file concerned. `where`: the key in the budget file.

    Of a broken one, `because`: the stale artefact that it rests on; `if_intended`: what to run.
    """

    promise: str
    subject: str
    kept: bool
    promised: str
    found: str
    promised_value: Any = None
    found_value: Any = None
    note: str = ""
    because: str = ""
    if_intended: str = ""
    where: tuple[str, ...] = ()
    is_doubted: bool = False  # what was found is of a part of the data

    @property
    def title(self) -> str:
        return f"{self.promise} of {self.subject}"

    @property
    def both(self) -> str:
        return f"promised {self.promised}, found {self.found}"

    @property
    def told(self) -> str:
        return f"{self.both} ({self.note})" if self.note else self.both

    @property
    def advice(self) -> str:
        return f"If that is intended: `{self.if_intended}`" if self.if_intended else ""

    @property
    def key(self) -> tuple[str, ...]:
        return self.where or tuple(self.promise.split("."))

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in _INSIDE}


_INSIDE = ("where", "is_doubted")


def limited(
    promise: str,
    limit: float,
    found: float | None,
    unit: Unit,
    *,
    better: Better = Better.LESS,
    **more: Any,
) -> Verdict:
    """Kept when what was found is not worse than the limit. Not known is not kept."""
    at_least = better is Better.MORE
    if at_least and limit <= 0:
        raise InputError(f"{promise}: at least {unit.write(limit)} promises nothing")
    kept = found is not None and not (exceeds(limit, found) if at_least else exceeds(found, limit))
    promised, seen = unit.write_both(limit, found)
    relation = "at least" if at_least else "at most"
    told = {"subject": ALL, "promised": f"{relation} {promised}", "found": seen, **more}
    return Verdict(promise=promise, kept=kept, promised_value=limit, found_value=found, **told)


def doubted(verdict: Verdict, doubt: str) -> Verdict:
    """A figure of a part of the data is no evidence about the whole."""
    return replace(verdict, kept=False, note=doubt, is_doubted=True) if doubt else verdict


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GateResult:
    """All promises of a budget file, in its order. `lines` is where each stands in the file.

    >>> GateResult(budget=Path("chunkscope.toml"), folder=Path("reports"), verdicts=()).kept
    True
    """

    budget: Path
    folder: Path
    verdicts: tuple[Verdict, ...]
    digests: dict[str, str] = field(default_factory=dict)
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    created: str = field(default_factory=now)

    @property
    def kept(self) -> bool:
        return not self.broken

    def __repr__(self) -> str:
        return f"<GateResult of {self.budget}: {self.headline}>"

    @property
    def broken(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if not verdict.kept)

    @property
    def headline(self) -> str:
        count, broken = len(self.verdicts), len(self.broken)
        if not broken:
            return f"{count:,} promises kept" if count > 1 else "the one promise is kept"
        return f"{broken:,} of {count:,} promises broken"

    def to_json(self) -> dict[str, Any]:
        from chunkscope._version import __version__

        return {
            "schema": SCHEMA,
            "chunkscope": __version__,
            "created": self.created,
            "budget": str(self.budget),
            "folder": str(self.folder),
            "artefacts": self.digests,
            "kept": self.kept,
            "promises": len(self.verdicts),
            "broken": len(self.broken),
            "notes": list(self.notes),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
        }
