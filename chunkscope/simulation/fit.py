"""A step model fitted to measured steps: least squares, and no coefficient below zero.

With async scheduling a step takes as long as the GPU or the host, whichever is slower. Which of the
two it was is not measured: it is guessed, both are fitted, and the guess is made again from that.
What the steps do not show stays near what is known of other engines (`prior`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from chunkscope.calibration import StepSamples
from chunkscope.errors import InputError
from chunkscope.step_time import GRAPHED_TOKENS, NO_HOST, Host, StepModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

FEWEST_STEPS = 20
# Tokens that hide behind reading the weights: tried one by one, as that bend is not linear.
FREE_TOKENS = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512)
# A step this many times the spread away from the fit is a hiccup, not a cost.
OUTLIER_SPREADS = 6.0
# What is known of other engines weighs as much as so many measured steps.
PRIOR_STEPS = 10.0
# First guesses at who was slower: the host in steps of so many requests that read little.
HOST_REQUESTS = (64, 256, 1_024)
MOST_GUESSES = 12
NO_BETTER = 0.005  # of what is left: so little speaks for no other number of free tokens
# Below this share of the largest step, a step held all the requests that were there.
UNFILLED = 0.8
FEWEST_ARRIVALS = 10
# A coefficient is seen where it makes up this share of a step, in so many of them.
SEEN_SHARE, SEEN_STEPS = 0.1, 5
GPU_TIMES = ("fixed_s", "per_token_s", "per_prefill_pair_s", "per_decode_context_s")
HOST_TIMES = ("fixed_s", "per_request_s", "per_prompt_s", "ungraphed_s")
BEGINNINGS = ("ingest_s", "first_step_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`error`: the median distance from a measured step, as a share of it.

    `assumed`: coefficients that the steps do not show, so that they are those of other engines.
    """

    step: StepModel
    samples: int
    error: float
    host_steps: int = 0  # in which the host was slower
    assumed: tuple[str, ...] = ()


def fit_steps(
    steps: StepSamples, origin: str, *, prior: StepModel | None = None, host: Host | None = None
) -> Fit:
    """Fit twice: the second time without the hiccups that the first one shows.

    `host`, where its work runs beside the GPU's: what it takes elsewhere. None fits a single sum.
    """
    import numpy as np

    data = _Data(steps, prior, host)
    keep = ~data.firsts
    if len(steps) < FEWEST_STEPS or keep.sum() < FEWEST_STEPS // 2:
        raise InputError(
            f"the calibration has {len(steps):,} steps: too few to fit a step model to",
            hint="verify with more requests",
        )
    for _ in range(2):
        found = data.best(keep)
        distance = np.abs(data.predicted(found) - data.seconds) / data.seconds
        typical = float(np.median(distance[~data.firsts]))
        keep = data.without_hiccups(found, distance)
    step = _step(found, origin, host)
    if host is None:
        return Fit(step=step, samples=len(steps), error=typical)
    begun = _beginnings(steps, data, step)
    return Fit(
        step=replace(step, host=replace(step.host, **begun)),
        samples=len(steps),
        error=typical,
        host_steps=int((data.by_host(found) & keep).sum()),
        assumed=(*data.unseen(found, keep), *(f"host.{n}" for n in BEGINNINGS if n not in begun)),
    )


@dataclass(frozen=True)
class _Found:
    left: float
    free: int
    gpu: "Floats"
    host: "Floats"


