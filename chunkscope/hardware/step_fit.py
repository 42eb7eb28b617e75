"""A step model fitted to measured steps: the least sum of distances, no coefficient below zero.

Distances, not squares: a step that something else held up must not move the others. With async
scheduling a step takes as long as the GPU or the host, whichever is slower. Which of the two it was
is not measured: it is guessed, both are fitted, and the guess is made again from that. What the
steps do not show stays near what is known of other engines (`prior`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from chunkscope.errors import InputError
from chunkscope.hardware.calibration import StepSamples
from chunkscope.hardware.step_kinds import Flags, Floats, StepKinds, kinds_of
from chunkscope.hardware.step_time import GRAPHED_TOKENS, NO_HOST, Host, ModelWork, StepModel

FEWEST_STEPS = 20
# Tokens that hide behind reading the weights: tried one by one, as that bend is not linear.
FREE_TOKENS = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512)
# A kind of step that was seen so often is known: more of it do not make it weigh more.
ENOUGH_STEPS = 8
# What is known of other engines weighs as much as so many measured steps.
PRIOR_STEPS = 3
# First guesses at who was slower: the host in steps of so many requests that read little.
HOST_REQUESTS = (64, 256, 1_024)
MOST_GUESSES = 12
# Distances up to this share of a step count by their squares, longer ones by their length.
NEAR = 0.02
TRIES = 6
NO_BETTER = 0.005  # of what is left: so little speaks for no other number of free tokens
# A coefficient is seen where it makes up this share of a step, in so many kinds of them.
SEEN_SHARE, SEEN_KINDS = 0.1, 3
GPU_TIMES = ("fixed_s", "per_token_s", "per_prefill_pair_s", "per_decode_context_s", "experts_s")
HOST_TIMES = ("fixed_s", "per_request_s", "per_prompt_s", "ungraphed_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """`error`: the median distance from a measured step, as a share of it.

    `assumed`: coefficients that the steps do not show, so that they are those of other engines.
    """

    step: StepModel
    samples: int
    error: float
    host_steps: int = 0  # in which the host was slower
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

    `work` is the model's: of experts, those that are chosen are read.
    """
    kinds = kinds_of(steps, only_settled=host is not None)
    if len(steps) < FEWEST_STEPS or kinds.steps.sum() < FEWEST_STEPS // 2:
        raise InputError(
            f"the calibration has {len(steps):,} steps: too few to fit a step model to",
            hint="verify with more requests",
        )
    data = _Data(kinds, prior, host, work.other.expert_share if work else 0.0)
    found = data.best()
    step = _step(data, found, origin, host)
    if work is not None:
        # Steps are recorded with all that is before a token, windows or not: so they are simulated.
        step = replace(step, expert_share=work.other.expert_share)
    error = float(np.median(np.abs(data.predicted(found) / data.seconds - 1)))
    return StepFit(
        step=step,
        samples=len(steps),
        error=error,
        host_steps=int(kinds.steps[data.by_host(found)].sum()),
        assumed=tuple(data.unseen(found)) if host else (),
    )


@dataclass(frozen=True)
class _Found:
    left: float
    free: int
    gpu: Floats
    host: Floats


