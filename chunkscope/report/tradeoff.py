"""The simulation as the report shows it: settings against each other, and a timeline of chunks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chunkscope.artefacts.figures import ITL_MAX, ITL_P99, MAKESPAN, TTFT_P95, Figure
from chunkscope.findings import Findings
from chunkscope.report import sentences
from chunkscope.report.words import sentence
from chunkscope.simulation.policies import EXPERIMENTS
from chunkscope.simulation.result import SimulatedRun, Simulation, TimelineStep
from chunkscope.simulation.sweep import axes
from chunkscope.vllm.enums import ChunkPolicy

MOST_STEPS = 200  # more would be thinner than a pixel


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One simulated setting. `best`: no other is better on both axes of the trade-off.

    `named` is the plan, or vLLM's own setting. An experiment is a policy that vLLM has no
    arguments for.
    """

    setting: str
    details: str  # in arguments
    run: SimulatedRun
    best: bool = False
    knee: bool = False
    named: bool = False
    fastest: bool = False
    smoothest: bool = False
    experiment: bool = False

    @property
    def mark(self) -> str:
        """Why one would choose it: most settings of a sweep are a compromise like others."""
        marks = {"fastest": self.fastest, "smoothest": self.smoothest, "knee": self.knee}
        return ", ".join(name for name, is_so in marks.items() if is_so)

    def shown(self, figure: Figure) -> str:
        value = figure.value(self.run.figures)
        return "not simulated" if value is None else figure.unit.brief(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePiece:
    """Tokens of one kind in one step: those of a prompt's chunk, of whole prompts, of decodes."""

    step: int
    start_s: float
    end_s: float
    kind: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff:
    source: str  # what the step times rest on
    points: tuple[Point, ...]
    across: Figure = MAKESPAN
    up: Figure = ITL_MAX
    sentences: tuple[str, ...] = ()
    timeline: tuple[TimelinePiece, ...] = ()
    timeline_of: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def has_rates(self) -> bool:
        """Each setting at the highest rate that it sustains: not at the same one."""
        return any(point.run.rate for point in self.points)

    @property
    def has_tradeoff(self) -> bool:
        """A sweep has one. The few settings beside a plan are better shown by a table."""
        placed = sum(self.up.value(point.run.figures) is not None for point in self.points)
        return placed > 2 and any(point.best for point in self.points)

    @property
    def knee(self) -> Point | None:
        return next((point for point in self.points if point.knee), None)

    def points_json(self) -> list[dict[str, Any]]:
        """What the chart draws: a setting without gaps has no place in it."""
        return [
            {
                "setting": point.setting,
                "x": self.across.value(point.run.figures),
                "y": self.up.value(point.run.figures),
                "best": point.best,
                "knee": point.knee,
                "named": point.named,
                "details": point.details,
            }
            for point in self.points
            if self.has_tradeoff and self.up.value(point.run.figures) is not None
        ]

    def axes_json(self) -> dict[str, str]:
        return {"x": self.across.title, "y": self.up.title}

    def rates_json(self) -> dict[str, Any] | None:
        """Rates that were tried against both latencies, and the limits on these."""
        if not self.has_rates:
            return None
        slo = self.points[0].run.slo
        limits = {limit.name: limit.seconds for limit in slo.limits} if slo else {}
        tried = [
            {
                "setting": point.setting,
                "rate_per_s": at.rate_per_s,
                "ttft_p95_s": TTFT_P95.value(at.figures),
                "itl_p99_s": ITL_P99.value(at.figures),
            }
            for point in self.points
            for at in (point.run.rate.points if point.run.rate else ())
        ]
        return {"points": tried, "limits": limits, "settings": [p.setting for p in self.points]}

    def timeline_json(self) -> list[dict[str, Any]]:
        return [asdict(piece) for piece in self.timeline]


def tradeoff(findings: Findings) -> Tradeoff | None:
    simulation = findings.simulation
    if simulation is None:
        return None
    runs, cost = simulation.runs, simulation.cost_model
    names = setting_names(runs)
    across, up = axes(runs)
    swept = bool(simulation.pareto)
    watched = next((at for at, run in enumerate(runs) if run.timeline), None)
    return Tradeoff(
        source=_source(cost.source, cost.step.origin),
        points=tuple(
            Point(
                setting=name,
                details=", ".join(_details(run)),
                run=run,
                best=at in simulation.pareto,
                knee=at == simulation.knee,
                named=bool(run.setting),
                fastest=swept and at == _least(across, runs),
                smoothest=swept and at == _least(up, runs),
                experiment=run.policy in EXPERIMENTS,
            )
            for at, (run, name) in enumerate(zip(runs, names, strict=True))
        ),
        across=across,
        up=up,
        sentences=tuple(_sentences(simulation, names)),
        timeline=tuple(_timeline(runs[watched])) if watched is not None else (),
        timeline_of=names[watched] if watched is not None else "",
        warnings=tuple(map(sentence, simulation.notes)),
    )


def _least(figure: Figure, runs: Sequence[SimulatedRun]) -> int | None:
    values = {
        at: value for at, run in enumerate(runs) if (value := figure.value(run.figures)) is not None
    }
    return min(values, key=lambda at: values[at], default=None)


def _sentences(simulation: Simulation, names: Sequence[str]) -> Iterator[str]:
    """On limits, rates and overload, where there are any."""
    if any(run.rate for run in simulation.runs):
        yield from sentences.rates(simulation)
        return
    yield from sentences.overload(simulation, names)
    yield from (sentences.kept(run) for run in simulation.runs if run.slo)


def _source(source: str, origin: str) -> str:
    """
    >>> _source("roofline", "an H200")
    'roofline (an H200)'
    """
    return origin if source in origin else f"{source} ({origin})"


def setting_names(runs: Sequence[SimulatedRun]) -> list[str]:
    """What tells the settings apart: the step budget, and as much else as is needed."""
    names = [sentences.settings(run) if run.setting else ", ".join(_details(run)) for run in runs]
    several = {name for name, times in Counter(names).items() if times > 1}
    return [
        ", ".join(_details(run, with_seqs=True)) if name in several else name
        for name, run in zip(names, runs, strict=True)
    ]


def _details(run: SimulatedRun, *, with_seqs: bool = False) -> Iterator[str]:
    args = run.args
    yield f"{args.max_num_batched_tokens:,}"
    if args.long_prefill_token_threshold:
        adaptive = "adaptive " if args.long_prefill_token_threshold_adaptive else ""
        yield f"{adaptive}threshold {args.long_prefill_token_threshold:,}"
    if not args.enable_chunked_prefill:
        yield "chunking off"
    if with_seqs:
        yield f"{args.most_running:,} requests"
    if run.policy is not ChunkPolicy.VLLM:
        yield run.policy


def _timeline(run: SimulatedRun) -> Iterator[TimelinePiece]:
    for step in run.timeline[:MOST_STEPS]:
        for kind, tokens in _tokens_by_kind(step).items():
            yield TimelinePiece(
                step=step.number,
                start_s=step.start_s,
                end_s=step.start_s + step.duration_s,
                kind=kind,
                tokens=tokens,
            )


def _tokens_by_kind(step: TimelineStep) -> dict[str, int]:
    """A prompt that is read in one step needs no colour of its own."""
    found = {"decodes": step.decode_requests, "whole prompts": 0}
    for chunk in step.chunks:
        kind = "whole prompts" if chunk.is_whole else f"prompt {chunk.request}"
        found[kind] = found.get(kind, 0) + chunk.end - chunk.start
    return {kind: tokens for kind, tokens in found.items() if tokens}
