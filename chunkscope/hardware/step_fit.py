"""A step model fitted to measured steps: the least sum of distances, no coefficient below zero.

Distances, not squares: a step that something else held up must not move the others. With async
scheduling a step takes as long as the GPU or the host, whichever is slower. Which of the two it was
is not measured: it is guessed, both are fitted, and the guess is made again from that. What the
steps do not show stays near what is known of other engines (`prior`).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from chunkscope.errors import InputError
from chunkscope.hardware.calibration import COLUMNS, StepSamples
from chunkscope.hardware.step_time import Host, StepModel, paid_tokens

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Kinds = dict[str, Floats]
FEWEST_STEPS = 20
# Tokens that hide behind reading the weights: tried one by one, as that bend is not linear.
FREE_TOKENS = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512)
# A kind of step that was seen so often is known: more of it do not make it weigh more.
ENOUGH_STEPS = 8
# What is known of other engines weighs as much as so many measured steps.
PRIOR_STEPS = 3
# The first guess at where the host was slower: in steps of so many requests that read little.
HOST_REQUESTS, MOST_GUESSES = 256, 12
# Distances up to this share of a step count by their squares, longer ones by their length: squares
# are divided by the distance that the try before left.
NEAR, TRIES = 0.02, 6


def fit_steps(
    steps: StepSamples, *, expert_share: float = 0.0, prior: StepModel | None = None
) -> tuple[StepModel, float]:
    """The model, and its median distance from a measured step, as a share of it.

    `prior`, where the host works beside the GPU: what both take elsewhere, 0 where that is not
    known. None fits one sum. `expert_share`: of all experts, what one token chooses. Windows are
    not seen: steps are recorded with all that is before a token.
    """
    kinds = kinds_of(steps, only_settled=prior is not None)
    if len(steps) < FEWEST_STEPS or kinds["steps"].sum() < FEWEST_STEPS // 2:
        few = (
            f"the calibration has {len(steps):,} steps: too few to fit a step model to"
        )
        raise InputError(few, hint="verify with more requests")
    fits = (_fit(kinds, free, expert_share, prior) for free in FREE_TOKENS)
    return min(fits, key=lambda fit: fit[0])[1:]


def _fit(
    kinds: Kinds, free: int, expert_share: float, prior: StepModel | None
) -> tuple[float, StepModel, float]:
    """Fit the GPU and the host, guess again who was slower, until the guess stays: what is left of
    the steps' times, the model, and its median distance."""
    seconds, prompts, decodes = (
        kinds[name] for name in ("duration_s", "prefill_requests", "decode_requests")
    )
    tokens, requests, ones = (
        kinds["prefill_tokens"] + decodes,
        prompts + decodes,
        seconds**0,
    )
    gpu = {
        "fixed_s": ones,
        "per_token_s": np.vectorize(paid_tokens)(tokens, requests, free),
        "per_prefill_pair_s": kinds["prefill_pairs"],
        "per_decode_context_s": kinds["decode_context_tokens"],
    }
    if expert_share:
        gpu["experts_s"] = 1.0 - (1.0 - expert_share) ** tokens
    graphed = (prior or StepModel()).graphed_tokens
    on_host = {"fixed_s": ones, "per_request_s": requests, "per_prompt_s": prompts}
    on_host["ungraphed_s"] = (tokens > graphed).astype(float)
    on_host["pieces_s"] = ((tokens <= graphed) & (prompts > 0)).astype(float)
    if (
        prior is None
    ):  # where the host's work is hidden, a request costs no more than its tokens
        gpu["per_request_s"], on_host = requests, {}
    # A step's noise grows with its length: half way between absolute and relative errors.
    weight = np.minimum(kinds["steps"], ENOUGH_STEPS) * seconds
    by_host = (
        (requests >= HOST_REQUESTS)
        & (kinds["prefill_tokens"] <= graphed)
        & bool(on_host)
    )
    for _ in range(MOST_GUESSES):
        gpu_times, gpu_s = _solve(gpu, seconds, weight, ~by_host, prior)
        host_times, host_s = _solve(
            on_host, seconds, weight, by_host, prior and prior.host
        )
        before, by_host = by_host, host_s > gpu_s
        if (by_host == before).all():
            break
    far = np.abs(np.maximum(gpu_s, host_s) / seconds - 1)
    left = float(weight @ (far * np.minimum(far, NEAR)))
    step = StepModel(
        free_tokens=free,
        host=Host(**host_times),
        graphed_tokens=graphed,
        expert_share=expert_share,
        **{**gpu_times, "fixed_s": max(gpu_times["fixed_s"], 1e-6)},  # type: ignore[arg-type]
    )
    return left, step, float(np.median(far))


