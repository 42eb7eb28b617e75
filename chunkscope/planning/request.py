"""What is asked of a plan: stored in it, and reused by simulate, verify and gate."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Protocol

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

    `settings` holds for every setting that is tried: GPUs, context, type of the KV
    cache. `task`, `shared_prefix` and `order` None: as the data has them. `max_output`
    holds for all datasets that `max_outputs` does not name. `requests` None: all, up to
    a limit.
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
        check_count("max-output", self.max_output)
        for tokens in self.max_outputs.values():
            check_count("max-output", tokens)
        check_count("requests", self.requests)
        check_count("concurrency", self.concurrency)
        check_count("shared-prefix", self.shared_prefix or None)
        check_count("max-model-len", self.settings.max_model_len)
        check_count("tp", self.settings.tensor_parallel_size)
        check_count("dp", self.settings.data_parallel_size)

    @classmethod
    def of(  # noqa: PLR0913  (all by name)
        cls,
        *,
        tp: int = 1,
        dp: int = 1,
        ep: bool = False,
        kv_cache_dtype: KvCacheType | str = KvCacheType.AUTO,
        max_model_len: int | None = None,
        slo: str | Iterable[str] | Slo | None = None,
        max_output: "MaxOutput | None" = None,
        task: Task | str | None = None,
        mode: Mode | str | None = None,
        order: SendOrder | str | None = None,
        dataset: str | None = None,
        rule: LengthRule | None = None,
        shared_prefix: int | None = None,
        arrivals: str | None = None,
        concurrency: int | None = None,
        requests: int | None = None,
        seed: int = 0,
        price_per_hour: float | None = None,
    ) -> "PlanRequest":
        """As people write it: words for choices, a text for the limits."""
        dtype = one_of(KvCacheType, kv_cache_dtype, "kv_cache_dtype")
        answers = read_max_output(max_output)
        return cls(
            dataset=dataset,
            task=one_of(Task, task, "task") if task is not None else None,
            settings=Settings(
                max_model_len=max_model_len,
                tensor_parallel_size=tp,
                data_parallel_size=dp if dp != 1 else None,
                enable_expert_parallel=ep or None,
                kv_cache_dtype=None if dtype is KvCacheType.AUTO else dtype.value,
            ),
            mode=one_of(Mode, mode, "mode") if mode is not None else None,
            rule=rule or DEFAULT_RULE,
            max_output=answers.of_all,
            max_outputs=answers.by_dataset,
            shared_prefix=shared_prefix,
            order=one_of(SendOrder, order, "order") if order is not None else None,
            slo=read_slo(slo),
            arrivals=arrivals or BATCH,
            concurrency=concurrency,
            requests=requests,
            seed=seed,
            price_per_hour=price_per_hour,
        )

    def asked_as(self, options: "Asked") -> "PlanRequest":
        """With what `simulate` or `verify` ask for instead; None or () says nothing."""
        changes: dict[str, Any] = {}
        for name in REPLACEABLE:
            value = getattr(options, name, None)
            if value not in (None, ()):
                changes[name] = value
        if options.max_output:
            changes["max_outputs"] = {}
        return replace(self, **changes)

    def outputs(self, datasets: Sequence[DatasetProfile]) -> tuple[DatasetOutput, ...]:
        """What each is sent for, and how long its own answers are."""
        names = [dataset.name for dataset in datasets]
        for name in self.max_outputs:
            if name not in names:
                raise _no_such_dataset(name, names)
        asked = [self.max_outputs.get(name, self.max_output) for name in names]
        outputs = []
        for dataset, most in zip(datasets, asked, strict=True):
            outputs.append(dataset_output(dataset, self.task, most))
        return tuple(outputs)

    def output_notes(self, datasets: Sequence[DatasetProfile]) -> tuple[Note, ...]:
        """That nobody knows how long some answers are."""
        names = []
        for output in self.outputs(datasets):
            if output.is_assumed:
                names.append(output.name)
        if not names:
            return ()
        return (note("assumed_output", tokens=DEFAULT_OUTPUT, datasets=names),)

    @property
    def rate(self) -> float | None:
        """Requests a second; None where all are sent at once."""
        return arrival_rate(self.arrivals)

    @property
    def is_open(self) -> bool:
        """Do requests come by themselves? Then the limits decide, not the time."""
        return self.rate is not None


# What `simulate` and `verify` may ask for instead of the plan.
REPLACEABLE = (
    "requests",
    "arrivals",
    "max_output",
    "shared_prefix",
    "order",
    "concurrency",
    "slo",
    "seed",
    "task",
)


class Asked(Protocol):
    """The options of a command that may say something else than the plan."""

    @property
    def max_output(self) -> int | None: ...


MOST = 10_000_000  # of anything that is counted here


def check_count(name: str, count: int | None) -> None:
    """UsageError where a number is not one that somebody could mean."""
    if count is None:
        return
    if not isinstance(count, int) or not 1 <= count <= MOST:
        raise UsageError(f"--{name} must be 1 to {MOST:,}, not {count!r}")


# -- the length of answers -------------------------------------------------------------

MaxOutput = int | Mapping[str, int] | Iterable[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOutput:
    """The longest answer of all datasets, and of those that are named."""

    of_all: int | None = None
    by_dataset: dict[str, int] = field(default_factory=dict)


def read_max_output(asked: MaxOutput | None) -> AskedOutput:
    """One number for all, or `NAME=N` for single datasets, several with commas.

    >>> read_max_output(["gsm8k=300,mmlu=1", "64"])
    AskedOutput(of_all=64, by_dataset={'gsm8k': 300, 'mmlu': 1})
    """
    if asked is None:
        return AskedOutput()
    if isinstance(asked, int | float):
        return AskedOutput(of_all=asked)
    if isinstance(asked, Mapping):
        return AskedOutput(by_dataset=dict(asked))
    text = asked if isinstance(asked, str) else ",".join(asked)
    tokens_by_name: dict[str, int] = {}
    for part in text.split(","):
        name, _, tokens = part.rpartition("=")
        name = name.strip()
        if not tokens.strip().isdecimal():
            raise wrong_output(f"{part!r} is not a number of tokens")
        if name in tokens_by_name:
            raise wrong_output(f"{name or 'all datasets'} is named twice")
        tokens_by_name[name] = int(tokens)
    of_all = tokens_by_name.pop("", None)
    return AskedOutput(of_all=of_all, by_dataset=tokens_by_name)


def wrong_output(why: str) -> UsageError:
    return UsageError(
        f"--max-output: {why}",
        hint="write `--max-output 256`, or `--max-output gsm8k=300` for one dataset",
    )


# -- which datasets --------------------------------------------------------------------


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
    hint = f"the profile has: {', '.join(names[:10])}"
    if near:
        hint = f"did you mean {near[0]}?"
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
