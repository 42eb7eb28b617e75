"""What is asked of a plan: stored in it, and reused by simulate, verify and gate."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from chunkscope.artefacts.note import Note, note, one_of
from chunkscope.artefacts.numbers import SECONDS
from chunkscope.errors import InputError, UsageError
from chunkscope.lengths.profile import DEFAULT_OUTPUT, DatasetProfile, Profile
from chunkscope.planning.rule import DEFAULT_RULE, LengthRule
from chunkscope.simulation.outputs import (
    DatasetOutput,
    OutputLengths,
    OutputOrigin,
    dataset_output,
    read_output,
)
from chunkscope.simulation.slo import Slo, read_slo
from chunkscope.simulation.workload import BATCH, arrival_rate
from chunkscope.vllm.enums import KvCacheType, Mode, SendOrder, Task
from chunkscope.vllm.settings import OWN, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The aim, what is sent, and what the user fixed. Where it runs is the `Engine`.

    `settings` holds for every setting that is tried: GPUs, context, type of the KV
    cache. `task`, `shared_prefix` and `order` None: as the data has them. Answers are
    those of `outputs` by dataset, else `output`, else all of `max_output` tokens, else
    as in the data. `requests` None: all, up to a limit.
    """

    dataset: str | None = None
    task: Task | None = None
    settings: Settings = OWN
    mode: Mode | None = None  # forces the length rule
    rule: LengthRule = DEFAULT_RULE
    max_output: int | None = None  # tokens of every answer
    output: OutputLengths | None = None
    outputs: dict[str, OutputLengths] = field(default_factory=dict)
    outputs_from: str | None = None  # the file with the answers of an earlier run
    samples: int = 1  # how often each prompt is sent; the answers differ
    shared_prefix: int | None = None
    order: SendOrder | None = None
    slo: Slo = ()
    arrivals: str = BATCH
    # Requests that the client keeps under way; None: as in the log, else all.
    concurrency: int | None = None
    # Sessions that it keeps under way, likewise.
    samples_at_once: int | None = None
    e2e_timeout_s: float | None = None  # after which the client gives a request up
    together: bool = False  # datasets are sent together, not one after the other
    sticky: bool = False  # with several replicas, a session stays on one of them
    requests: int | None = None
    seed: int = 0
    price_per_hour: float | None = None  # of one GPU

    def __post_init__(self) -> None:
        price = self.price_per_hour
        if price is not None and not 0 < price < math.inf:
            raise UsageError(f"--price-per-hour must be over 0, not {price:g}")
        timeout = self.e2e_timeout_s
        if timeout is not None and not 0 < timeout < math.inf:
            raise UsageError(f"--e2e-timeout must be over 0, not {timeout:g}")
        if self.max_output is not None and self.output is not None:
            raise UsageError(
                "--max-output and --output both say how long answers are",
                hint="leave one out",
            )
        check_count("max-output", self.max_output)
        check_count("samples", self.samples)
        check_count("samples-at-once", self.samples_at_once)
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
        max_output: int | None = None,
        output: OutputLengths | str | int | None = None,
        outputs: Mapping[str, OutputLengths | str | int] | None = None,
        output_from: str | os.PathLike[str] | None = None,
        samples: int = 1,
        task: Task | str | None = None,
        mode: Mode | str | None = None,
        order: SendOrder | str | None = None,
        dataset: str | None = None,
        rule: LengthRule | None = None,
        shared_prefix: int | None = None,
        arrivals: str | None = None,
        concurrency: int | None = None,
        samples_at_once: int | None = None,
        e2e_timeout: float | str | None = None,
        together: bool = False,
        sticky: bool = False,
        requests: int | None = None,
        seed: int = 0,
        price_per_hour: float | None = None,
    ) -> "PlanRequest":
        """As people write it: words for choices, a text for the limits."""
        dtype = one_of(KvCacheType, kv_cache_dtype, "kv_cache_dtype")
        output, by_name = asked_outputs(output, outputs, output_from)
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
            max_output=max_output,
            output=output,
            outputs=by_name,
            outputs_from=str(output_from) if output_from is not None else None,
            samples=samples,
            shared_prefix=shared_prefix,
            order=one_of(SendOrder, order, "order") if order is not None else None,
            slo=read_slo(slo),
            arrivals=arrivals or BATCH,
            concurrency=concurrency,
            samples_at_once=samples_at_once,
            e2e_timeout_s=read_seconds(e2e_timeout),
            together=together,
            sticky=sticky,
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
        if options.max_output or options.output:
            changes["outputs"] = {}
            changes.setdefault("max_output", None)
            changes.setdefault("output", None)
        return replace(self, **changes)

    def outputs_of(
        self, datasets: Sequence[DatasetProfile]
    ) -> tuple[DatasetOutput, ...]:
        """What each is sent for, and how long its own answers are."""
        names = [dataset.name for dataset in datasets]
        for name in self.outputs:
            if name not in names:
                raise _no_such_dataset(name, names)
        return tuple(self.output_of(dataset) for dataset in datasets)

    def output_of(self, dataset: DatasetProfile) -> DatasetOutput:
        """How long the answers of one dataset are."""
        lengths = self.outputs.get(dataset.name, self.output)
        if lengths is None and self.max_output is not None:
            lengths = OutputLengths(p50=self.max_output, p95=self.max_output)
        origin = OutputOrigin.EARLIER if self.outputs_from else OutputOrigin.ASKED
        return dataset_output(dataset, self.task, lengths, origin)

    def only(self, name: str) -> "PlanRequest":
        """The same for one of its datasets."""
        outputs = {}
        if name in self.outputs:
            outputs[name] = self.outputs[name]
        return replace(self, outputs=outputs)

    def output_notes(self, datasets: Sequence[DatasetProfile]) -> tuple[Note, ...]:
        """That nobody knows how long some answers are."""
        names = []
        for output in self.outputs_of(datasets):
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
    "output",
    "samples",
    "shared_prefix",
    "order",
    "concurrency",
    "samples_at_once",
    "e2e_timeout_s",
    "together",
    "sticky",
    "slo",
    "seed",
    "task",
)


