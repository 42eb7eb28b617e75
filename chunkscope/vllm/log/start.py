"""One start of an engine: what its log says, and what `doctor` makes of it."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum

from chunkscope.artefacts.note import Note
from chunkscope.hardware.memory import Memory
from chunkscope.vllm.log.facts import EngineFacts
from chunkscope.vllm.log.failures import LoggedFailure
from chunkscope.vllm.log.windows import LogWindow, peak
from chunkscope.vllm.settings import Settings, Value

# -- what a log says -----------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class RefusedPrompts:
    """Prompts longer than the context. Of some only the answer 400 is logged."""

    count: int = 0
    unexplained: int = 0
    longest: int = 0
    limit: int = 0
    first_line: int = 0

    def add(self, words: dict[str, str]) -> None:
        self.count += 1
        self.longest = max(self.longest, int(words.get("length", 0)))
        if "limit" in words:
            self.limit = int(words["limit"])

    @property
    def most(self) -> int:
        """A prompt that a line tells of was answered 400, too."""
        return max(self.count, self.unexplained)


# -- what is made of it --------------------------------------------------------


class Bound(StrEnum):
    """What would have to give for more to be done."""

    IDLE = "idle"
    # Nothing waits: more requests at once would be more work done.
    CLIENT = "client-bound"
    # Prompts wait for their prefill, and there is room for them.
    PREFILL = "queue-bound"
    SEQS = "max_num_seqs"
    KV = "KV-bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase:
    """Neighbouring windows of one engine with the same bound, joined to one."""

    bound: Bound
    window: LogWindow  # whose line is the first
    last_line: int

    @property
    def begin_s(self) -> float:
        return self.window.end_s - self.window.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that limited an engine.

    `effect` only orders them: the share of its time where that is known, 1 where it
    ended the engine, and a rank by judgement for what was merely set.
    """

    rule: str
    title: Note
    evidence: tuple[Note, ...]
    change: Note
    effect: float
    lines: tuple[int, ...] = ()  # where the log says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An argument that the plan sets otherwise."""

    name: str
    planned: Value
    actual: Value


# -- both ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """One engine, or several of one server (data parallel), from its start to its end.

    `doctor` fills in the fields from `source` on.
    """

    first_line: int = 0
    last_line: int = 0  # 0 for a server, which has no log
    facts: EngineFacts = field(default_factory=EngineFacts)
    arguments: dict[str, Value] = field(default_factory=dict)
    line_of: dict[str, int] = field(default_factory=dict)  # by fact
    windows: tuple[LogWindow, ...] = ()  # by time; of all engines
    engines: int = 1
    refused: RefusedPrompts | None = None
    failure: LoggedFailure | None = None
    preemptions: int | None = None  # of a server: logs do not say
    source: str = ""  # the log's name, or the server's address
    differences: tuple[Difference, ...] = ()
    predicted: Memory | None = None  # of the same model, GPU and settings
    gpu: str | None = None  # that it was predicted for
    phases: tuple[LoadPhase, ...] = ()
    symptoms: tuple[Symptom, ...] = ()

    @property
    def settings(self) -> Settings:
        """What it runs with, as far as it says."""
        settings = self.facts.settings.over(Settings.of(self.arguments))
        if settings.kv_cache_dtype in ("auto", self.facts.dtype):
            settings = replace(settings, kv_cache_dtype=None)
        return settings

    def lines_of(self, *facts: str) -> tuple[int, ...]:
        """Where the log says these facts, as far as it does."""
        return tuple(self.line_of[name] for name in facts if name in self.line_of)

    @property
    def prompt_tokens(self) -> float:
        """As the rates of the windows add up."""
        return sum(
            window.prompt_tokens_per_s * window.seconds for window in self.windows
        )

    @property
    def output_tokens(self) -> float:
        return sum(
            window.output_tokens_per_s * window.seconds for window in self.windows
        )

    @property
    def busy_s(self) -> float:
        """Of the engine that was busy for longest."""
        return max(self._busy_s_by_engine().values(), default=0.0)

    def _busy_s_by_engine(self) -> dict[str, float]:
        busy: defaultdict[str, float] = defaultdict(float)
        for window in self.windows:
            if not window.idle:
                busy[window.engine] += window.seconds
        return busy

    def phases_of(self, bound: Bound) -> list[LoadPhase]:
        return [phase for phase in self.phases if phase.bound is bound]

    def seconds_of(self, bound: Bound) -> float:
        """Of several engines that worked, as long as it was for each on average."""
        seconds = sum(phase.window.seconds for phase in self.phases_of(bound))
        return seconds / max(1, len(self._busy_s_by_engine()))

    def share_of(self, bound: Bound) -> float:
        """For which part of the busy time it held."""
        busy_s = sum(self._busy_s_by_engine().values())
        if busy_s == 0:
            return 0.0
        return sum(phase.window.seconds for phase in self.phases_of(bound)) / busy_s

    @property
    def hit_rate(self) -> float | None:
        """Of the prefix cache, as it says last."""
        for window in reversed(self.windows):
            if window.hit_rate is not None and not window.idle:
                return window.hit_rate
        return None

    @property
    def peak_running(self) -> int:
        return peak((window.engine, window.running) for window in self.windows)

    @property
    def peak_waiting(self) -> int:
        return peak((window.engine, window.waiting) for window in self.windows)

    @property
    def peak_kv_use(self) -> float | None:
        return max((window.kv_use for window in self.windows), default=None)
