"""A step model fitted to measured steps: least squares, and no coefficient below zero."""

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from chunkscope.calibration import StepSamples
from chunkscope.errors import InputError
from chunkscope.step_time import StepModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FEWEST_STEPS = 20
# Tokens that hide behind reading the weights: tried one by one, as that bend is not linear.
FREE_TOKENS = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512)
# A step this many times the spread away from the fit is a hiccup, not a cost.
OUTLIER_SPREADS = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`error`: the median distance from a measured step, as a share of it."""

    step: StepModel
    samples: int
    error: float


def fit_steps(steps: StepSamples, origin: str) -> Fit:
    """Fit twice: the second time without the hiccups that the first one shows."""
    import numpy as np

    if len(steps) < FEWEST_STEPS:
        raise InputError(
            f"the calibration has {len(steps):,} steps: too few to fit a step model to",
            hint="verify with more requests",
        )
    seconds = np.asarray(steps.duration_s, dtype=float)
    columns = _columns(steps)
    keep = np.ones(len(seconds), dtype=bool)
    for _ in range(2):
        free, found = _best(columns, seconds, keep)
        predicted = _features(columns, free) @ found
        distance = np.abs(predicted - seconds) / seconds
        keep = distance <= OUTLIER_SPREADS * max(1e-3, float(np.median(distance)))
    return Fit(
        step=_step(found, free, origin), samples=len(seconds), error=float(np.median(distance))
    )


def _columns(steps: StepSamples) -> "dict[str, Floats]":
    import numpy as np

    prefill, decode = (np.asarray(c) for c in (steps.prefill_tokens, steps.decode_requests))
    return {
        "tokens": (prefill + decode).astype(float),
        "pairs": np.asarray(steps.prefill_pairs, dtype=float),
        "context": np.asarray(steps.decode_context_tokens, dtype=float),
        "requests": (np.asarray(steps.prefill_requests) + decode).astype(float),
    }


def _features(columns: "dict[str, Floats]", free: int) -> "Floats":
    import numpy as np

    tokens = columns["tokens"]
    paid = np.maximum(0.0, tokens - free)
    rest = (columns["pairs"], columns["context"], columns["requests"])
    return np.stack([np.ones_like(tokens), paid, *rest], axis=1)


def _best(
    columns: "dict[str, Floats]", seconds: "Floats", keep: "NDArray[np.bool_]"
) -> "tuple[int, Floats]":
    """The number of free tokens, and the coefficients, that leave the least."""
    tried = []
    # A step's noise grows with its length: half way between absolute and relative errors.
    weight = 1 / seconds[keep] ** 0.5
    for free in FREE_TOKENS:
        features = _features(columns, free)[keep] * weight[:, None]
        left, found = _non_negative(features, seconds[keep] * weight)
        tried.append((left, free, found))
    _, free, found = min(tried, key=lambda one: one[:2])
    return free, found


def _non_negative(features: "Floats", wanted: "Floats") -> "tuple[float, Floats]":
    """Non-negative least squares, by trying every set of columns: there are only five."""
    import numpy as np

    scale = np.maximum(np.abs(features).max(axis=0), 1e-30)
    scaled = features / scale
    gram, side, total = scaled.T @ scaled, scaled.T @ wanted, float(wanted @ wanted)
    best, answer = total, np.zeros(len(scale))
    for size in range(1, len(scale) + 1):
        for chosen in map(list, combinations(range(len(scale)), size)):
            some = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], side[chosen], rcond=1e-12)[0]
            left = total - float(some @ side[chosen])
            if (some >= 0).all() and left < best * (1 - 1e-9):
                best, answer = left, np.zeros(len(scale))
                answer[chosen] = some
    return best, answer / scale


def _step(found: "Floats", free: int, origin: str) -> StepModel:
    fixed, token, pair, context, request = map(float, found)
    return StepModel(
        fixed_s=max(fixed, 1e-6),  # no step takes no time
        per_token_s=token,
        per_prefill_pair_s=pair,
        per_decode_context_s=context,
        per_request_s=request,
        free_tokens=free,
        origin=origin,
    )