class _Data:
    """The steps as columns: what the GPU's time depends on, and what the host's does."""

    def __init__(self, steps: StepSamples, prior: StepModel | None, host: Host | None) -> None:
        import numpy as np

        def column(values: "tuple[float, ...] | tuple[int, ...]") -> "Floats":
            return np.asarray(values, dtype=float)

        prompts, decodes = column(steps.prefill_requests), column(steps.decode_requests)
        self.seconds = column(steps.duration_s)
        self.tokens = column(steps.prefill_tokens) + decodes
        self.requests = prompts + decodes
        self.is_reading = column(steps.prefill_tokens) > GRAPHED_TOKENS
        self.firsts = _firsts(steps) if host else np.zeros(len(steps), dtype=bool)
        self._rest = [column(steps.prefill_pairs), column(steps.decode_context_tokens)]
        ones = np.ones_like(self.seconds)
        over = (self.tokens > GRAPHED_TOKENS).astype(float)
        self.host = np.stack([ones, self.requests, prompts, over], axis=1) if host else None
        # Where the host's work is hidden, a request costs the GPU no more than its tokens do.
        self._rest += [] if host else [self.requests]
        self._gpu_prior = _gpu_prior(prior, len(self._rest) + 2)
        self._host_prior = _host_prior(host)
        # A step's noise grows with its length: half way between absolute and relative errors.
        self._weight = 1 / self.seconds**0.5

    def gpu(self, free: int) -> "Floats":
        import numpy as np

        paid = np.maximum(0.0, self.tokens - free)
        return np.stack([np.ones_like(paid), paid, *self._rest], axis=1)

    def predicted(self, found: _Found) -> "Floats":
        import numpy as np

        gpu: Floats = self.gpu(found.free) @ found.gpu
        return gpu if self.host is None else np.maximum(gpu, self.host @ found.host)

    def by_host(self, found: _Found) -> "Flags":
        if self.host is None:
            raise AssertionError("there is no host to be slower")
        slower: Flags = self.host @ found.host > self.gpu(found.free) @ found.gpu
        return slower

    def without_hiccups(self, found: _Found, distance: "Floats") -> "Flags":
        """The host's steps vary more than the GPU's: each kind by its own spread."""
        import numpy as np

        keep = ~self.firsts
        slower = self.by_host(found) if self.host is not None else ~keep
        for kind in (slower, ~slower):
            if (kind & keep).any():
                spread = max(1e-3, float(np.median(distance[kind & keep])))
                keep &= ~kind | (distance <= OUTLIER_SPREADS * spread)
        return keep

    def unseen(self, found: _Found, keep: "Flags") -> "Iterator[str]":
        """Names of the coefficients that no measured step depends on."""
        if self.host is None:
            raise AssertionError("there is no host to be slower")
        slower = self.by_host(found)
        gpu = (self.gpu(found.free) * found.gpu)[keep & ~slower]
        host = (self.host * found.host)[keep & slower]
        for names, parts, prefix in ((GPU_TIMES, gpu, ""), (HOST_TIMES, host, "host.")):
            seen = (parts > SEEN_SHARE * parts.sum(axis=1, keepdims=True)).sum(axis=0)
            yield from (prefix + n for n, s in zip(names, seen, strict=True) if s < SEEN_STEPS)

    def best(self, keep: "Flags") -> _Found:
        """The number of free tokens, and the coefficients, that leave the least."""
        if self.host is None:
            tried = [self._sum(free, keep) for free in FREE_TOKENS]
        else:
            firsts = (self._alternate(FREE_TOKENS[0], guess, keep) for guess in self._guesses())
            guess = self.by_host(min(firsts, key=lambda found: found.left))
            tried = [self._alternate(free, guess, keep) for free in FREE_TOKENS]
        enough = min(found.left for found in tried) * (1 + NO_BETTER) + 1e-12
        return next(found for found in tried if found.left <= enough)

    def _sum(self, free: int, keep: "Flags") -> _Found:
        left, gpu = self._solve(self.gpu(free), keep, self._gpu_prior)
        return _Found(left, free, gpu, self._host_prior)

    def _guesses(self) -> "Iterator[Flags]":
        for many in HOST_REQUESTS:
            yield (self.requests >= many) & ~self.is_reading
        if self._gpu_prior.all():
            yield self.by_host(_Found(0.0, 0, self._gpu_prior, self._host_prior))

    def _alternate(self, free: int, guess: "Flags", keep: "Flags") -> _Found:
        if self.host is None:
            raise AssertionError("there is no host to be slower")
        import numpy as np

        features = self.gpu(free)
        for _ in range(MOST_GUESSES):
            gpu = self._solve(features, keep & ~guess, self._gpu_prior)[1]
            host = self._solve(self.host, keep & guess, self._host_prior)[1]
            by_gpu, by_host = features @ gpu, self.host @ host
            before, guess = guess, by_host > by_gpu
            if (guess == before).all():
                break
        off = ((np.maximum(by_gpu, by_host) - self.seconds) * self._weight)[keep]
        return _Found(float(off @ off), free, gpu, host)

    def _solve(self, features: "Floats", rows: "Flags", prior: "Floats") -> "tuple[float, Floats]":
        import numpy as np

        weight = self._weight[rows]
        wanted = self.seconds[rows] * weight
        strength = PRIOR_STEPS * (float(np.median(self.seconds[rows])) if rows.any() else 1.0)
        return _non_negative(features[rows] * weight[:, None], wanted, prior, strength)


