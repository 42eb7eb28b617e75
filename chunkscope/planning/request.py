"""What is asked of a plan: stored in it, and reused by simulate, verify and gate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from chunkscope.artefacts.note import Fact, Note
from chunkscope.artefacts.words import one_of
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile, Profile
from chunkscope.planning.rule import DEFAULT_RULE, LengthRule
from chunkscope.simulation.slo import Slo, read_slo
from chunkscope.simulation.workload import BATCH, arrival_rate
from chunkscope.vllm.deployment import OWN
from chunkscope.vllm.enums import KvCacheType, Mode, SendOrder, Task
from chunkscope.vllm.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The aim, what is sent, and what the user fixed. Where it runs is the `Deployment`.

    `settings` holds for every setting that is tried: GPUs, context, type of the KV cache.
    `shared_prefix` and `order` None: as the data has them. `requests` None: all, up to a limit.
    """

    dataset: str | None = None
    task: Task = Task.GENERATE
    settings: Settings = OWN
    mode: Mode | None = None  # forces the length rule
    rule: LengthRule = DEFAULT_RULE
    max_output: int | None = None
    shared_prefix: int | None = None
    order: SendOrder | None = None
    slo: Slo = ()
    arrivals: str = BATCH
    concurrency: int | None = None  # requests that the client keeps under way; None: all
    requests: int | None = None
    seed: int = 0
    price_per_hour: float | None = None  # of one GPU

    def __post_init__(self) -> None:
        price = self.price_per_hour
        if price is not None and not 0 < price < math.inf:
            raise UsageError(f"price_per_hour must be over 0, not {price:g}")
        fixed = self.settings
        counts = {
            "max-output": self.max_output,
            "requests": self.requests,
            "concurrency": self.concurrency,
            "tp": fixed.tensor_parallel_size,
            "dp": fixed.data_parallel_size,
        }
        for name, count in counts.items():
            if count is not None and count < 1:
                raise UsageError(f"--{name} must be at least 1, not {count}")

    @classmethod
    def of(
        cls,
        *,
        tp: int = 1,
        dp: int = 1,
        ep: bool = False,
        kv_cache_dtype: KvCacheType | str = KvCacheType.AUTO,
        max_model_len: int | None = None,
        slo: str | Slo | None = None,
        **asked: Any,
    ) -> "PlanRequest":
        """As people write it: words for choices, a text for the limits.

        >>> PlanRequest.of(tp=2, task="loglikelihood").settings.given()
        {'tensor_parallel_size': 2}
        >>> PlanRequest.of(task="speed")
        Traceback (most recent call last):
        ...
        chunkscope.errors.UsageError: task is 'speed', which is none of: generate, loglikelihood
        """
        if unknown := sorted(set(asked) - {field.name for field in fields(cls)}):
            raise UsageError(f"recommend knows no {unknown[0]!r}")
        dtype = one_of(KvCacheType, kv_cache_dtype, "kv_cache_dtype")
        for name, kind in (("task", Task), ("mode", Mode), ("order", SendOrder)):
            if name in asked:
                asked[name] = one_of(kind, asked[name], name)
        asked = {name: value for name, value in asked.items() if value is not None}
        return cls(
            settings=Settings(
                max_model_len=max_model_len,
                tensor_parallel_size=tp,
                data_parallel_size=dp if dp != 1 else None,
                enable_expert_parallel=ep or None,
                kv_cache_dtype=None if dtype is KvCacheType.AUTO else dtype.value,
            ),
            slo=read_slo(slo) if isinstance(slo, str) else slo or (),
            **asked,
        )

    @property
    def rate(self) -> float | None:
        """Requests a second; None where all are sent at once."""
        return arrival_rate(self.arrivals)

    @property
    def is_open(self) -> bool:
        """Requests come by themselves: then a setting cannot make the run any shorter."""
        return self.rate is not None

    @property
    def aim(self) -> "Aim":
        if not self.slo:
            return Aim.THROUGHPUT
        return Aim.ROOM_TO_LIMITS if self.is_open else Aim.THROUGHPUT_WITHIN_LIMITS


class Aim(StrEnum):
    """What decides between settings."""

    THROUGHPUT = "throughput"
    THROUGHPUT_WITHIN_LIMITS = "throughput within the limits"
    ROOM_TO_LIMITS = "room to the limits"  # who decides when requests come decides the rest


class OutputOrigin(StrEnum):
    """Where the length of an answer comes from."""

    ASKED = "asked"
    DATA = "data"
    SCORED = "scored"  # a likelihood eval generates one token
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How many tokens an answer may have: room is left for so many.

    `assumed_of`: the datasets whose answers nobody knows; theirs are taken to have 256 tokens, and
    no dataset borrows those of another.
    """

    tokens: int
    origin: OutputOrigin
    assumed_of: tuple[str, ...] = ()

    @property
    def assumed(self) -> bool:
        return bool(self.assumed_of)


def output_of(datasets: Sequence[DatasetProfile], request: PlanRequest) -> Output:
    """As asked, else the longest that the data shows, and 256 for what it does not show."""
    if request.max_output is not None:
        return Output(tokens=request.max_output, origin=OutputOrigin.ASKED)
    answering = [d for d in datasets if not d.scored]
    if request.task is Task.LOGLIKELIHOOD or not answering:
        return Output(tokens=1, origin=OutputOrigin.SCORED)
    longest = {d.name: (d.output_lengths.max or 0) if d.output_lengths else 0 for d in answering}
    silent = tuple(name for name, tokens in longest.items() if not tokens)
    tokens = max(DEFAULT_OUTPUT if silent else 0, *longest.values())
    origin = OutputOrigin.DATA if len(silent) < len(longest) else OutputOrigin.ASSUMED
    return Output(tokens=tokens, origin=origin, assumed_of=silent)


def assumed_output(output: Output) -> Note:
    names: list[Fact] = [*output.assumed_of]
    return Note(code="assumed_output", values={"tokens": DEFAULT_OUTPUT, "datasets": names})


def chosen_datasets(profile: Profile, name: str | None) -> tuple[DatasetProfile, ...]:
    """Those with prompts, or the one of that name."""
    filled = tuple(d for d in profile.datasets if d.rows)
    if not filled:
        raise InputError(
            "the profile has no prompts", hint="analyze a dataset with rows: `chunkscope analyze`"
        )
    if name is None:
        return filled
    chosen = tuple(d for d in filled if d.name == name)
    if not chosen:
        names = [d.name for d in filled]
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the profile has: {', '.join(names[:10])}"
        raise UsageError(f"no such dataset in the profile: {name}", hint=hint)
    return chosen