class _Data:
    """The steps as columns: what the GPU's time depends on, and what the host's does."""

    def __init__(
        self, kinds: StepKinds, prior: StepModel | None, host: Host | None, expert_share: float
    ) -> None:
        prompts, decodes = kinds.prefill_requests, kinds.decode_requests
        self.seconds = kinds.duration_s
        self.tokens = kinds.prefill_tokens + decodes
        self.requests = prompts + decodes
        self.is_reading = kinds.prefill_tokens > GRAPHED_TOKENS
        self._rest = [kinds.prefill_pairs, kinds.decode_context_tokens]
        ones = np.ones_like(self.seconds)
        over = (self.tokens > GRAPHED_TOKENS).astype(float)
        columns = [ones, self.requests, prompts, over] if host else []
        self.host = np.stack(columns, axis=1) if host else np.zeros((len(ones), 0))
        self._rest += [1.0 - (1.0 - expert_share) ** self.tokens] if expert_share else []
        self.gpu_names: tuple[str, ...] = GPU_TIMES if expert_share else GPU_TIMES[:-1]
        # Where the host's work is hidden, a request costs the GPU no more than its tokens do.
        self._rest += [] if host else [self.requests]
        self.gpu_names += () if host else ("per_request_s",)
        # Zero where nothing is known.
        self._gpu_prior = np.zeros(len(self._rest) + 2)
        if prior is not None:
            self._gpu_prior = np.asarray([getattr(prior, name) for name in self.gpu_names])
        self._host_prior = np.asarray([getattr(host, name) for name in HOST_TIMES if host])
        # A step's noise grows with its length: half way between absolute and relative errors.
        self._weight = (np.minimum(kinds.steps, ENOUGH_STEPS) / self.seconds) ** 0.5

    def gpu(self, free: int) -> Floats:
        paid = np.maximum(0.0, self.tokens - free)
        return np.stack([np.ones_like(paid), paid, *self._rest], axis=1)

    def predicted(self, found: _Found) -> Floats:
        longer: Floats = np.maximum(self.gpu(found.free) @ found.gpu, self.host @ found.host)
        return longer

    def by_host(self, found: _Found) -> Flags:
        slower: Flags = self.host @ found.host > self.gpu(found.free) @ found.gpu
        return slower

    def unseen(self, found: _Found) -> Iterator[str]:
        """Names of the coefficients that no measured step depends on."""
        slower = self.by_host(found)
        gpu = (self.gpu(found.free) * found.gpu)[~slower]
        host = (self.host * found.host)[slower]
        for names, parts, prefix in ((self.gpu_names, gpu, ""), (HOST_TIMES, host, "host.")):
            seen = (parts > SEEN_SHARE * parts.sum(axis=1, keepdims=True)).sum(axis=0)
            yield from (prefix + n for n, s in zip(names, seen, strict=True) if s < SEEN_KINDS)

    def best(self) -> _Found:
        """The number of free tokens, and the coefficients, that leave the least."""
        firsts = (self._alternate(FREE_TOKENS[0], guess) for guess in self._guesses())
        guess = self.by_host(min(firsts, key=lambda found: found.left))
        tried = [self._alternate(free, guess) for free in FREE_TOKENS]
        enough = min(found.left for found in tried) * (1 + NO_BETTER) + 1e-12
        return next(found for found in tried if found.left <= enough)

    def _guesses(self) -> Iterator[Flags]:
        if not self.host.size:
            yield np.zeros(len(self.seconds), dtype=bool)
            return
        for many in HOST_REQUESTS:
            yield (self.requests >= many) & ~self.is_reading
        if self._gpu_prior.all():
            yield self.by_host(_Found(0.0, 0, self._gpu_prior, self._host_prior))

    def _alternate(self, free: int, guess: Flags) -> _Found:
        """Fit both, guess again who was slower, until the guess stays. Without a host: at once."""
        features = self.gpu(free)
        for tries in (1, TRIES):  # squares first: they are not easily caught in a wrong guess
            for _ in range(MOST_GUESSES):
                gpu = self._solve(features, ~guess, self._gpu_prior, tries)
                host = self._solve(self.host, guess, self._host_prior, tries)
                by_gpu, by_host = features @ gpu, self.host @ host
                before, guess = guess, by_host > by_gpu
                if (guess == before).all():
                    break
        return _Found(self._left(np.maximum(by_gpu, by_host)), free, gpu, host)

    def _left(self, predicted: Floats) -> float:
        off = (predicted - self.seconds) * self._weight
        return float(off**2 @ _pull(predicted, self.seconds))

    def _solve(self, features: Floats, rows: Flags, prior: Floats, tries: int) -> Floats:
        """Squares, each divided by its distance in the try before: that sums up distances."""
        chosen, seconds, weight = features[rows], self.seconds[rows], self._weight[rows]
        strength = PRIOR_STEPS * (float(np.median(seconds)) if rows.any() else 1.0)
        pull, drawn = np.ones_like(seconds), np.ones_like(prior)
        for _ in range(tries):
            by = weight * pull**0.5
            found = _non_negative(chosen * by[:, None], seconds * by, prior, strength * drawn)
            pull, drawn = _pull(chosen @ found, seconds), _pull(found, prior)
        return found


def _pull(found: Floats, wanted: Floats) -> Floats:
    """What makes squares count like distances; 1 where nothing is wanted."""
    far = np.abs(found / np.where(wanted > 0, wanted, 1.0) - 1)
    pull: Floats = 1 / np.maximum(np.where(wanted > 0, far, 0.0) / NEAR, 1.0)
    return pull


def _non_negative(features: Floats, wanted: Floats, prior: Floats, strength: Floats) -> Floats:
    """Non-negative least squares, by trying every set of columns: there are only five.

    Each coefficient with a prior is drawn to it, as by one more row: prior / prior = 1.
    """
    most = np.abs(features).max(axis=0) if len(features) else np.zeros(features.shape[1])
    scale = np.maximum(
        np.maximum(most, 1e-30), np.where(prior > 0, 1 / np.maximum(prior, 1e-30), 0)
    )
    scaled = features / scale
    pull = np.where(prior > 0, strength, 0.0)
    drawn = np.where(prior > 0, 1 / (np.maximum(prior, 1e-30) * scale), 0.0)
    gram = scaled.T @ scaled + np.diag(pull * drawn**2)
    side = scaled.T @ wanted + pull * drawn
    total = float(wanted @ wanted) + float(pull.sum())
    answer: Floats = np.zeros(len(scale))
    best = total
    for size in range(len(scale), 0, -1):
        for chosen in map(list, combinations(range(len(scale)), size)):
            some = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], side[chosen], rcond=1e-12)[0]
            left = total - float(some @ side[chosen])
            if (some >= 0).all() and left < best * (1 - 1e-9):
                best, answer = left, np.zeros(len(scale))
                answer[chosen] = some / scale[chosen]
        if size == len(scale) and answer.any():
            break  # nothing is better than all columns, if none of them is negative
    return answer


def _step(data: _Data, found: _Found, origin: str, host: Host | None) -> StepModel:
    times = dict(zip(data.gpu_names, map(float, found.gpu), strict=True))
    if host is not None:
        host = replace(host, **dict(zip(HOST_TIMES, map(float, found.host), strict=True)))
    return StepModel(
        fixed_s=max(times["fixed_s"], 1e-6),  # no step takes no time
        per_token_s=times["per_token_s"],
        per_prefill_pair_s=times["per_prefill_pair_s"],
        per_decode_context_s=times["per_decode_context_s"],
        per_request_s=times.get("per_request_s", 0.0),
        experts_s=times.get("experts_s", 0.0),
        free_tokens=found.free,
        host=host or NO_HOST,
        origin=origin,
    )
