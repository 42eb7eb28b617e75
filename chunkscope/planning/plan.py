"""The plan: what to set, why, and what it brings. Codes and numbers, no sentences."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from chunkscope.artefacts.artefact import INCIDENTAL, Artefact, now
from chunkscope.artefacts.note import Note
from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.memory import Memory
from chunkscope.models.shape import ModelShape
from chunkscope.planning.request import PlanRequest
from chunkscope.planning.rule import Chunks, Decision
from chunkscope.simulation.outputs import DatasetOutput
from chunkscope.simulation.result import SimulatedRun, runs_frame
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import command_line
from chunkscope.vllm.settings import Settings

if TYPE_CHECKING:
    import pandas as pd


class AdviceKind(StrEnum):
    KEEP = "keep"  # vLLM's defaults, besides what is needed
    SET = "set"
    NO_SETTING = "no setting"  # that was tried keeps the limits


class Basis(StrEnum):
    """What advice rests on."""

    SIMULATED = "simulated"
    LENGTHS = "lengths"  # no model or no GPU is known: nothing was simulated
    MODE = "mode"  # the length rule, as --mode forces it


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do. `settings` beyond `needed`, without which vLLM does not start.

    `gain`: how much more `settings` do in the same time than vLLM's default, or
    `alternative`, which was not worth it; None where throughput does not decide or the
    default does not run. `least_gain` is the least of all variations, `doubt` the one
    in which that was. Where no setting keeps the limits: the `rate` a second that keeps
    them, and how many `gpus` hold what was asked.
    """

    kind: AdviceKind
    basis: Basis
    settings: Settings
    needed: Settings
    gain: float | None = None
    least_gain: float | None = None
    doubt: str | None = None
    alternative: Settings | None = None
    rate: float | None = None
    gpus: int | None = None


