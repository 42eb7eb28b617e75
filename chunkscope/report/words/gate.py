"""What is said of the gate's checks."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import plural
from chunkscope.console import printable
from chunkscope.report.words import Template

if TYPE_CHECKING:
    from chunkscope.gating.verdict import GateResult, Verdict

SENTENCES: dict[str, Template] = {}
MOST_NAMED = 3


def answer(result: "GateResult") -> str:
    count, broken = len(result.verdicts), len(result.broken)
    if broken:
        return f"{broken:,} of {plural(count, 'check')} in {result.budget} fail."
    return f"All {plural(count, 'check')} in {result.budget} pass."


def failure(result: "GateResult") -> str:
    """The error of a gate that says no."""
    broken = result.broken
    named = ", ".join(printable(verdict.title) for verdict in broken[:MOST_NAMED])
    more = f" and {len(broken) - MOST_NAMED:,} more" if len(broken) > MOST_NAMED else ""
    return f"{plural(len(broken), 'check')} failed: {named}{more}"


def found(verdict: "Verdict") -> str:
    return f"{verdict.found} ({verdict.note})" if verdict.note else verdict.found


def remedy(verdicts: "Sequence[Verdict]") -> Iterator[str]:
    first = verdicts[0]
    if first.because:
        names = ", ".join(dict.fromkeys(verdict.promise for verdict in verdicts))
        yield f"{first.because}. Failing because of that: {names}."
    if first.if_intended:
        yield f"If that is intended: {first.if_intended}"


def both(verdict: "Verdict") -> str:
    return f"limit {verdict.promised}, found {verdict.found}"