def _solve(
    columns: Kinds,
    seconds: Floats,
    weight: Floats,
    rows: Flags,
    prior: StepModel | Host | None,
) -> tuple[dict[str, float], Floats]:
    """The coefficients of these steps, and the seconds of all by them.

    Each known coefficient is one more step, which takes what is known. In units in which a
    coefficient is about 1, and shares of the steps' times.
    """
    if not columns:
        return {}, np.zeros_like(seconds)
    features = np.stack([*columns.values()], axis=1)
    known = np.asarray([getattr(prior, name) if prior else 0.0 for name in columns])
    some, took = features[rows], seconds[rows]
    scale = np.where(known > 0, known, 1 / np.abs(some).max(axis=0, initial=1e-30))
    shares = np.concatenate(
        [some * scale / took[:, None], np.eye(len(scale))[known > 0]]
    )
    strength = PRIOR_STEPS * (float(np.median(took)) if rows.any() else 1.0)
    weights = np.concatenate([weight[rows], np.full(int((known > 0).sum()), strength)])
    pull = np.ones_like(weights)
    for _ in range(TRIES):
        by = (weights * pull) ** 0.5
        answer = nnls(shares * by[:, None], by)[0]
        pull = NEAR / np.maximum(np.abs(shares @ answer - 1), NEAR)
    times = np.asarray(answer * scale)
    return dict(zip(columns, map(float, times), strict=True)), np.asarray(
        features @ times
    )


# -- steps that are alike ------------------------------------------------------------------------

# Sizes within about a third of each other count as the same; numbers of requests must be equal.
SIZES = ("prefill_tokens", "prefill_pairs", "decode_context_tokens")
COUNTS = ("prefill_requests", "decode_requests")
SIZES_PER_E = 3
MANY = 0.05  # of the requests


def kinds_of(steps: StepSamples, *, only_settled: bool) -> Kinds:
    """The columns of `steps`, one entry per kind: the mean of those neither fast nor slow.

    A fit to all steps would hardly see the rare ones, which may be all that a coefficient shows in.
    `steps` is how many were of a kind. `only_settled`: the host did the same work as in any other.
    """
    rows = _settled(steps) if only_settled else ...
    columns = {
        name: np.asarray(getattr(steps, name), dtype=float)[rows] for name in COLUMNS
    }
    sizes = [np.round(np.log1p(columns[name]) * SIZES_PER_E) for name in SIZES]
    keys = np.stack([*sizes, *(columns[name] for name in COUNTS)], axis=1)
    _, place, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort((columns["duration_s"], place.ravel()))
    groups = np.split(order, np.cumsum(count)[:-1]) if len(order) else []
    middles = [
        group[len(group) // 4 : len(group) - len(group) // 4] for group in groups
    ]
    means = {
        name: np.asarray([values[middle].mean() for middle in middles])
        for name, values in columns.items()
    }
    return {**means, "steps": count.astype(float)}


def _settled(steps: StepSamples) -> Flags:
    """Not the first step of a repeat, when nobody decodes and somebody did in the step before; nor
    one after many ended, while which the host still frees them."""
    decodes, setting = np.asarray(steps.decode_requests), np.asarray(steps.setting)
    requests, first = np.asarray(steps.prefill_requests) + decodes, decodes == 0
    first[1:] &= (decodes[:-1] > 0) | (setting[1:] != setting[:-1])
    settled: Flags = ~first
    settled[1:] &= requests[1:] >= (1 - MANY) * requests[:-1]
    return settled
