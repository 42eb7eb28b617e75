"""One run beside another, figure by figure: better, worse, or no more than noise."""

from enum import StrEnum

from chunkscope.artefacts.figures import BY_KEY, Better, Figure, Group
from chunkscope.artefacts.numbers import NOT_MEASURED, change
from chunkscope.planning.search import WORTH
from chunkscope.verification.result import Run

TIE_OF_ONE = 0.05  # with a single repeat nobody knows the spread: smaller differences are ties
# Memory is read off once per run: there is no spread, and less than this is no difference.
NEGLIGIBLE = 0.02
# What people ask of a setting; the rest explains it.
ASKED_OF_A_SETTING = tuple(
    BY_KEY[key]
    for key in (
        *("makespan_s", "output_tokens_per_s", "ttft_s.p50", "ttft_s.p95"),
        *("itl_s.p50", "itl_s.p95", "itl_s.p99", "itl_s.max", "e2e_s.p95"),
        *("activation_peak_gib", "kv_cache_tokens", "preemptions"),
    )
)


class Outcome(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    TIE = "tie"
    UNKNOWN = "unknown"  # not measured on one side, or neither way is better


def value(run: Run, figure: Figure) -> float | None:
    """None where it was not measured."""
    return figure.value(run if figure.once else run.figures)


def shown(figure: Figure, run: Run) -> str:
    found = value(run, figure)
    if found is None and figure.group is Group.OUTPUTS and run.outputs is not None:
        return "none" if run.outputs.beside else "the reference"
    return NOT_MEASURED if found is None else figure.unit.brief(found)


def spread(run: Run, figure: Figure) -> tuple[float, float] | None:
    """Least and most over the repeats."""
    values = [found for r in run.repeats if (found := figure.value(r)) is not None]
    return (min(values), max(values)) if values else None


def ratio(run: Run, first: Run, figure: Figure) -> float | None:
    ours, theirs = value(run, figure), value(first, figure)
    return ours / theirs if ours is not None and theirs else None


def is_tie(run: Run, other: Run, figure: Figure) -> bool:
    """Their spreads overlap; with one repeat, they are close."""
    ours, theirs = spread(run, figure), spread(other, figure)
    if ours is None or theirs is None:
        return False
    if min(len(run.repeats), len(other.repeats)) == 1:
        return abs(ours[0] / theirs[0] - 1) < TIE_OF_ONE if theirs[0] else True
    return ours[0] <= theirs[1] and theirs[0] <= ours[1]


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


def against(mine: Run, other: Run, *, said: Figure | None = None) -> str:
    """What is better, what is worse, and what makes no difference; not what is `said` already."""
    found = [pair for pair in judged(mine, other) if pair[0] is not said]
    parts = [
        f"{word}: {', '.join(difference(figure, mine, other) for figure in figures)}"
        for word in (Outcome.BETTER, Outcome.WORSE)
        if (figures := [figure for figure, outcome in found if outcome is word])
    ]
    if any(outcome is Outcome.TIE for _, outcome in found):
        parts.append("a tie in all else" if parts or said else "a tie in every figure")
    return f"Against {other.setting}, {'; '.join(parts) or 'nothing to compare'}."


def judged(mine: Run, other: Run) -> list[tuple[Figure, Outcome]]:
    """What people ask of a setting, each with how it turned out."""
    return [(figure, _outcome(figure, mine, other)) for figure in ASKED_OF_A_SETTING]


def _outcome(figure: Figure, mine: Run, other: Run) -> Outcome:
    """As `judge` says, and a tie where it is too little to act on."""
    found, times = judge(figure, mine, other), ratio(mine, other, figure)
    is_little = times is not None and abs(times - 1) < WORTH
    return Outcome.TIE if is_little and found is not Outcome.UNKNOWN else found


def difference(figure: Figure, mine: Run, other: Run) -> str:
    by = change(value(other, figure), value(mine, figure))
    by = f" ({by})" if by else ""
    return f"{figure.title} {shown(figure, mine)} instead of {shown(figure, other)}{by}"
