"""A step model fitted to measured steps, with no coefficient below zero.

With async scheduling a step takes as long as the GPU or the host, whichever is slower:
both are fitted at once. What the steps do not show stays near what is known of other
engines (`prior`). Long distances count by their length, not by their squares: a step
that something else held up must not move the others.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from chunkscope.errors import InputError
from chunkscope.hardware.calibration import COLUMNS, StepSamples
from chunkscope.hardware.step_time import Host, StepModel, paid_tokens

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Columns = dict[str, Floats]
FEWEST_STEPS = 20
# Tokens that hide behind reading the weights: tried one by one, as that bend is not
# linear.
FREE_TOKENS = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512)
# A kind of step that was seen so often is known: more of it do not make it weigh more.
ENOUGH_STEPS = 8
# What is known of other engines weighs as much as so many measured steps.
PRIOR_STEPS = 2
# Times as slow as known that the search for the host begins at: from one place alone it
# may blame the GPU for all.
HOST_STARTS = (1.0, 3.0)
# Distances up to this share of a step count by their squares.
NEAR = 0.02
# The host still frees requests where fewer than this share of the last step's are left.
STILL_THERE = 0.95
LEAST_STEP_S = 1e-6
GPU_TIMES = (
    "fixed_s",
    "per_token_s",
    "per_prefill_pair_s",
    "per_decode_context_s",
    "experts_s",
)
HOST_TIMES = ("fixed_s", "per_request_s", "per_prompt_s", "ungraphed_s", "pieces_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    step: StepModel
    error: float  # the median distance from a measured step, as a share of it
    cost: float  # what the fit makes as small as it can


def fit_steps(
    steps: StepSamples, prior: StepModel, *, expert_share: float = 0.0
) -> StepFit:
    """The step model that is nearest to measured steps.

    `prior`: what GPU and host take elsewhere, 0 where that is not known.
    `expert_share`: of all experts, what one token chooses. Windows are not seen: steps
    are recorded with all that is before a token.
    """
    rows = _settled(steps)
    if len(steps) < FEWEST_STEPS or rows.sum() < FEWEST_STEPS // 2:
        what = f"the calibration has {len(steps):,} steps"
        what = f"{what}: too few to fit a step model to"
        raise InputError(what, hint="verify with more requests")
    kinds = _kinds(steps, rows)
    fits = []
    for free_tokens in FREE_TOKENS:
        problem = FitProblem(kinds, free_tokens, expert_share, prior)
        for host_times in HOST_STARTS:
            fits.append(problem.solved(host_times))
    return min(fits, key=lambda fit: fit.cost)


def _settled(steps: StepSamples) -> Flags:
    """Where the host did the same work as in any other step.

    That is not the first step of a repeat, when nobody decodes and somebody did in the
    step before; nor one after many requests ended, while the host still frees them.
    """
    decodes, setting = np.asarray(steps.decode_requests), np.asarray(steps.setting)
    requests = np.asarray(steps.prefill_requests) + decodes
    begins = decodes == 0
    begins[1:] &= (decodes[:-1] > 0) | (setting[1:] != setting[:-1])
    settled: Flags = ~begins
    settled[1:] &= requests[1:] >= STILL_THERE * requests[:-1]
    return settled


def _kinds(steps: StepSamples, rows: Flags) -> Columns:
    """The columns of the steps, one entry for each kind: the mean of its middle half.

    A fit to all steps would hardly see the rare ones, which may be all that a
    coefficient shows in; and a step that something else held up does not count.
    """
    columns = {}
    for name in COLUMNS:
        columns[name] = np.asarray(getattr(steps, name), dtype=float)[rows]
    keys = [columns["prefill_requests"], columns["decode_requests"]]
    for name in ("prefill_tokens", "prefill_pairs", "decode_context_tokens"):
        # Sizes within about a third of each other count as the same.
        keys.append(np.round(3 * np.log1p(columns[name])))
    order = np.lexsort((columns["duration_s"], *keys))
    sorted_keys = np.stack(keys)[:, order]
    changes = np.any(sorted_keys[:, 1:] != sorted_keys[:, :-1], axis=0)
    groups = np.split(order, np.flatnonzero(changes) + 1)
    kinds = {"steps": np.asarray([float(len(group)) for group in groups])}
    for name, column in columns.items():
        means = []
        for group in groups:
            quarter = len(group) // 4
            means.append(column[group[quarter : len(group) - quarter]].mean())
        kinds[name] = np.asarray(means)
    return kinds


class FitProblem:
    """Seconds of steps by their times, as least_squares takes them: all are about 1."""

    def __init__(
        self, kinds: Columns, free_tokens: int, expert_share: float, prior: StepModel
    ) -> None:
        self.base = StepModel(
            free_tokens=free_tokens,
            expert_share=expert_share,
            graphed_tokens=prior.graphed_tokens,
        )
        self.seconds = kinds["duration_s"]
        self.gpu = _gpu_columns(kinds, self.base)
        self.host = _host_columns(kinds, self.base.graphed_tokens)
        gpu = [getattr(prior, name) for name in GPU_TIMES]
        host = [getattr(prior.host, name) for name in HOST_TIMES]
        self.known = np.asarray([*gpu, *host])
        largest = np.concatenate([self.gpu, self.host], axis=1).max(axis=0)
        usual_s = float(np.median(self.seconds))
        # A time that shows in no step and is not known is none.
        guess = np.divide(usual_s, largest, out=0 * largest, where=largest > 0)
        self.scale = np.where(self.known > 0, self.known, guess)
        # A step's noise grows with its length, half way between absolute and relative
        # errors.
        steps = np.minimum(kinds["steps"], ENOUGH_STEPS)
        self.weights = steps * self.seconds / usual_s
        self.prior_weights = np.where(self.known > 0, PRIOR_STEPS, 0.0)

    def solved(self, host_times: float) -> StepFit:
        """The nearest model, from a host on that is so many times as slow as known."""
        start = np.where(self.known > 0, 1.0, 0.1)
        start[self.gpu.shape[1] :] *= host_times
        answer = least_squares(
            self.residuals, start, loss="soft_l1", f_scale=NEAR, bounds=(0, np.inf)
        )
        far = np.abs(self._seconds(answer.x) / self.seconds - 1)
        return StepFit(
            step=self._model(answer.x),
            error=float(np.median(far)),
            cost=float(answer.cost),
        )

    def residuals(self, scaled: Floats) -> Floats:
        """How far each step is from the model, and each time from what is known."""
        far = self._seconds(scaled) / self.seconds - 1
        return np.concatenate([far * self.weights, (scaled - 1) * self.prior_weights])

    def _seconds(self, scaled: Floats) -> Floats:
        """As long as the GPU needs or the host, whichever is slower."""
        gpu, host = np.split(scaled * self.scale, [self.gpu.shape[1]])
        seconds: Floats = np.maximum(self.gpu @ gpu, self.host @ host)
        return seconds

    def _model(self, scaled: Floats) -> StepModel:
        gpu, host = np.split(scaled * self.scale, [self.gpu.shape[1]])
        times = dict(zip(GPU_TIMES, gpu.tolist(), strict=True))
        times["fixed_s"] = max(times["fixed_s"], LEAST_STEP_S)
        host_times = dict(zip(HOST_TIMES, host.tolist(), strict=True))
        return replace(self.base, **times, host=Host(**host_times))


def _gpu_columns(kinds: Columns, base: StepModel) -> Floats:
    """What each of GPU_TIMES is multiplied by."""
    requests = kinds["prefill_requests"] + kinds["decode_requests"]
    tokens = kinds["prefill_tokens"] + kinds["decode_requests"]
    columns = [
        np.ones_like(tokens),
        np.vectorize(paid_tokens)(tokens, requests, base.free_tokens),
        kinds["prefill_pairs"],
        kinds["decode_context_tokens"],
        1.0 - (1.0 - base.expert_share) ** tokens,
    ]
    return np.stack(columns, axis=1)


def _host_columns(kinds: Columns, graphed_tokens: int) -> Floats:
    """What each of HOST_TIMES is multiplied by."""
    prompts = kinds["prefill_requests"]
    tokens = kinds["prefill_tokens"] + kinds["decode_requests"]
    large = tokens > graphed_tokens
    columns = [
        np.ones_like(tokens),
        prompts + kinds["decode_requests"],
        prompts,
        large,
        ~large & (prompts > 0),
    ]
    return np.stack(columns, axis=1).astype(float)
