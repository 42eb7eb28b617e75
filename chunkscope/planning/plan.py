"""The plan: mode, engine arguments and what they cost, as a value and an artefact."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from chunkscope.artefacts.artefact import INCIDENTAL, Artefact, now
from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.notebook import html_table
from chunkscope.artefacts.numbers import as_written
from chunkscope.artefacts.schema import Duration, SchemaError, plain
from chunkscope.artefacts.words import one_of
from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.memory import Memory
from chunkscope.models.find import built_in
from chunkscope.models.shape import ModelShape
from chunkscope.planning.policy import Chunks, Cuts, Decision
from chunkscope.simulation.slo import Slo, SloFound
from chunkscope.vllm.choices import Basis, Entry, Mode, Objective, SendOrder, Target, Task
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import Release, command_line
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.settings import UNUSUAL, Settings, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One engine argument. Not `set`: left to vLLM, which takes `default` (None: not known)."""

    name: str
    value: Value | None
    default: Value | None
    set: bool
    reason: str
    label: Label | None = None

    @classmethod
    def chosen(
        cls,
        name: str,
        value: Value | None,
        default: Value | None,
        reason: str,
        label: Label | None = None,
    ) -> "Argument":
        """Set where it differs from what vLLM takes by itself."""
        is_set = value is not None and value != default
        return cls(name=name, value=value, default=default, set=is_set, reason=reason, label=label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    subject: str
    text: str
    label: Label | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDecision:
    """The policy's word on one dataset; a weight is its share of all prompts and tokens."""

    name: str
    decision: Decision
    share_of_prompts: float
    share_of_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Prompts longer than `room_tokens` leave no room for the output.

    A server refuses them, lm-eval cuts them, the LLM class ends their answers early; `too_long` of
    them fill the context by themselves, and are refused by all.
    """

    prompts: int
    of: int
    room_tokens: int
    too_long: int | None = None  # None: by an older version

    @property
    def share(self) -> float:
        return self.prompts / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many requests the KV cache holds at once, were all of that length and shared nothing."""

    p50: int
    p95: int
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """The slowest step by the step model: an estimate until verified."""

    slowest_step_ms: float
    prefill_tokens_per_s: float
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The plan and vLLM's own setting, simulated on the same `requests`; None: it cannot run."""

    requests: int
    makespan_s: Duration
    longest_gap_s: float | None
    default_makespan_s: float | None
    default_longest_gap_s: float | None
    most_running: int | None = None  # requests at once; None: by an older version

    @property
    def gain(self) -> float | None:
        """How much more is done in the same time than with vLLM's own setting."""
        default = self.default_makespan_s
        return default / self.makespan_s - 1 if default is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the whole run takes, without loading the model: predicted before anything is spent.

    The range is of the same setting with what is assumed turned out otherwise: `varied`.
    """

    input_tokens: int
    output_tokens: int
    hours: float
    least_hours: float
    most_hours: float
    varied: tuple[str, ...]
    gpus: int
    price_per_hour: float | None = None  # of one GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSetting:
    """A row of the table of what was tried: simulated on all requests. `kv_peak`: a share."""

    name: str
    max_num_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int
    enable_chunked_prefill: bool
    makespan_s: float
    ttft_p95_s: float
    gap_p50_s: float | None
    gap_p99_s: float | None
    longest_gap_s: float | None
    preemptions: int
    kv_peak: float
    chosen: bool
    slo: SloFound | None = None  # None without limits


LENGTH_POLICY = "length-policy"  # its row, wherever settings are compared
ASKED = "--max-output"
ASSUMED_OUTPUT = "assumed, as the data does not say"


def assumed_output(tokens: int) -> str:
    said = f"answers are assumed to have {tokens:,} tokens, as the data does not say"
    return f"{said}: give --max-output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How long answers are, and where that number comes from."""

    tokens: int
    origin: str

    @property
    def assumed(self) -> bool:
        return self.origin == ASSUMED_OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """One of several profiles that a plan was made from, as it was named."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the plan was made from: enough to make it again."""

    profile_digest: str
    profile_created: str = field(metadata=INCIDENTAL)
    tokenizer: str = field(metadata=INCIDENTAL)  # its name
    dataset: str | None
    cuts: Cuts
    objective: Objective
    max_itl_ms: float | None
    task: Task
    entry: Entry
    tp: int
    output: Output
    shared_prefix: int | None = None  # None: as the data was counted
    order: SendOrder | None = None  # in which requests were taken to be sent
    command: tuple[str, ...] = ()  # empty where Python asked, or an older version
    # Where there were several.
    profiles: tuple[ProfileFile, ...] = field(default=(), metadata=INCIDENTAL)
    slo: Slo = ()
    arrivals: str | None = None  # None: all at once
    concurrency: int | None = None


# Of a model's shape, what older plans do not have; not written where a model has no such thing.
_OF_THE_MODEL = {
    "attention": ("state", "normed", "full_kv_heads", "full_head_dim", "borrowing_layers"),
    "parameters": ("by_layer",),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Artefact):
    """What `recommend` answers. `decision` is the policy's, `mode` what became of it.

    >>> Plan.load("reports/example/plan.json")
    <Plan for meta-llama/Llama-3.1-8B on NVIDIA H200: aggressive, nothing to set>
    """

    title: ClassVar = "plan"
    schema: ClassVar = "chunkscope/plan/2"
    made_by: ClassVar = "chunkscope recommend"
    default_path: ClassVar = Path("reports/plan.json")
    added_later: ClassVar = frozenset(
        {
            *("command", "forecast", "basis", "advice", "tried", "rule", "shared_prefix", "order"),
            *("slo", "arrivals", "concurrency"),
            *("cost", "most_running", "profiles", "too_long"),
            *("kv_cache_blocks", "kv_cache_label", "measured", *UNUSUAL),
            *(name for names in _OF_THE_MODEL.values() for name in names),
        }
    )

    # Who writes one down stands above it: `emit` says so itself, where it is loaded.
    written_by: ClassVar[Callable[["Plan", Target], str] | None] = None

    mode: Mode
    threshold: int | None
    decision: Decision
    decisions: tuple[DatasetDecision, ...]
    chunks: Chunks
    arguments: tuple[Argument, ...]
    adjustments: tuple[Reason, ...]
    lost: tuple[str, ...]
    warnings: tuple[str, ...]
    refused: Refused
    inputs: Inputs
    release: Release
    model: ModelShape | None = None
    gpu: Gpu | None = None
    memory: Memory | None = None
    capacity: Capacity | None = None
    step: StepEstimate | None = None
    forecast: Forecast | None = None
    basis: Basis = Basis.LENGTHS
    advice: str = ""  # the headline: what to change and what it brings
    tried: tuple[TriedSetting, ...] = ()
    rule: Settings | None = None  # what the length policy would set
    cost: Cost | None = None  # None where nothing could be simulated
    measured: MeasuredFit | None = None  # None: memory is predicted
    created: str = field(default_factory=now)
    version: str = ""

    @property
    def headline(self) -> str:
        model, gpu = self.model and self.model.load_name, self.gpu and self.gpu.title
        where = " on ".join(name for name in (model, gpu) if name)
        arguments = " ".join(self.cli_args()) or "nothing to set"
        return f"{f'for {where}: ' if where else ''}{self.mode}, {arguments}"

    def _repr_html_(self) -> str:
        headings = ("argument", "value", "vLLM's own", "")
        rows = [
            [a.name, as_written(a.value), as_written(a.default), a.reason]
            for a in self.arguments
            if a.set
        ]
        return html_table(self.advice or self.headline, headings, rows)

    def emit(self, target: Target | str) -> str:
        """What `recommend --emit TARGET` prints, such as `vllm-args` or `kubernetes`."""
        if Plan.written_by is None:
            raise NotImplementedError("chunkscope.planning.emit was not loaded")
        return Plan.written_by(self, one_of(Target, target, "target"))

    @property
    def settings(self) -> Settings:
        """What is to be set; everything else is best left to vLLM."""
        return Settings.of({a.name: a.value for a in self.arguments if a.set})

    @property
    def deployment(self) -> Deployment:
        """Where it is to run."""
        return Deployment(
            release=self.release,
            entry=self.inputs.entry,
            shape=self.model,
            gpu=self.gpu,
            logprobs=self.inputs.task is Task.LOGLIKELIHOOD,
            measured=self.measured,
        )

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The policy's, then what overruled it, then each argument's."""
        first = Reason(subject="mode", text=self.decision.reason)
        each = (Reason(subject=a.name, text=a.reason, label=a.label) for a in self.arguments)
        return (first, *self.adjustments, *each)

    @property
    def requests_in_flight(self) -> int | None:
        """How many requests a client must keep open to fill the engine; None if nobody knows.

        As many as ran at once in the simulation; else what vLLM allows and the KV cache holds of
        the usual length. More only wait in the engine's queue; fewer leave it idle.
        """
        full = self.deployment.effective(self.settings)
        replicas, allowed = full.parallel.data, full.max_num_active_seqs or full.max_num_seqs
        allowed = allowed * replicas if allowed else None
        held = self.capacity.p50 if self.capacity else None
        if self.forecast is not None and self.forecast.most_running is not None:
            held = self.forecast.most_running
        return allowed if allowed is None or held is None else max(1, min(allowed, held))

    def profile_files(self, folder: Path) -> list[Path]:
        """Where several profiles are now: as they were named, or in `folder`; empty if one is gone.

        Put together in this order they have the digest that the plan was made from.
        """
        named = [Path(profile.path) for profile in self.inputs.profiles]
        places = [(path, folder / path.name) for path in named]
        found = [path for both in places if (path := next(filter(Path.exists, both), None))]
        return found if len(found) == len(named) else []

    def argument(self, name: str) -> Argument:
        return next(a for a in self.arguments if a.name == name)

    def settings_for(self, entry: Entry) -> Settings:
        """The same settings started another way: defaults that differ there are spelled out."""
        return self.deployment.started_as(entry, self.settings)

    def instead(self, settings: Settings) -> "Plan":
        """The same plan with other arguments, to write those down."""
        given = settings.given()
        arguments = (
            replace(a, value=given.get(a.name, a.default), set=a.name in given)
            for a in self.arguments
        )
        return replace(self, arguments=tuple(arguments))

    def cli_args(self) -> list[str]:
        """Words for `vllm serve MODEL ...`."""
        return command_line(self.settings_for(Entry.SERVE), self.release.version)

    def llm_kwargs(self) -> dict[str, Value]:
        """Keywords for `vllm.LLM(model, ...)`."""
        return self.settings_for(Entry.LLM).given()

    def _document(self) -> dict[str, Any]:
        """The figures people look for first, then everything."""
        later = [] if self.advice else ["basis", "advice", "tried"]
        later += [name for name in ("rule", "cost", "measured") if getattr(self, name) is None]
        parts = {name: getattr(self, name) for name in _PARTS if name not in later}
        refused = self.refused
        return {
            "created": self.created,
            "vllm": self.release.text,
            "profile_digest": self.inputs.profile_digest,
            "mode": self.mode,
            "threshold": self.threshold,
            "reasons": self.reasons,
            "args": self.settings.given(),
            "memory": _memory_summary(self.memory) if self.memory else None,
            "refused_prompts": {
                "count": refused.prompts,
                "of": refused.of,
                "share": refused.share,
                "room_tokens": refused.room_tokens,
            },
            "plan": _as_it_was(plain(parts)),
        }

    @classmethod
    def _fields(cls, document: dict[str, Any]) -> dict[str, Any]:
        return {**document["plan"], "version": document["version"], "created": document["created"]}

    @classmethod
    def _upgraded(cls, document: dict[str, Any]) -> dict[str, Any]:
        """Version 0.1.0 kept figures of the model, not its shape: the table is asked again."""
        model = document["plan"]["model"]
        if model is None or "weight_bytes" not in model:
            return document
        shape = built_in(model["hub_id"] or model["name"])
        if shape is None:
            raise SchemaError("0.1.0 made it, and kept too little of a model from a folder")
        named = plain(replace(shape, name=model["name"], source=model["source"]))
        _without_what_it_lacks(named)
        return {**document, "plan": {**document["plan"], "model": named}}


# Not written where they say nothing: a plan of an older version, read back, gives the same bytes.
_ADDED = {
    "inputs": ("command", "profiles", "shared_prefix", "order", "slo", "arrivals", "concurrency"),
    "refused": ("too_long",),
    "forecast": ("most_running",),
    "memory": ("kv_cache_blocks", "kv_cache_label"),
    "rule": UNUSUAL,
}


def _as_it_was(parts: dict[str, Any]) -> dict[str, Any]:
    for name, added in _ADDED.items():
        if part := parts.get(name):
            parts[name] = {n: v for n, v in part.items() if n not in added or v not in (None, [])}
    if model := parts.get("model"):
        _without_what_it_lacks(model)
    for row in parts.get("tried", ()):
        if row["slo"] is None:
            del row["slo"]
    return parts


def _without_what_it_lacks(model: dict[str, Any]) -> None:
    for part, names in _OF_THE_MODEL.items():
        for name in names:
            if not model[part].get(name):
                model[part].pop(name, None)


_PARTS = [f.name for f in fields(Plan) if f.name not in ("created", "version")]
_GIB_LINES = ("weights", "activation", "sampler", "logprobs", "cuda_graphs", "overhead")


def _memory_summary(memory: Memory) -> dict[str, Any]:
    """Each figure with its label; a figure that does not apply is null."""
    known = {line.name: line for line in memory.lines}

    def figure(value: float, label: Label, note: str) -> dict[str, Any]:
        return {"value": value, "label": label, "note": note}

    lines = {
        f"{name}_gib": figure(line.gib, line.label, line.note) if line else None
        for name, line in (dict.fromkeys(_GIB_LINES) | known).items()
    }
    kv_cache = {"kv_cache_gib": memory.kv_cache_gib, "kv_cache_tokens": memory.kv_cache_tokens}
    label = memory.kv_cache_label or Label.PREDICTED
    left = {name: figure(value, label, "what is left for it") for name, value in kv_cache.items()}
    return lines | left
