"""A step model fitted to measured steps: the least sum of distances, no coefficient below zero.

Distances, not squares: a step that something else held up must not move the others. With async
scheduling a step takes as long as the GPU or the host, whichever is slower, and both are fitted at
once. What the steps do not show stays near what is known of other engines (`prior`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import StepSamples
from chunkscope.hardware.step_time import GRAPHED_TOKENS, Host, ModelWork, StepModel

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
FEWEST_STEPS = 20
# Tokens that hide behind reading the weights: tried one by one, as that bend is not linear.
FREE_TOKENS = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512)
NO_BETTER = 0.005  # of what is left: so little speaks for no other number of free tokens
# A kind of step that was seen so often is known: more of it do not make it weigh more.
ENOUGH_STEPS = 8
# What is known of other engines weighs as much as so many measured steps.
PRIOR_STEPS = 3
# First guesses at where the host was slower: in steps of so many requests that read little.
HOST_REQUESTS = (64, 256, 1_024)
MOST_TRIES = 200
# Distances up to this share of a step count by their squares, longer ones by their length.
NEAR = 0.02
# A coefficient is seen where it makes up this share of a step, in so many kinds of them.
SEEN_SHARE, SEEN_KINDS = 0.1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """`error`: the median distance from a measured step, as a share of it.

    `assumed`: coefficients that the steps do not show, so that they are those of other engines.
    """

    step: StepModel
    samples: int
    error: float
    assumed: tuple[str, ...] = ()


def fit_steps(
    steps: StepSamples,
    origin: str,
    *,
    work: ModelWork | None = None,
    prior: StepModel | None = None,
    host: Host | None = None,
) -> StepFit:
    """`host`, where its work runs beside the GPU's: what it takes elsewhere. None fits one sum.

    `work` is the model's: of experts, those that are chosen are read. Steps are recorded with all
    that is before a token, windows or not: so the fitted model simulates them.
    """
    kinds = kinds_of(steps, only_settled=host is not None)
    if len(steps) < FEWEST_STEPS or kinds["steps"].sum() < FEWEST_STEPS // 2:
        raise InputError(
            f"the calibration has {len(steps):,} steps: too few to fit a step model to",
            hint="verify with more requests",
        )
    share = work.expert_share if work else 0.0
    fits = [_Fit(kinds, free, prior, host, share) for free in FREE_TOKENS]
    enough = min(fit.cost for fit in fits) * (1 + NO_BETTER) + 1e-12
    best = next(fit for fit in fits if fit.cost <= enough)
    times = dict(zip(best.names, map(float, best.coefficients), strict=True))
    gpu = {name: time for name, time in times.items() if not name.startswith("host.")}
    on_host = {name[5:]: time for name, time in times.items() if name.startswith("host.")}
    step = StepModel(free_tokens=best.free, expert_share=share, origin=origin, **gpu)  # type: ignore[arg-type]
    step = replace(step, fixed_s=max(step.fixed_s, 1e-6), host=Host(**on_host))
    error = float(np.median(np.abs(best.longer(best.coefficients) / best.seconds - 1)))
    assumed = tuple(best.unseen()) if host else ()
    return StepFit(step=step, samples=len(steps), error=error, assumed=assumed)


class _Fit:
    """The coefficients that leave the least, if `free` tokens hide behind reading the weights."""

    def __init__(
        self,
        kinds: dict[str, Floats],
        free: int,
        prior: StepModel | None,
        host: Host | None,
        expert_share: float,
    ) -> None:
        self.free, self.seconds = free, kinds["duration_s"]
        prompts, decodes = kinds["prefill_requests"], kinds["decode_requests"]
        tokens, requests = kinds["prefill_tokens"] + decodes, prompts + decodes
        gpu = {
            "fixed_s": np.ones_like(self.seconds),
            "per_token_s": np.maximum(0.0, tokens - free),
            "per_prefill_pair_s": kinds["prefill_pairs"],
            "per_decode_context_s": kinds["decode_context_tokens"],
        }
        if expert_share:
            gpu["experts_s"] = 1.0 - (1.0 - expert_share) ** tokens
        if host is None:  # where the host's work is hidden, a request costs no more than its tokens
            gpu["per_request_s"] = requests
        launched = (tokens > GRAPHED_TOKENS).astype(float)
        on_host = (gpu["fixed_s"], requests, prompts, launched) if host else ()
        self.names = (*gpu, *(f"host.{f.name}" for f in fields(Host) if host))
        self._width = len(gpu)
        self._features = np.stack([*gpu.values(), *on_host], axis=1)
        known = [getattr(prior, name) if prior else 0.0 for name in gpu]
        known += [getattr(host, f.name) for f in fields(Host)] if host else []
        weight = np.minimum(kinds["steps"], ENOUGH_STEPS) * self.seconds
        decoding = kinds["prefill_tokens"] <= GRAPHED_TOKENS
        many = HOST_REQUESTS if host else (np.inf,)
        guesses = [(requests >= number) & decoding for number in many]
        self.cost, self.coefficients = self._solve(weight, np.asarray(known), guesses)

    def _solve(self, weight: Floats, prior: Floats, guesses: list[Flags]) -> tuple[float, Floats]:
        """In units in which every coefficient is about 1, from the prior and from each guess."""
        least_squares, nnls = _scipy()
        by, known, features = weight**0.5 / self.seconds, prior > 0, self._features
        starts = [prior] if known.any() else []
        for guess in guesses:
            rows = features * self._slower(guess) * by[:, None]
            starts.append(nnls(rows, self.seconds * by)[0])
        usual = np.where(starts[-1] > 0, starts[-1], 1 / np.maximum(features.max(axis=0), 1e-30))
        scale = np.where(known, prior, usual)
        pull = PRIOR_STEPS * float(np.median(self.seconds))
        weights = np.concatenate([weight, np.full(int(known.sum()), pull)])

        def distances(x: Floats) -> Floats:
            off = self.longer(x * scale) / self.seconds - 1
            return np.concatenate([off, x[known] - 1]) / NEAR

        def slopes(x: Floats) -> Any:
            rows = features * self._slower(self._by_host(x * scale))
            each = rows * scale / self.seconds[:, None]
            return np.concatenate([each, np.eye(len(x))[known]]) / NEAR

        def loss(z: Floats) -> Any:
            """soft_l1, each distance with its weight: the value and its two derivatives."""
            t = 1 + z
            return np.stack([2 * (t**0.5 - 1), t**-0.5, -0.5 * t**-1.5]) * weights

        how = {"bounds": (0, np.inf), "loss": loss, "max_nfev": MOST_TRIES}
        answers = [least_squares(distances, x / scale, slopes, **how) for x in starts]
        best = min(answers, key=lambda answer: float(answer.cost))
        return float(best.cost), np.asarray(best.x * scale)

    def _slower(self, by_host: Flags) -> Flags:
        """By step and feature: does it count, if the host was the slower one in these steps?"""
        of_host = np.arange(self._features.shape[1]) >= self._width
        return np.asarray(of_host == by_host[:, None])

    def _parts(self, coefficients: Floats) -> tuple[Floats, Floats]:
        parts = self._features * coefficients
        return parts[:, : self._width].sum(axis=1), parts[:, self._width :].sum(axis=1)

    def longer(self, coefficients: Floats) -> Floats:
        return np.asarray(np.maximum(*self._parts(coefficients)))

    def _by_host(self, coefficients: Floats) -> Flags:
        gpu, host = self._parts(coefficients)
        return np.asarray(host > gpu)

    def unseen(self) -> Iterator[str]:
        """Names of the coefficients that no measured step depends on."""
        parts = self._features * self.coefficients
        parts = parts * self._slower(self._by_host(self.coefficients))
        seen = (parts > SEEN_SHARE * parts.sum(axis=1, keepdims=True)).sum(axis=0)
        return (name for name, count in zip(self.names, seen, strict=True) if count < SEEN_KINDS)


def _scipy() -> tuple[Any, Any]:
    try:
        from scipy.optimize import least_squares, nnls
    except ImportError:
        raise MissingError(
            "fitting a calibration needs scipy",
            hint="install it: `pip install 'chunkscope[verify]'` or `pip install scipy`",
        ) from None
    return least_squares, nnls


# -- steps that are alike ------------------------------------------------------------------------

# Sizes within about a third of each other count as the same; numbers of requests must be equal.
SIZES = ("prefill_tokens", "prefill_pairs", "decode_context_tokens")
COUNTS = ("prefill_requests", "decode_requests")
SIZES_PER_E = 3
MANY = 0.05  # of the requests


def kinds_of(steps: StepSamples, *, only_settled: bool) -> dict[str, Floats]:
    """The columns of `steps`, one entry per kind: the mean of those neither fast nor slow.

    A workload repeats some steps a thousand times and others once. A fit to all of them would
    hardly see the rare ones, which may be all that a coefficient shows in. `steps` is how many were
    of a kind. `only_settled`: those beside which the host did the same work as in any other.
    """
    names = [field.name for field in fields(StepSamples) if field.name != "setting"]
    columns = {name: np.asarray(getattr(steps, name), dtype=float) for name in names}
    if only_settled:
        settled = ~(_firsts(steps) | _after_many_ended(steps))
        columns = {name: values[settled] for name, values in columns.items()}
    sizes = [np.round(np.log1p(columns[name]) * SIZES_PER_E) for name in SIZES]
    keys = np.stack([*sizes, *(columns[name] for name in COUNTS)], axis=1)
    _, place, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort((columns["duration_s"], place.ravel()))
    groups = np.split(order, np.cumsum(count)[:-1]) if len(order) else []
    middles = [group[len(group) // 4 : len(group) - len(group) // 4] for group in groups]
    means = {
        name: np.asarray([values[middle].mean() for middle in middles])
        for name, values in columns.items()
    }
    return {**means, "steps": count.astype(float)}


def _firsts(steps: StepSamples) -> Flags:
    """The first step of each repeat: nobody decodes, and somebody did in the step before."""
    decodes, setting = np.asarray(steps.decode_requests), np.asarray(steps.setting)
    first: Flags = decodes == 0
    first[1:] &= (decodes[:-1] > 0) | (setting[1:] != setting[:-1])
    return first


def _after_many_ended(steps: StepSamples) -> Flags:
    """While such a step runs the host still frees the requests that ended."""
    requests = np.asarray(steps.prefill_requests) + np.asarray(steps.decode_requests)
    fewer = np.zeros(len(requests), dtype=bool)
    fewer[1:] = requests[1:] < (1 - MANY) * requests[:-1]
    return fewer
