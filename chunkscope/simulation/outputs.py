"""How long answers are: what is asked, what the data say, else what is assumed."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import exp, log, sqrt
from statistics import NormalDist

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.artefacts.numbers import TOKENS
from chunkscope.errors import UsageError
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile
from chunkscope.vllm.enums import Task

MOST_LENGTHS = 1_000  # of answers, that are drawn from
Z_95 = NormalDist().inv_cdf(0.95)
EXAMPLE = "--output 300, --output p50=9k,p95=32k or --output mean=12k,p95=32k"
LONGEST = 10_000_000  # tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLengths:
    """How long answers are: log-normal by these two, or lengths that were counted.

    >>> read_output("p50=9k,p95=32k")
    OutputLengths(p50=9000, p95=32000, counted=())
    """

    p50: int
    p95: int
    counted: Numbers = NO_NUMBERS  # in order, each as likely as the others

    @classmethod
    def of(cls, histogram: LengthHistogram) -> "OutputLengths":
        """As they were counted."""
        lengths = spread(histogram.counts)
        p50 = round(histogram.percentile(50) or 1)
        p95 = round(histogram.percentile(95) or 1)
        return cls(p50=p50, p95=p95, counted=Numbers(lengths))

    @property
    def is_number(self) -> bool:
        """Is every answer as long as the others?"""
        return self.p50 == self.p95 and not self.counted

    def lengths(self) -> list[int]:
        """To draw from."""
        if self.counted:
            return list(self.counted)
        if self.is_number:
            return [self.p50]
        spread_of_logs = log(self.p95 / self.p50) / Z_95
        lengths = []
        for number in range(MOST_LENGTHS):
            rank = NormalDist().inv_cdf((number + 0.5) / MOST_LENGTHS)
            lengths.append(max(1, round(self.p50 * exp(spread_of_logs * rank))))
        return lengths


def read_output(text: str | int) -> OutputLengths:
    """A number, or two of p50, p95 and mean; UsageError where it says neither."""
    parts: dict[str, float] = {}
    for part in str(text).split(","):
        name, _, value = part.rpartition("=")
        name = name.strip()
        if name not in ("", "p50", "p95", "mean") or name in parts:
            raise wrong_output(f"{part.strip()!r} is none of p50, p95 and mean")
        try:
            parts[name] = TOKENS.read(value.strip())
        except ValueError as error:
            raise wrong_output(str(error)) from None
        if not 1 <= parts[name] <= LONGEST:
            raise wrong_output(f"{value.strip()} is no length of an answer")
    if set(parts) == {""}:
        tokens = round(parts[""])
        return OutputLengths(p50=tokens, p95=tokens)
    if "" in parts or len(parts) != 2:
        raise wrong_output(f"{text!r} is neither one number nor two of p50, p95, mean")
    return log_normal(parts)


def log_normal(parts: dict[str, float]) -> OutputLengths:
    """With two of median, p95 and mean."""
    if "mean" not in parts:
        p50, p95 = parts["p50"], parts["p95"]
    elif "p50" in parts:
        # The mean is the median times exp(s^2 / 2), with s the spread of logarithms.
        p50 = parts["p50"]
        spread_of_logs = sqrt(2 * log(max(1.0, parts["mean"] / p50)))
        p95 = p50 * exp(Z_95 * spread_of_logs)
    else:
        # p95 is the mean times exp(Z s - s^2 / 2), which has a largest value.
        p95 = parts["p95"]
        root = Z_95**2 - 2 * log(max(1.0, p95 / parts["mean"]))
        if root < 0:
            raise wrong_output("a log-normal p95 is at most 3.9 times the mean")
        spread_of_logs = Z_95 - sqrt(root)
        p50 = p95 / exp(Z_95 * spread_of_logs)
    if p95 < p50 or p50 > parts.get("mean", p95):
        raise wrong_output("p95 and mean must be larger than p50")
    return OutputLengths(p50=max(1, round(p50)), p95=max(1, round(p95)))


def wrong_output(why: str) -> UsageError:
    return UsageError(f"--output: {why}", hint=f"write it like {EXAMPLE}")


class OutputOrigin(StrEnum):
    """Where the length of an answer comes from."""

    ASKED = "asked"
    EARLIER = "earlier"  # counted in an earlier run
    DATA = "data"
    SCORED = "scored"  # a likelihood request generates one token
    TASK = "task"  # the most that the harness's task or log lets it have
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOutput:
    """How long the answers of a dataset are; room is left for so many `tokens`."""

    name: str
    tokens: int
    origin: OutputOrigin
    asked: OutputLengths | None = None  # where they are asked for, or of an earlier run

    @property
    def is_scored(self) -> bool:
        return self.origin is OutputOrigin.SCORED

    @property
    def is_assumed(self) -> bool:
        """Nobody knows how long its answers are."""
        return self.origin in (OutputOrigin.TASK, OutputOrigin.ASSUMED)

    @property
    def is_measured(self) -> bool:
        """Were they counted, here or in an earlier run, or are they one token each?"""
        return self.origin in (
            OutputOrigin.DATA,
            OutputOrigin.EARLIER,
            OutputOrigin.SCORED,
        )

    def longest_prompt(self, room: int) -> int:
        """That leaves room for the answer: of a distribution, for the median.

        Longer answers then end where the context does.
        """
        tokens = self.tokens
        if self.asked is not None:
            tokens = self.asked.p50
        return max(0, room - tokens)

    def lengths(self, dataset: DatasetProfile, times: float = 1.0) -> list[int]:
        """To draw from; what is assumed is taken `times` as long."""
        if self.asked is not None:
            return self.asked.lengths()
        if self.origin is OutputOrigin.DATA and dataset.output_lengths:
            return spread(dataset.output_lengths.counts)
        if not self.is_assumed:
            return [self.tokens]
        tokens = round(DEFAULT_OUTPUT * times)
        if self.origin is OutputOrigin.TASK:
            tokens = min(self.tokens, tokens)
        return [tokens]


def spread(counts: Mapping[int, int]) -> list[int]:
    """At most 1,000 lengths that stand for all that were counted, in order."""
    lengths = sorted(length for length, count in counts.items() if count)
    up_to = list(accumulate(counts[length] for length in lengths))
    count = min(up_to[-1], MOST_LENGTHS)
    chosen = []
    for number in range(count):
        rank = (number + 0.5) / count * up_to[-1]
        chosen.append(lengths[bisect_right(up_to, rank)])
    return chosen


def dataset_output(
    dataset: DatasetProfile,
    task: Task | None = None,
    asked: OutputLengths | None = None,
    origin: OutputOrigin = OutputOrigin.ASKED,
) -> DatasetOutput:
    """What a dataset is sent for, unless a `task` is given for all: as asked, else the
    longest answer in the data, else the most that its task allows, else 256 tokens."""
    name = dataset.name
    if task is Task.LOGLIKELIHOOD or (dataset.scored and task is None):
        return DatasetOutput(name=name, tokens=1, origin=OutputOrigin.SCORED)
    if asked is not None:
        return DatasetOutput(name=name, tokens=asked.p95, origin=origin, asked=asked)
    if dataset.output_lengths and dataset.output_lengths.max:
        tokens = dataset.output_lengths.max
        return DatasetOutput(name=name, tokens=tokens, origin=OutputOrigin.DATA)
    if dataset.log and not dataset.scored and dataset.log.output_limit:
        tokens = dataset.log.output_limit
        return DatasetOutput(name=name, tokens=tokens, origin=OutputOrigin.TASK)
    return DatasetOutput(name=name, tokens=DEFAULT_OUTPUT, origin=OutputOrigin.ASSUMED)
