"""The plan: what to set, why, and what it brings. Codes and numbers; report/words has sentences."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from chunkscope.artefacts.artefact import INCIDENTAL, Artefact, frame, now
from chunkscope.artefacts.figures import figures_row
from chunkscope.artefacts.note import Note
from chunkscope.hardware.gpus import Gpu
from chunkscope.hardware.memory import Memory
from chunkscope.models.shape import ModelShape
from chunkscope.planning.request import PlanRequest
from chunkscope.planning.rule import Chunks, Decision
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.workload import DatasetOutput
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import Release, command_line
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

    `gain`: how much more `settings` do in the same time than vLLM's default, or `alternative`,
    which was not worth it; None where throughput does not decide or the default does not run.
    `least_gain` is the least of all variations, `doubt` the one in which that was. Where no setting
    keeps the limits: the `rate` a second that keeps them, and how many `gpus` hold what was asked.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(Note):
    """Why an argument has its value."""

    argument: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Prompts that leave no room for the output of their dataset; all have it up to `room_tokens`.

    A server refuses them, lm-eval cuts them, the LLM class ends their answers early; `too_long` of
    them fill the context by themselves, and are refused by all.
    """

    prompts: int
    of: int
    room_tokens: int
    too_long: int

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
class DatasetCost:
    """What one of several datasets takes when it is sent alone."""

    name: str
    requests: int
    input_tokens: int
    output_tokens: int
    hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the whole run takes, without loading the model: predicted before anything is spent.

    The range is of the same setting with what is assumed turned out otherwise, and as far off as
    predictions were on GPUs for that kind of request: `varied` has codes.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    hours: float
    least_hours: float
    most_hours: float
    varied: tuple[str, ...]
    gpus: int
    price_per_hour: float | None = None  # of one GPU
    datasets: tuple[DatasetCost, ...] = ()  # of several, those with the most tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving(Note):
    """What would make the run shorter, whatever the flags: prompt tokens that need not be computed,
    and the time that takes. None: not known."""

    tokens: int | None
    hours: float | None = None
    simulated: bool = False  # the time; else it is the tokens at the run's own prefill rate


class Role(StrEnum):
    """Which setting a row of the table is."""

    DEFAULT = "default"
    RULE = "length-rule"
    BEST = "best"
    NEIGHBOUR = "neighbour"


class Standing(StrEnum):
    """Why a row is, or is not, what is advised."""

    CHOSEN = "chosen"
    WORSE = "worse"
    TOO_LITTLE = "too little"  # better, by less than it takes to set an argument
    NOT_ROBUST = "not robust"  # better, but not where an assumption turns out otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRow:
    """One row of the table of what was tried: simulated on all requests."""

    role: Role
    settings: Settings  # complete
    run: SimulatedRun
    standing: Standing

    @property
    def chosen(self) -> bool:
        return self.standing is Standing.CHOSEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFile:
    """One of several profiles that a plan was made from, as it was named."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """What the plan was made from, and by which command line (none: Python asked)."""

    profile_digest: str
    tokenizer: str = field(metadata=INCIDENTAL)  # its name
    # Where there were several.
    profiles: tuple[ProfileFile, ...] = field(default=(), metadata=INCIDENTAL)
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Artefact):
    """What `recommend` answers. `decision` is the length rule's, `rule` what it would set.

    >>> Plan.load("reports/example/plan.json")
    <Plan for meta-llama/Llama-3.1-8B on NVIDIA H200: nothing to set>
    """

    schema: ClassVar = "chunkscope/plan/6"
    made_by: ClassVar = "chunkscope recommend"

    advice: Advice
    settings: Settings  # what is to be set; everything else is best left to vLLM
    reasons: tuple[Reason, ...]
    notes: tuple[Note, ...]
    request: PlanRequest
    deployment: Deployment
    source: PlanSource
    outputs: tuple[DatasetOutput, ...]
    refused: Refused
    chunks: Chunks
    decision: Decision
    decisions: dict[str, Decision]  # by dataset
    rule: Settings | None  # None where nothing fits
    memory: Memory | None = None
    capacity: Capacity | None = None
    tried: tuple[TriedRow, ...] = ()
    cost: Cost | None = None  # None where nothing could be simulated
    savings: tuple[Saving, ...] = ()  # the largest first
    created: str = field(default_factory=now)
    version: str = ""

    @property
    def headline(self) -> str:
        model, gpu = self.model and self.model.load_name, self.gpu and self.gpu.title
        where = " on ".join(name for name in (model, gpu) if name)
        arguments = " ".join(self.cli_args()) or "nothing to set"
        return f"for {where}: {arguments}" if where else arguments

    def to_frame(self) -> "pd.DataFrame":
        """One row per setting that was tried: its arguments and every figure, simulated."""
        return frame(
            {
                "setting": row.role.value,
                "chosen": row.chosen,
                **row.settings.given(),
                **figures_row(row.run),
            }
            for row in self.tried
        )

    @property
    def model(self) -> ModelShape | None:
        return self.deployment.shape

    @property
    def gpu(self) -> Gpu | None:
        return self.deployment.gpu

    @property
    def release(self) -> Release:
        return self.deployment.release

    @property
    def output_tokens(self) -> int:
        """Room that is left for an answer: the most of any dataset."""
        return max(output.tokens for output in self.outputs)

    @property
    def effective(self) -> Settings:
        """What the engine ends up with."""
        return self.deployment.effective(self.settings)

    @property
    def default(self) -> Settings:
        """vLLM's default beside it: with what was asked for and what it needs to start."""
        return self.deployment.effective(self.advice.needed.over(self.request.settings))

    @property
    def run(self) -> SimulatedRun | None:
        """What was simulated of it; None where nothing was."""
        return next((row.run for row in self.tried if row.chosen), None)

    @property
    def default_run(self) -> SimulatedRun | None:
        return next((row.run for row in self.tried if row.role is Role.DEFAULT), None)

    @property
    def nearest_run(self) -> SimulatedRun | None:
        """Of the setting that came nearest to the limits, where none keeps them."""
        return next((row.run for row in self.tried if row.role is Role.BEST), self.run)

    @property
    def requests_in_flight(self) -> int | None:
        """How many requests a client must keep open to fill the engine; None if nobody knows.

        As many as ran at once in the simulation; else what vLLM allows and the KV cache holds of
        the usual length. More only wait in the engine's queue; fewer leave it idle.
        """
        full = self.effective
        seqs = full.max_num_active_seqs or full.max_num_seqs
        allowed = seqs * full.parallel.data if seqs else None
        held = self.capacity.p50 if self.capacity else None
        if self.run is not None and self.run.most_running is not None:
            held = self.run.most_running
        return allowed if allowed is None or held is None else max(1, min(allowed, held))

    def profile_files(self, folder: Path) -> list[Path]:
        """Where several profiles are now: as they were named, or in `folder`; empty if one is gone.

        Put together in this order they have the digest that the plan was made from.
        """
        named = [Path(profile.path) for profile in self.source.profiles]
        places = [(path, folder / path.name) for path in named]
        there = [path for both in places if (path := next(filter(Path.exists, both), None))]
        return there if len(there) == len(named) else []

    def settings_for(self, entry: Entry) -> Settings:
        """The same engine started another way: defaults that differ there are spelled out."""
        return self.deployment.started_as(entry, self.settings)

    def cli_args(self) -> list[str]:
        """Its settings as flags of vLLM."""
        return command_line(self.settings.given())
