"""How a run did beside another: better, worse or a tie, figure by figure."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from chunkscope.artefacts.figures import FIGURES, Better, Figure
from chunkscope.artefacts.numbers import NOT_MEASURED, change
from chunkscope.engine.logs import Status
from chunkscope.verification.result import Run
from chunkscope.verification.verdict import is_tie, value

# Memory is read off once per run: there is no spread, and less than this is no difference.
NEGLIGIBLE = 0.02
FATES = {
    Status.OK: "ok",
    Status.OUT_OF_MEMORY: "out of memory",
    Status.TIMEOUT: "timed out",
    Status.REFUSED: "refused by vLLM",
    Status.DIED: "the engine died",
}


class Outcome(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    TIE = "tie"
    UNKNOWN = "unknown"  # not measured on one side, or neither way is better


def judge(figure: Figure, run: Run, against: Run) -> Outcome:
    """Is `run` better? A difference within the spread over repeats is a tie."""
    mine, other = value(run, figure), value(against, figure)
    if mine is None or other is None or figure.better is Better.NEITHER:
        return Outcome.UNKNOWN
    if figure.once:
        noise = abs(mine - other) <= NEGLIGIBLE * abs(other)
    else:
        noise = is_tie(run, against, figure)
    if mine == other or noise:
        return Outcome.TIE
    return Outcome.BETTER if (mine < other) is (figure.better is Better.LESS) else Outcome.WORSE


def shown(figure: Figure, run: Run) -> str:
    found = value(run, figure)
    return NOT_MEASURED if found is None else figure.unit.brief(found)


def beside(figure: Figure, run: Run, first: Run) -> tuple[str, str, Outcome]:
    """As it is written, by how much it differs from the first run's, and how to take that."""
    mine, other = value(run, figure), value(first, figure)
    outcome = judge(figure, run, first)
    by = "" if mine == other else "tie" if outcome is Outcome.TIE else change(other, mine)
    return shown(figure, run), by if mine is not None else "", outcome


def measured(runs: Sequence[Run]) -> Iterator[Figure]:
    """The figures that at least one run has: a row of "not measured" alone says nothing."""
    for figure in FIGURES:
        if any(value(run, figure) is not None for run in runs):
            yield figure


def fate(run: Run) -> str:
    """What became of a run, in words."""
    return FATES[run.status]


def titled(run: Run) -> str:
    """A setting by all its names: the same arguments are measured once.

    >>> about = {"args": {}, "status": Status.OK, "started": "", "took_s": 9.0}
    >>> titled(Run(setting="plan", same_as=("off",), **about))
    'plan = off'
    """
    return " = ".join((run.setting, *run.same_as))
