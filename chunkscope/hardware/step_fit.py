"""A step model fitted to measured steps: the least sum of distances, no coefficient below zero.

Distances, not squares: a step that something else held up must not move the others. With async
scheduling a step takes as long as the GPU or the host, whichever is slower, and both are fitted at
once. What the steps do not show stays near what is known of other engines (`prior`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import StepSamples
from chunkscope.hardware.step_time import GRAPHED_TOKENS, NO_HOST, Host, ModelWork, StepModel

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
GPU_TIMES = ("fixed_s", "per_token_s", "per_prefill_pair_s", "per_decode_context_s")
HOST_TIMES = tuple(field.name for field in fields(Host))


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
    gpu, on_host = best.times()
    gpu["fixed_s"] = max(gpu["fixed_s"], 1e-6)  # no step takes no time
    step = StepModel(
        per_request_s=gpu.get("per_request_s", 0.0),
        experts_s=gpu.get("experts_s", 0.0),
        free_tokens=best.free,
        host=Host(**on_host) if host else NO_HOST,
        expert_share=share,
        origin=origin,
        **{name: gpu[name] for name in GPU_TIMES},  # type: ignore[arg-type]
    )
    error = float(np.median(np.abs(best.predicted() / kinds["duration_s"] - 1)))
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
        self.free, self._seconds = free, kinds["duration_s"]
        prompts, decodes = kinds["prefill_requests"], kinds["decode_requests"]
        tokens, requests = kinds["prefill_tokens"] + decodes, prompts + decodes
        ones, paid = np.ones_like(self._seconds), np.maximum(0.0, tokens - free)
        gpu = dict(
            zip(
                GPU_TIMES,
                (ones, paid, kinds["prefill_pairs"], kinds["decode_context_tokens"]),
                strict=True,
            )
        )
        if expert_share:
            gpu["experts_s"] = 1.0 - (1.0 - expert_share) ** tokens
        if host is None:  # where the host's work is hidden, a request costs no more than its tokens
            gpu["per_request_s"] = requests
        launched = (tokens > GRAPHED_TOKENS).astype(float)
        self.names = (*gpu, *HOST_TIMES) if host else tuple(gpu)
        self._width = len(gpu)
        self._gpu = np.stack(list(gpu.values()), axis=1)
        self._host = np.stack([ones, requests, prompts, launched], axis=1)
        self._host = self._host if host else self._host[:, :0]
        known = [getattr(prior, name) if prior else 0.0 for name in gpu]
        known += [getattr(host, name) for name in HOST_TIMES] if host else []
        weight = np.minimum(kinds["steps"], ENOUGH_STEPS) * self._seconds
        decoding = kinds["prefill_tokens"] <= GRAPHED_TOKENS
        guesses = [(requests >= many) & decoding for many in HOST_REQUESTS]
        guesses = guesses if host else [np.zeros(len(ones), dtype=bool)]
        self.cost, self.coefficients = self._solve(weight, np.asarray(known), guesses)

    def _solve(self, weight: Floats, prior: Floats, guesses: list[Flags]) -> tuple[float, Floats]:
        """In units in which every coefficient is about 1, from the prior and from each guess."""
        least_squares, nnls = _scipy()
        known, by = prior > 0, weight**0.5 / self._seconds

        def squares(features: Floats, rows: Flags) -> Floats:
            if not features[rows].size:
                return np.zeros(features.shape[1])
            some = features[rows] * by[rows, None]
            answer: Floats = nnls(some, (self._seconds * by)[rows])[0]
            return answer

        starts = [
            np.concatenate([squares(self._gpu, ~guess), squares(self._host, guess)])
            for guess in guesses
        ]
        starts += [prior] if known.any() else []
        largest = np.abs(np.concatenate([self._gpu, self._host], axis=1)).max(axis=0)
        usual = np.where(starts[0] > 0, starts[0], 1 / np.maximum(largest, 1e-30))
        scale = np.where(known, prior, usual)
        pull = PRIOR_STEPS * float(np.median(self._seconds))
        weights = np.concatenate([weight, np.full(int(known.sum()), pull)])

        def distances(x: Floats) -> Floats:
            off = self._longer(x * scale) / self._seconds - 1
            return np.concatenate([off, x[known] - 1]) / NEAR

        def slopes(x: Floats) -> Floats:
            by_host = self._by_host(x * scale)[:, None]
            rows = np.concatenate([self._gpu * ~by_host, self._host * by_host], axis=1)
            each = rows * scale / self._seconds[:, None]
            slope: Floats = np.concatenate([each, np.eye(len(x))[known]]) / NEAR
            return slope

        def loss(z: Floats) -> Floats:
            """soft_l1, each distance with its weight: the value and its two derivatives."""
            t = 1 + z
            rho: Floats = np.stack([2 * (t**0.5 - 1), t**-0.5, -0.5 * t**-1.5]) * weights
            return rho

        how = {"bounds": (0, np.inf), "loss": loss, "max_nfev": MOST_TRIES}
        answers = [least_squares(distances, x / scale, slopes, **how) for x in starts]
        best = min(answers, key=lambda answer: float(answer.cost))
        return float(best.cost), np.asarray(best.x * scale)

    def _longer(self, coefficients: Floats) -> Floats:
        gpu, host = np.split(coefficients, [self._width])
        return np.asarray(np.maximum(self._gpu @ gpu, self._host @ host))

    def _by_host(self, coefficients: Floats) -> Flags:
        gpu, host = np.split(coefficients, [self._width])
        return np.asarray(self._host @ host > self._gpu @ gpu)

    def predicted(self) -> Floats:
        return self._longer(self.coefficients)

    def times(self) -> tuple[dict[str, float], dict[str, float]]:
        """The GPU's coefficients, and the host's, by name."""
        values = list(zip(self.names, map(float, self.coefficients), strict=True))
        return dict(values[: self._width]), dict(values[self._width :])

    def unseen(self) -> Iterator[str]:
        """Names of the coefficients that no measured step depends on."""
        gpu, host = np.split(self.coefficients, [self._width])
        slower = self._by_host(self.coefficients)
        parts = [("", (self._gpu * gpu)[~slower]), ("host.", (self._host * host)[slower])]
        names = iter(self.names)
        for prefix, values in parts:
            seen = (values > SEEN_SHARE * values.sum(axis=1, keepdims=True)).sum(axis=0)
            for count in seen:
                name = next(names)
                if count < SEEN_KINDS:
                    yield prefix + name


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
