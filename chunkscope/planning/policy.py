"""Lengths -> off, conservative or aggressive, and a threshold. Pure: no model, no GPU."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, isfinite

from chunkscope.artefacts.words import Name
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import Profile
from chunkscope.vllm.choices import Mode


class Rate(StrEnum):
    """How many prompts are over the threshold: none, some, or all."""

    DISABLED = "disabled"
    SELECTIVE = "selective"
    ALWAYS_ON = "always on"


class Tier(StrEnum):
    """What chunking is worth for prompts of this size."""

    SKIP = "skip"
    OPTIONAL = "optional"
    CONSIDER = "consider"
    RECOMMENDED = "recommended"
    REQUIRED = "required"


# The first cut is the policy's own 1000, so that "skip" and "off" mean the same prompts.
TIERS = (
    (1_000, Tier.SKIP),
    (2_048, Tier.OPTIONAL),
    (4_096, Tier.CONSIDER),
    (8_192, Tier.RECOMMENDED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """The policy's cut-offs, in tokens; the factor is a share of p95."""

    off_below: int = 1_000
    conservative_threshold: int = 2_048
    aggressive_factor: float = 0.8

    def __post_init__(self) -> None:
        if self.off_below < 1:
            raise UsageError(f"--off-below must be at least 1, not {self.off_below}")
        if self.conservative_threshold < 1:
            raise UsageError(
                f"--conservative-threshold must be at least 1, not {self.conservative_threshold}"
            )
        if not (isfinite(self.aggressive_factor) and 0 < self.aggressive_factor <= 1):
            raise UsageError(
                f"--aggressive-factor must be over 0 and at most 1, not {self.aggressive_factor}",
                hint="0.8 chunks the prompts that are longer than 80 % of p95",
            )


DEFAULT_CUTS = Cuts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """What a chunk of `size` tokens does to these prompts; None: no prompt is chunked."""

    size: int | None
    prompts: int
    share: float
    rate: Rate
    median: int | None
    longest: int | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Decision:
    """The mode for one set of prompts, and the number that decided it.

    >>> decide(LengthHistogram.of([10, 50, 90]))
    <Decision off: the longest prompt has 90 tokens (limit 1,000)>
    """

    mode: Mode
    threshold: int | None
    reason: str
    prompts: int
    p50: float
    p95: float
    longest: int
    chunks: Chunks
    tier: Tier
    forced: bool = False

    def __repr__(self) -> str:
        over = "" if self.threshold is None else f", chunk over {self.threshold:,} tokens"
        return f"<Decision {self.mode}{over}: {self.reason}>"


def activation(profile: Profile | Name, cuts: Cuts = DEFAULT_CUTS) -> Decision:
    """Whether prompts like these should be prefilled in chunks, from which length on, and why.

    The decision alone, from lengths: `recommend` weighs it against a model and a GPU. The profile
    may be the file it was saved to.

    >>> decision = activation("reports/example/profile.json")
    >>> decision
    <Decision aggressive, chunk over 2,303 tokens: p95 is 2,880 tokens (limit 2,048)>
    >>> decision.mode.value, decision.threshold
    ('aggressive', 2303)
    >>> activation("reports/example/profile.json", Cuts(off_below=30_000)).mode.value
    'off'
    """
    return decide(Profile.given(profile).overall, cuts)


def decide(
    lengths: LengthHistogram, cuts: Cuts = DEFAULT_CUTS, *, mode: Mode | None = None
) -> Decision:
    """Choose a chunking mode, or take the given one.

    longest prompt   p95        mode           threshold
    < 1000           any        off            -
    >= 1000          < 2048     conservative   2048
    >= 1000          >= 2048    aggressive     0.8 * p95
    """
    longest, p50, p95 = lengths.max, lengths.percentile(50), lengths.percentile(95)
    if longest is None or p50 is None or p95 is None:
        raise InputError("there are no prompts to decide on", hint="analyze a dataset with rows")
    chosen, reason = _mode(longest, p95, cuts)
    if mode is not None and mode is not chosen:
        reason = f"--mode {mode} was given; the policy says {chosen}: {reason}"
    threshold = _threshold(mode or chosen, p95, cuts)
    return Decision(
        mode=mode or chosen,
        threshold=threshold,
        reason=reason,
        prompts=lengths.count,
        p50=p50,
        p95=p95,
        longest=longest,
        chunks=chunked(lengths, threshold),
        tier=tier(longest),
        forced=mode is not None,
    )


def _mode(longest: int, p95: float, cuts: Cuts) -> tuple[Mode, str]:
    if longest < cuts.off_below:
        return Mode.OFF, f"the longest prompt has {longest:,} tokens (limit {cuts.off_below:,})"
    if p95 < cuts.conservative_threshold:
        return Mode.CONSERVATIVE, (
            f"the longest prompt has {longest:,} tokens (limit {cuts.off_below:,}), "
            f"but p95 only {p95:,.0f} (limit {cuts.conservative_threshold:,})"
        )
    return Mode.AGGRESSIVE, f"p95 is {p95:,.0f} tokens (limit {cuts.conservative_threshold:,})"


def _threshold(mode: Mode, p95: float, cuts: Cuts) -> int | None:
    match mode:
        case Mode.OFF:
            return None
        case Mode.CONSERVATIVE:
            return cuts.conservative_threshold
        case Mode.AGGRESSIVE:
            return max(1, int(cuts.aggressive_factor * p95))


def tier(longest: int) -> Tier:
    """The benefit tier: < 1K skip, 1-2K optional, 2-4K consider, 4-8K recommended, 8K+ required.

    >>> tier(2_500).value
    'consider'
    """
    return next((tier for below, tier in TIERS if longest < below), Tier.REQUIRED)


def chunked(lengths: LengthHistogram, size: int | None) -> Chunks:
    """Which prompts a chunk size splits, and into how many pieces.

    >>> chunked(LengthHistogram.of([10, 50, 90]), 40).longest
    3
    """
    over = lengths.over(size) if size is not None else 0
    if size is None or over == 0:
        rate, median, longest = Rate.DISABLED, None, None
    else:
        rate = Rate.ALWAYS_ON if over == lengths.count else Rate.SELECTIVE
        median = ceil(_median_over(lengths, size) / size)
        longest = ceil((lengths.max or 0) / size)
    share = over / lengths.count if lengths.count else 0.0
    return Chunks(size=size, prompts=over, share=share, rate=rate, median=median, longest=longest)


def _median_over(lengths: LengthHistogram, size: int) -> float:
    long = LengthHistogram({length: n for length, n in lengths.counts.items() if length > size})
    median = long.percentile(50)
    if median is None:
        raise ValueError(f"no prompt is over {size} tokens")
    return median
