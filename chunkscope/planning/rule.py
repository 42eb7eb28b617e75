"""The length rule: off, conservative or aggressive, and a threshold."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, inf

from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.vllm.enums import Mode


class Rate(StrEnum):
    """How many prompts are over the threshold: none, some, or all."""

    DISABLED = "disabled"
    SELECTIVE = "selective"
    ALWAYS_ON = "always on"


class Tier(StrEnum):
    """What chunking is worth where the longest prompt has this size: see TIERS."""

    SKIP = "skip"
    OPTIONAL = "optional"
    CONSIDER = "consider"
    RECOMMENDED = "recommended"
    REQUIRED = "required"


# Where the next of them begins: "skip" and the rule's "off" mean the same prompts.
TIERS = (1_000, 2_048, 4_096, 8_192)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRule:
    """The rule's cut-offs, in tokens; the factor is a share of p95."""

    off_below: int = 1_000
    conservative_threshold: int = 2_048
    aggressive_factor: float = 0.8

    def __post_init__(self) -> None:
        for name in ("off_below", "conservative_threshold"):
            tokens = getattr(self, name)
            if tokens < 1:
                raise UsageError(f"{name} must be at least 1, not {tokens}")
        if not 0 < self.aggressive_factor <= 1:
            factor = self.aggressive_factor
            raise UsageError(
                f"aggressive_factor must be over 0 and at most 1, not {factor}"
            )


DEFAULT_RULE = LengthRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """What a chunk of `size` tokens does to these prompts; None: nothing."""

    size: int | None
    prompts: int
    share: float
    rate: Rate
    median: int | None
    longest: int | None


NO_CHUNKS = Chunks(
    size=None, prompts=0, share=0.0, rate=Rate.DISABLED, median=None, longest=None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The mode for one set of prompts: the rule's, or one that is `forced`."""

    mode: Mode
    threshold: int | None
    prompts: int
    p50: float
    p95: float
    longest: int
    chunks: Chunks
    tier: Tier
    forced: bool = False


def decide(
    lengths: LengthHistogram,
    rule: LengthRule = DEFAULT_RULE,
    *,
    mode: Mode | None = None,
) -> Decision:
    """Choose a chunking mode, or take the given one.

    longest prompt   p95        mode           threshold
    < 1000           any        off            -
    >= 1000          < 2048     conservative   2048
    >= 1000          >= 2048    aggressive     0.8 * p95
    """
    longest, p50, p95 = lengths.max, lengths.percentile(50), lengths.percentile(95)
    if longest is None or p50 is None or p95 is None:
        raise InputError(
            "there are no prompts to decide on", hint="analyze a dataset with rows"
        )
    by_rule = Mode.AGGRESSIVE
    if longest < rule.off_below:
        by_rule = Mode.OFF
    elif p95 < rule.conservative_threshold:
        by_rule = Mode.CONSERVATIVE
    thresholds = {
        Mode.OFF: None,
        Mode.CONSERVATIVE: rule.conservative_threshold,
        Mode.AGGRESSIVE: max(1, int(rule.aggressive_factor * p95)),
    }
    threshold = thresholds[mode or by_rule]
    return Decision(
        mode=mode or by_rule,
        threshold=threshold,
        prompts=lengths.count,
        p50=p50,
        p95=p95,
        longest=longest,
        chunks=chunked(lengths, threshold),
        tier=list(Tier)[bisect_right(TIERS, longest)],
        forced=mode is not None,
    )


def chunked(lengths: LengthHistogram, size: int | None, most: float = inf) -> Chunks:
    """Which prompts, of at most `most` tokens, a chunk size splits into how many."""
    if size is None:
        return NO_CHUNKS
    counts = {}
    for tokens, count in lengths.counts.items():
        if size < tokens <= most:
            counts[tokens] = count
    long = LengthHistogram(counts)
    median, longest = long.percentile(50), long.max
    if median is None or longest is None:
        return replace(NO_CHUNKS, size=size)
    every = long.count == lengths.count
    return Chunks(
        size=size,
        prompts=long.count,
        share=long.count / lengths.count,
        rate=Rate.ALWAYS_ON if every else Rate.SELECTIVE,
        median=ceil(median / size),
        longest=ceil(longest / size),
    )