class Asked(Protocol):
    """The options of a command that may say something else than the plan."""

    @property
    def max_output(self) -> int | None: ...
    @property
    def output(self) -> OutputLengths | None: ...


MOST = 10_000_000  # of anything that is counted here


def check_count(name: str, count: int | None) -> None:
    """UsageError where a number is not one that somebody could mean."""
    if count is None:
        return
    if not isinstance(count, int) or not 1 <= count <= MOST:
        raise UsageError(f"--{name} must be 1 to {MOST:,}, not {count!r}")


# -- the length of answers -------------------------------------------------------------

AskedOutput = OutputLengths | str | int


def asked_outputs(
    output: AskedOutput | None,
    outputs: Mapping[str, AskedOutput] | None,
    output_from: str | os.PathLike[str] | None,
) -> tuple[OutputLengths | None, dict[str, OutputLengths]]:
    """For all datasets, and for those that are named."""
    if output_from is not None:
        if output is not None or outputs:
            raise UsageError(
                "--output and --output-from both say how long answers are",
                hint="leave one out",
            )
        return earlier_outputs(output_from)
    by_name = {}
    for name, lengths in (outputs or {}).items():
        by_name[name] = as_lengths(lengths)
    return None if output is None else as_lengths(output), by_name


def as_lengths(output: AskedOutput) -> OutputLengths:
    """As it was written, or made in Python."""
    if isinstance(output, OutputLengths):
        return output
    return read_output(output)


def earlier_outputs(
    file: str | os.PathLike[str],
) -> tuple[OutputLengths | None, dict[str, OutputLengths]]:
    """Answers of an earlier run: of its one dataset for all, else by dataset."""
    profile = earlier_profile(Path(file).expanduser())
    by_name = {}
    for dataset in profile.datasets:
        if dataset.output_lengths and dataset.output_lengths.max:
            by_name[dataset.name] = OutputLengths.of(dataset.output_lengths)
    if not by_name:
        raise InputError(
            f"{file} has no answers", hint="take the log of a run that has ended"
        )
    if len(profile.datasets) == 1:
        return next(iter(by_name.values())), {}
    return None, by_name


def earlier_profile(file: Path) -> Profile:
    """What `analyze` wrote, or what it says of a log: its answers are enough here."""
    if file.suffix == ".json":
        with suppress(InputError):
            return Profile.load(file)
    # Loaded here, since most plans need no reader of data.
    from chunkscope.lengths.analyze import analyze
    from chunkscope.lengths.options import AnalyzeOptions

    return analyze(file, options=AnalyzeOptions(prefixes=False))


def read_seconds(value: float | str | None) -> float | None:
    """Seconds as a number, or with their unit: "10min"."""
    if value is None or isinstance(value, int | float):
        return value
    with suppress(ValueError):
        return float(value)
    try:
        return SECONDS.read(value)
    except ValueError as error:
        raise UsageError(f"--e2e-timeout: {error}") from None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What the sender keeps under way: requests, and sessions; None: all."""

    requests: int | None = None
    samples: int | None = None

    @property
    def is_free(self) -> bool:
        """Does it send all at once?"""
        return self.requests is None and self.samples is None

    @property
    def at_once(self) -> int | None:
        """What limits it: samples, or requests."""
        return self.samples or self.requests

    def or_advised(
        self, samples: int | None, datasets: Sequence[DatasetProfile]
    ) -> "Client":
        """With the advised samples, where nothing limits it and these are sessions."""
        if self.is_free and has_sessions(datasets):
            return replace(self, samples=samples)
        return self


def has_sessions(datasets: Sequence[DatasetProfile]) -> bool:
    """Do requests wait for the answer to the one before?"""
    return any(dataset.sessions is not None for dataset in datasets)


def client_of(request: PlanRequest, datasets: Sequence[DatasetProfile]) -> Client:
    """As asked for, else as the logs of the harness say for all datasets."""
    if request.is_open:
        return Client(requests=request.concurrency, samples=request.samples_at_once)
    requests, samples = request.concurrency, request.samples_at_once
    if requests is None and samples is None:
        requests = logged_requests(datasets)
        samples = logged_samples(datasets)
    return Client(requests=requests, samples=samples)


def logged_requests(datasets: Sequence[DatasetProfile]) -> int | None:
    """The fewest requests that the harness kept under way; None where not all logs
    say."""
    logged = []
    for dataset in datasets:
        if dataset.log is None or dataset.log.concurrency is None:
            return None
        logged.append(dataset.log.concurrency)
    return min(logged, default=None)


def logged_samples(datasets: Sequence[DatasetProfile]) -> int | None:
    """The same of its sessions."""
    logged = []
    for dataset in datasets:
        if dataset.sessions is None or dataset.sessions.at_once is None:
            return None
        logged.append(dataset.sessions.at_once)
    return min(logged, default=None)