def _gpu_prior(prior: StepModel | None, columns: int) -> "Floats":
    """Zero where nothing is known."""
    import numpy as np

    if prior is None:
        return np.zeros(columns)
    known = (prior.fixed_s, prior.per_token_s, prior.per_prefill_pair_s, prior.per_decode_context_s)
    return np.asarray([*known, 0.0][:columns])


def _host_prior(host: Host | None) -> "Floats":
    import numpy as np

    if host is None:
        return np.zeros(0)
    return np.asarray([host.fixed_s, host.per_request_s, host.per_prompt_s, host.ungraphed_s])


def _non_negative(
    features: "Floats", wanted: "Floats", prior: "Floats", strength: float
) -> "tuple[float, Floats]":
    """Non-negative least squares, by trying every set of columns: there are only five.

    Each coefficient with a prior is drawn to it, as by one more row: prior / prior = 1.
    """
    import numpy as np

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
    best, answer = total, np.zeros(len(scale))
    for size in range(1, len(scale) + 1):
        for chosen in map(list, combinations(range(len(scale)), size)):
            some = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], side[chosen], rcond=1e-12)[0]
            left = total - float(some @ side[chosen])
            if (some >= 0).all() and left < best * (1 - 1e-9):
                best, answer = left, np.zeros(len(scale))
                answer[chosen] = some
    return best, answer / scale


def _step(found: _Found, origin: str, host: Host | None) -> StepModel:
    fixed, token, pair, context, *request = map(float, found.gpu)
    if host is not None:
        host = replace(host, **dict(zip(HOST_TIMES, map(float, found.host), strict=True)))
    return StepModel(
        fixed_s=max(fixed, 1e-6),  # no step takes no time
        per_token_s=token,
        per_prefill_pair_s=pair,
        per_decode_context_s=context,
        per_request_s=request[0] if request else 0.0,
        free_tokens=found.free,
        host=host or NO_HOST,
        origin=origin,
    )


# -- how a run begins --------------------------------------------------------------------------


def _firsts(steps: StepSamples) -> "Flags":
    """The first step of each repeat: nobody decodes, and somebody did in the step before."""
    import numpy as np

    decodes, setting = np.asarray(steps.decode_requests), np.asarray(steps.setting)
    first: Flags = decodes == 0
    first[1:] &= (decodes[:-1] > 0) | (setting[1:] != setting[:-1])
    return first


def _beginnings(steps: StepSamples, data: _Data, step: StepModel) -> dict[str, float]:
    """How late the second step began, and how many requests had come in until then."""
    import numpy as np

    firsts = [int(place) for place in np.flatnonzero(data.firsts)]
    late = [steps.duration_s[n] - _of(steps, n, step) for n in firsts]
    apart = [
        steps.duration_s[n] / steps.prefill_requests[n + 1]
        for n in firsts
        if n + 1 < len(steps) and _took_all(steps, data, n + 1)
    ]
    shown = {}
    if len(late) > 1:
        shown["first_step_s"] = max(0.0, float(np.median(late)))
    if len(apart) > 1:
        shown["ingest_s"] = float(np.median(apart))
    return shown


def _of(steps: StepSamples, n: int, step: StepModel) -> float:
    prompts, decodes = steps.prefill_requests[n], steps.decode_requests[n]
    tokens = steps.prefill_tokens[n] + decodes
    context = steps.decode_context_tokens[n]
    return step.of(tokens, steps.prefill_pairs[n], context, prompts + decodes, prompts)


def _took_all(steps: StepSamples, data: _Data, n: int) -> bool:
    """Was there room for more requests than it holds? Then no more had come in."""
    same = [place for place, name in enumerate(steps.setting) if name == steps.setting[n]]
    return (
        steps.prefill_requests[n] >= FEWEST_ARRIVALS
        and data.tokens[n] < UNFILLED * data.tokens[same].max()
    )
