"""A step model fitted to measured steps: the least sum of distances, no coefficient below zero.

Distances, not squares: a step that something else held up must not move the others. With async
scheduling a step takes as long as the GPU or the host, whichever is slower. Which of the two it was
is not measured: it is guessed, both are fitted, and the guess is made again from that. What the
steps do not show stays near what is known of other engines (`prior`).
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from chunkscope.errors import InputError
from chunkscope.hardware.calibration import StepSamples
from chunkscope.hardware.step_time import GRAPHED_TOKENS, Host, StepModel

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
MOST_GUESSES = 12
# Distances up to this share of a step count by their squares, longer ones by their length: squares
# are divided by the distance that the try before left.
NEAR, TRIES = 0.02, 6
HOST_TIMES = tuple(field.name for field in fields(Host))


def fit_steps(
    steps: StepSamples,
    *,
    expert_share: float = 0.0,
    prior: StepModel | None = None,
    host: Host | None = None,
) -> tuple[StepModel, float]:
    """The model, and its median distance from a measured step, as a share of it.

    `host`, where its work runs beside the GPU's: what it takes elsewhere. None fits one sum.

    Of experts, those that are chosen are read: `expert_share` is what one token chooses. Steps are
    recorded with all that is before a token, windows or not: so the fitted model simulates them.
    """
    kinds = kinds_of(steps, only_settled=host is not None)
    if len(steps) < FEWEST_STEPS or kinds["steps"].sum() < FEWEST_STEPS // 2:
        raise InputError(
            f"the calibration has {len(steps):,} steps: too few to fit a step model to",
            hint="verify with more requests",
        )
    measured = _Measured(kinds, prior, host, expert_share)
    fit = measured.best_fit()
    gpu = dict(zip(measured.gpu_names, map(float, fit.gpu), strict=True))
    gpu["fixed_s"] = max(gpu["fixed_s"], 1e-6)  # no step takes no time
    on_host = Host(**dict(zip(HOST_TIMES, map(float, fit.host), strict=False)))
    step = StepModel(
        free_tokens=fit.free,
        host=on_host,
        graphed_tokens=prior.graphed_tokens if prior else GRAPHED_TOKENS,
        expert_share=expert_share,
        **gpu,  # type: ignore[arg-type]
    )
    error = float(np.median(np.abs(measured.longer(fit) / measured.seconds - 1)))
    return step, error


class _Fit(NamedTuple):
    free: int  # tokens that hide behind reading the weights
    gpu: Floats
    host: Floats


Kinds = dict[str, Floats]


class _Measured:
    """Kinds of steps as columns: what the GPU's time depends on, and what the host's does."""

    def __init__(
        self, kinds: Kinds, prior: StepModel | None, host: Host | None, expert_share: float
    ) -> None:
        self.seconds = kinds["duration_s"]
        # A step's noise grows with its length: half way between absolute and relative errors.
        self._weight = np.minimum(kinds["steps"], ENOUGH_STEPS) * self.seconds
        prompts, decodes = kinds["prefill_requests"], kinds["decode_requests"]
        self._tokens, self._requests = kinds["prefill_tokens"] + decodes, prompts + decodes
        graphed = prior.graphed_tokens if prior else GRAPHED_TOKENS
        self._is_decoding = kinds["prefill_tokens"] <= graphed
        ones = np.ones_like(self.seconds)
        gpu = {
            "fixed_s": ones,
            "per_token_s": self._tokens,
            "per_prefill_pair_s": kinds["prefill_pairs"],
            "per_decode_context_s": kinds["decode_context_tokens"],
        }
        if expert_share:
            gpu["experts_s"] = 1.0 - (1.0 - expert_share) ** self._tokens
        if host is None:  # where the host's work is hidden, a request costs no more than its tokens
            gpu["per_request_s"] = self._requests
        launched = (self._tokens > graphed).astype(float)
        on_host = (ones, self._requests, prompts, launched) if host else ()
        self.gpu_names = tuple(gpu)
        self._gpu = np.stack([*gpu.values()], axis=1)
        self._host = np.stack(on_host, axis=1) if host else np.zeros((len(ones), 0))
        # Zero where nothing is known.
        self._gpu_prior = np.asarray([getattr(prior, name) if prior else 0.0 for name in gpu])
        self._host_prior = np.asarray([getattr(host, name) for name in HOST_TIMES if host])

    def best_fit(self) -> _Fit:
        """The number of free tokens, and the coefficients, that leave the least."""
        firsts = (self._alternate(FREE_TOKENS[0], guess) for guess in self._guesses())
        guess = self._by_host(min(firsts, key=self._left))
        fits = [self._alternate(free, guess) for free in FREE_TOKENS]
        enough = min(map(self._left, fits)) * (1 + NO_BETTER) + 1e-12
        return next(fit for fit in fits if self._left(fit) <= enough)

    def _guesses(self) -> Iterator[Flags]:
        """Steps in which the host was slower."""
        for many in HOST_REQUESTS if self._host.size else (np.inf,):
            yield (self._requests >= many) & self._is_decoding
        if self._host.size and self._gpu_prior.all():
            yield self._by_host(_Fit(0, self._gpu_prior, self._host_prior))

    def _alternate(self, free: int, guess: Flags) -> _Fit:
        """Fit both, guess again who was slower, until the guess stays. Without a host: at once."""
        features = self._paid(free)
        for tries in (1, TRIES):  # squares first: they are not easily caught in a wrong guess
            for _ in range(MOST_GUESSES):
                gpu = self._solve(features, ~guess, self._gpu_prior, tries)
                host = self._solve(self._host, guess, self._host_prior, tries)
                before, guess = guess, self._by_host(fit := _Fit(free, gpu, host))
                if (guess == before).all():
                    break
        return fit

    def _solve(self, features: Floats, rows: Flags, prior: Floats, tries: int) -> Floats:
        """Of these steps; each known coefficient is one more of them, which takes what is known.

        In units in which a coefficient is about 1, and shares of the steps' times.
        """
        some, seconds, known = features[rows], self.seconds[rows], prior > 0
        most = np.abs(some).max(axis=0, initial=1e-30)
        scale = np.where(known, prior, 1 / most)
        shares = np.concatenate([some * scale / seconds[:, None], np.eye(len(scale))[known]])
        strength = PRIOR_STEPS * (float(np.median(seconds)) if rows.any() else 1.0)
        weight = np.concatenate([self._weight[rows], np.full(int(known.sum()), strength)])
        pull = np.ones_like(weight)
        for _ in range(tries):
            by = (weight * pull) ** 0.5
            answer = nnls(shares * by[:, None], by)[0] if len(scale) else prior
            pull = NEAR / np.maximum(np.abs(shares @ answer - 1), NEAR)
        return np.asarray(answer * scale)

    def _left(self, fit: _Fit) -> float:
        far = np.abs(self.longer(fit) / self.seconds - 1)
        return float(self._weight @ (far * np.minimum(far, NEAR)))

    def _paid(self, free: int) -> Floats:
        features = self._gpu.copy()
        features[:, self.gpu_names.index("per_token_s")] = np.maximum(0.0, self._tokens - free)
        return features

    def longer(self, fit: _Fit) -> Floats:
        return np.asarray(np.maximum(self._paid(fit.free) @ fit.gpu, self._host @ fit.host))

    def _by_host(self, fit: _Fit) -> Flags:
        return np.asarray(self._host @ fit.host > self._paid(fit.free) @ fit.gpu)


# -- steps that are alike ------------------------------------------------------------------------

# Sizes within about a third of each other count as the same; numbers of requests must be equal.
SIZES = ("prefill_tokens", "prefill_pairs", "decode_context_tokens")
COUNTS = ("prefill_requests", "decode_requests")
SIZES_PER_E = 3
MANY = 0.05  # of the requests


def kinds_of(steps: StepSamples, *, only_settled: bool) -> Kinds:
    """The columns of `steps`, one entry per kind: the mean of those neither fast nor slow.

    A workload repeats some steps a thousand times and others once. A fit to all of them would
    hardly see the rare ones, which may be all that a coefficient shows in. `steps` is how many were
    of a kind. `only_settled`: those beside which the host did the same work as in any other.
    """
    names = [field.name for field in fields(StepSamples) if field.name != "setting"]
    columns = {name: np.asarray(getattr(steps, name), dtype=float) for name in names}
    if only_settled:
        settled = _settled(steps)
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


def _settled(steps: StepSamples) -> Flags:
    """Not the first step of a repeat, when nobody decodes and somebody did in the step before; nor
    one after many ended, while which the host still frees them."""
    decodes, setting = np.asarray(steps.decode_requests), np.asarray(steps.setting)
    requests, first = np.asarray(steps.prefill_requests) + decodes, decodes == 0
    first[1:] &= (decodes[:-1] > 0) | (setting[1:] != setting[:-1])
    settled: Flags = ~first
    settled[1:] &= requests[1:] >= (1 - MANY) * requests[:-1]
    return settled
