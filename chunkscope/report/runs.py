"""Runs as every report writes them: their figures side by side, their fate, their names."""

from collections.abc import Iterator, Sequence

from chunkscope.artefacts.figures import FIGURES, Figure
from chunkscope.artefacts.numbers import change
from chunkscope.report.words.verdicts import STATUS, shown
from chunkscope.verification.result import Run
from chunkscope.verification.verdict import Outcome, judge, value


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
    return STATUS[run.status]


def titled(run: Run) -> str:
    """A setting by all its names: the same arguments are measured once."""
    return " = ".join((run.setting, *run.same_as))
