"""What is asked of a plan: stored in it, and reused by simulate, verify and gate."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from chunkscope.artefacts.note import Note, note, one_of
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile, Profile
from chunkscope.planning.rule import DEFAULT_RULE, LengthRule
from chunkscope.simulation.slo import Slo, read_slo
from chunkscope.simulation.workload import (
    BATCH,
    DatasetOutput,
    arrival_rate,
    dataset_output,
)
from chunkscope.vllm.enums import KvCacheType, Mode, SendOrder, Task
from chunkscope.vllm.settings import OWN, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The aim, what is sent, and what the user fixed. Where it runs is the `Engine`.

    `settings` holds for every setting that is tried: GPUs, context, type of the KV cache.
    `task`, `shared_prefix` and `order` None: as the data has them. `max_output` holds for all
    datasets that `max_outputs` does not name. `requests` None: all, up to a limit.
    """

    dataset: str | None = None
    task: Task | None = None
    settings: Settings = OWN
    mode: Mode | None = None  # forces the length rule
    rule: LengthRule = DEFAULT_RULE
    max_output: int | None = None
    max_outputs: dict[str, int] = field(default_factory=dict)
    shared_prefix: int | None = None
    order: SendOrder | None = None
    slo: Slo = ()
    arrivals: str = BATCH
    concurrency: int | None = (
        None  # requests that the client keeps under way; None: all
    )
    requests: int | None = None
    seed: int = 0
    price_per_hour: float | None = None  # of one GPU

    def __post_init__(self) -> None:
        price = self.price_per_hour
        if price is not None and not 0 < price < math.inf:
            raise UsageError(f"price_per_hour must be over 0, not {price:g}")
        fixed = self.settings
        counts = (
            ("max-output", self.max_output),
            *(("max-output", tokens) for tokens in self.max_outputs.values()),
            ("requests", self.requests),
            ("concurrency", self.concurrency),
            ("shared-prefix", self.shared_prefix or None),
            ("max-model-len", fixed.max_model_len),
            ("tp", fixed.tensor_parallel_size),
            ("dp", fixed.data_parallel_size),
        )
        for name, count in counts:
            if count is not None and not (
                isinstance(count, int) and 1 <= count <= 10**7
            ):
                raise UsageError(f"--{name} must be 1 to 10,000,000, not {count!r}")

    @classmethod
    def of(
        cls,
        *,
        tp: int = 1,
        dp: int = 1,
        ep: bool = False,
        kv_cache_dtype: KvCacheType | str = KvCacheType.AUTO,
        max_model_len: int | None = None,
        slo: str | Iterable[str] | Slo | None = None,
        max_output: "MaxOutput | None" = None,
        **asked: Any,
    ) -> "PlanRequest":
        """As people write it: words for choices, a text for the limits."""
        if unknown := sorted(set(asked) - {field.name for field in fields(cls)}):
            raise UsageError(f"recommend has no option {unknown[0]}")
        dtype = one_of(KvCacheType, kv_cache_dtype, "kv_cache_dtype")
        for name, kind in (("task", Task), ("mode", Mode), ("order", SendOrder)):
            if asked.get(name) is not None:
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
            slo=read_slo(slo),
            **{**asked, **read_max_output(max_output)},
        )

    def asked_as(self, options: Any) -> "PlanRequest":
        """With what options of `simulate` or `verify` say instead; None or () says nothing."""
        names = (
            "requests",
            "arrivals",
            "max_output",
            "shared_prefix",
            "order",
            "concurrency",
        )
        values = {
            name: getattr(options, name, None)
            for name in (*names, "slo", "seed", "task")
        }
        given = {
            name: value for name, value in values.items() if value not in (None, ())
        }
        if options.max_output:
            given["max_outputs"] = {}
        return replace(self, **given)

    def outputs(self, datasets: Sequence[DatasetProfile]) -> tuple[DatasetOutput, ...]:
        """What each of them is sent for, and how long its answers are: none borrows another's."""
        names = [dataset.name for dataset in datasets]
        for name in self.max_outputs:
            if name not in names:
                raise _no_such_dataset(name, names)
        asked = [self.max_outputs.get(name, self.max_output) for name in names]
        pairs = zip(datasets, asked, strict=True)
        return tuple(
            dataset_output(dataset, self.task, most) for dataset, most in pairs
        )

    def output_notes(self, datasets: Sequence[DatasetProfile]) -> tuple[Note, ...]:
        """That nobody knows how long some answers are."""
        names = [output.name for output in self.outputs(datasets) if output.is_assumed]
        unknown = note("assumed_output", tokens=DEFAULT_OUTPUT, datasets=names)
        return (unknown,) if names else ()

    @property
    def rate(self) -> float | None:
        """Requests a second; None where all are sent at once."""
        return arrival_rate(self.arrivals)

    @property
    def is_open(self) -> bool:
        """Requests come by themselves: no setting makes the run any shorter, the limits decide."""
        return self.rate is not None


MaxOutput = int | Mapping[str, int] | Iterable[str]


def read_max_output(given: MaxOutput | None) -> dict[str, Any]:
    """One number for all, or `NAME=N` for single datasets, several with commas.

    >>> read_max_output(["gsm8k=300,mmlu=1", "64"])
    {'max_output': 64, 'max_outputs': {'gsm8k': 300, 'mmlu': 1}}
    """
    if given is None or isinstance(given, int | float):
        return {"max_output": given} if given is not None else {}
    if isinstance(given, Mapping):
        return {"max_outputs": dict(given)}
    texts = [given] if isinstance(given, str) else given
    pairs = [
        p.rpartition("=") for text in texts for p in re.split(r"(?<=\d),(?=.*=)", text)
    ]
    if wrong := next(
        (text for *_, text in pairs if not text.strip().isdecimal()), None
    ):
        hint = "write `--max-output 256`, or `--max-output gsm8k=300` for one dataset"
        raise UsageError(
            f"--max-output: {wrong!r} is not a number of tokens", hint=hint
        )
    tokens = {name: int(text) for name, _, text in pairs}
    return {"max_output": tokens.pop("", None), "max_outputs": tokens}


def chosen_datasets(profile: Profile, name: str | None) -> tuple[DatasetProfile, ...]:
    """Those with prompts, or the one of that name."""
    filled = tuple(d for d in profile.datasets if d.rows)
    if not filled:
        hint = "analyze a dataset with rows: `chunkscope analyze`"
        raise InputError("the profile has no prompts", hint=hint)
    if name is None:
        return filled
    chosen = tuple(d for d in filled if d.name == name)
    if not chosen:
        raise _no_such_dataset(name, [d.name for d in filled])
    return chosen


def _no_such_dataset(name: str, names: Sequence[str]) -> UsageError:
    near = get_close_matches(name, names)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else f"the profile has: {', '.join(names[:10])}"
    )
    return UsageError(f"no such dataset in the profile: {name}", hint=hint)


def client_concurrency(
    request: PlanRequest, datasets: Sequence[DatasetProfile]
) -> int | None:
    """Requests that the client keeps under way: as asked for, else as the logs of the
    harness say for all datasets. None: all at once."""
    if request.concurrency or request.is_open:
        return request.concurrency
    logged = []
    for dataset in datasets:
        if dataset.log is None or dataset.log.concurrency is None:
            return None
        logged.append(dataset.log.concurrency)
    return min(logged, default=None)