def advised_settings(advice: Advice, request: PlanRequest, engine: Engine) -> Settings:
    """What the engine ends up with by this advice."""
    wanted = advice.settings.over(advice.needed).over(request.settings)
    return engine.complete(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(Note):
    """Why an argument has its value."""

    argument: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Prompts that leave no room for their answer; all fit up to `room_tokens`."""

    prompts: int
    of: int
    room_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All requests, and how long they take by prediction, the model being loaded.

    `client` is what is kept under way then, requests or samples; None: all.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    hours: float
    client: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Work):
    """What the whole run takes: with the client's own number under way, else with the
    advised number of samples, else with all requests at once.

    `varied` has codes of what the range covers: other assumptions, and how far off
    predictions were on GPUs.
    """

    least_hours: float
    most_hours: float
    varied: tuple[str, ...]
    # Of several, in their order. They add up to all where they are sent one after the
    # other.
    datasets: dict[str, Work]
    # What answers that are 1,000 tokens longer add, where nobody counted them.
    hours_per_1000_output_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyPoint:
    """The run with so many samples or requests under way."""

    at_once: int
    hours: float
    served_from_cache: float  # share of the prompt tokens
    ttft_p50_s: float
    ttft_p95_s: float
    e2e_p95_s: float
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeChange:
    """What else could be, how many at once are best then, and how long it takes.

    `code`: fp8_kv_cache, shorter_context, kv_offload or other_gpu. `settings` are its
    arguments; of another GPU, `gpu` is its name. Loads from the host's memory are taken
    to run at an assumed speed of PCIe.
    """

    code: str
    settings: Settings
    at_once: int
    hours: float
    gpu: str | None = None
    host_gib: float | None = None  # of the host's memory (`--kv-offloading-size`)
    outgrow: int = 0  # samples that a refused turn ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyAnswer:
    """How many samples or requests to keep under way, and what more would do.

    `outgrow`: samples with a turn that is over max_model_len, which ends them.
    `timeouts`: requests that take longer than the client waits, with its own number
    under way or else the advised; None where nobody said how long that is.
    """

    unit: Literal["samples", "requests"]
    advised: int
    client: int | None  # as its log or an option says
    points: tuple[ConcurrencyPoint, ...]
    changes: tuple[KneeChange, ...] = ()
    samples: int  # samples or requests in all
    outgrow: int = 0
    timeouts: int | None = None

    def point(self, at_once: int | None) -> ConcurrencyPoint | None:
        """The run with so many, if it was simulated; None: all."""
        for point in self.points:
            if point.at_once == (at_once or self.samples):
                return point
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving(Note):
    """What would shorten the run, whatever the flags: tokens, and hours if known."""

    tokens: int | None
    hours: float | None = None
    simulated: bool = (
        False  # the time; else estimated, by tokens or by the share of all rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """What the plan was made from, and by which command line (none: Python asked)."""

    profile_digest: str
    profiles: tuple[str, ...] = field(
        default=(), metadata=INCIDENTAL
    )  # files, if several
    command: tuple[str, ...] = ()


# Names of the settings that were tried.
DEFAULT, RULE, BEST = "default", "length-rule", "best"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Artefact):
    """What `recommend` answers. `decision` is the length rule's."""

    schema: ClassVar = "chunkscope/plan/11"
    made_by: ClassVar = "chunkscope recommend"

    advice: Advice
    settings: Settings  # what is to be set; everything else is best left to vLLM
    reasons: tuple[Reason, ...]
    notes: tuple[Note, ...]
    request: PlanRequest
    deployment: Engine
    source: PlanSource
    outputs: tuple[DatasetOutput, ...]
    refused: Refused
    chunks: Chunks
    decision: Decision
    decisions: dict[str, Decision]  # by dataset
    memory: Memory | None = None
    tried: tuple[
        SimulatedRun, ...
    ] = ()  # on all requests: vLLM's default first, if it runs
    cost: Cost | None = None  # None where nothing could be simulated
    savings: tuple[Saving, ...] = ()  # the largest first
    # None where nothing could be simulated, and at a rate.
    concurrency: ConcurrencyAnswer | None = None
    created: str = field(default_factory=now)
    version: str = ""

    def to_frame(self) -> "pd.DataFrame":
        """One row per setting that was simulated."""
        return runs_frame(self.tried)

    @property
    def model(self) -> ModelShape | None:
        return self.deployment.shape

    @property
    def gpu(self) -> Gpu | None:
        return self.deployment.gpu

    @property
    def output_tokens(self) -> int:
        """Tokens kept free for an answer: the most of any dataset."""
        return max(output.tokens for output in self.outputs)

    @property
    def effective(self) -> Settings:
        """What the engine ends up with."""
        return self.deployment.complete(self.settings)

    @property
    def default(self) -> Settings:
        """vLLM's default, with what was asked for and what it needs to start."""
        return self.deployment.complete(self.advice.needed.over(self.request.settings))

    @property
    def rule(self) -> Settings:
        """What the length rule would set: its threshold, where that ends a chunk."""
        threshold = self.decision.threshold
        if threshold is None:
            return Settings()
        for tokens in (
            self.decision.longest,
            self.default.max_num_batched_tokens,
            self.default.max_model_len,
        ):
            if tokens and threshold >= tokens:
                return Settings()
        return Settings(long_prefill_token_threshold=threshold)

    @property
    def run(self) -> SimulatedRun | None:
        """Its simulated run; None if nothing was simulated."""
        for run in self.tried:
            # Plans of earlier versions left out what is as usual.
            if self.deployment.complete(run.settings) == self.effective:
                return run
        return None

    @property
    def default_run(self) -> SimulatedRun | None:
        return next((run for run in self.tried if run.setting == DEFAULT), None)

    def requests_of(self, prompt_tokens: float) -> int | None:
        """How many requests with such a prompt the KV caches hold, nothing shared."""
        if self.memory is None:
            return None
        settings = self.effective
        tokens = round(prompt_tokens) + self.output_tokens
        if settings.max_model_len:
            tokens = min(tokens, settings.max_model_len)
        held = self.deployment.requests_of(tokens, self.memory, settings)
        return held * settings.parallel.data

    @property
    def requests_in_flight(self) -> int | None:
        """How many requests a client does best to keep open.

        The fewest that are as fast as more, else what vLLM allows and the KV cache
        holds. None: unknown.
        """
        sent = self.refused.of - self.refused.prompts
        if self.concurrency is not None:
            return self.concurrency.advised
        settings = self.effective
        if not settings.most_running:
            return None
        most = settings.most_running * settings.parallel.data
        held = self.requests_of(self.decision.p50)
        if held is not None:
            most = min(most, held)
        return max(1, min(most, sent))

    @property
    def client_requests(self) -> int | None:
        """What the client keeps under way, as its log or an option says; None: all."""
        return self.concurrency.client if self.concurrency else None

    @property
    def advised_samples(self) -> int | None:
        """Sessions to keep under way; None without sessions."""
        if self.concurrency is None or self.concurrency.unit != "samples":
            return None
        return self.concurrency.advised

    @property
    def in_flight(self) -> int | None:
        """What is advised to keep under way; None where nothing was simulated."""
        return self.concurrency.advised if self.concurrency else None

    def profile_files(self, folder: Path) -> list[Path]:
        """Where its profiles are: in `folder`, which may be a copy, else as named."""
        named = [Path(path) for path in self.source.profiles]
        here = [folder / path.name for path in named]
        same_names = len(set(here)) < len(named)
        if not same_names and all(path.exists() for path in here):
            return here
        if all(path.exists() for path in named):
            return named
        return []

    def settings_for(self, entry: Entry) -> Settings:
        """Its settings for another entry, with defaults that differ written out."""
        there = replace(self.deployment, entry=entry).complete(self.settings)
        return self.settings.over(self.effective.changed_from(there))

    def cli_args(self) -> list[str]:
        """Its settings as flags of vLLM."""
        return command_line(self.settings.given())
