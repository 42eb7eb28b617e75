"""The simulation as the report shows it: settings against each other, and a timeline of chunks.

It is read leniently: a figure that is not there is left out, and never 0.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chunkscope.findings import Findings
from chunkscope.simulation.policies import DESCRIBED

QUANTILES = ("p50", "p95", "p99", "max")
VLLM_CAN = {policy.value for policy, said in DESCRIBED.items() if said.runs_in_vllm}
MOST_STEPS = 200  # more would be thinner than a pixel


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One simulated setting. `best`: no other is better in both makespan and longest gap.

    An experiment is a policy that vLLM has no arguments for.
    """

    setting: str
    details: str  # in arguments
    makespan_s: float | None
    ttft_s: dict[str, float]
    itl_s: dict[str, float]
    steps: int | None
    chunked_prompts: int | None
    preemptions: int | None
    kv_peak_tokens: int | None
    best: bool = False
    knee: bool = False
    experiment: bool = False

    @property
    def longest_gap_s(self) -> float | None:
        return self.itl_s.get("max")


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
    timeline: tuple[TimelinePiece, ...] = ()
    timeline_of: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def has_tradeoff(self) -> bool:
        """Two points are a line whatever they say: a table shows them better."""
        drawn = [p for p in self.points if None not in (p.makespan_s, p.longest_gap_s)]
        return len(drawn) > 2

    @property
    def knee(self) -> Point | None:
        return next((point for point in self.points if point.knee), None)

    def points_json(self) -> list[dict[str, Any]]:
        return [asdict(point) for point in self.points] if self.has_tradeoff else []

    def timeline_json(self) -> list[dict[str, Any]]:
        return [asdict(piece) for piece in self.timeline]


def tradeoff(findings: Findings) -> Tradeoff | None:
    simulation = findings.simulation
    if simulation is None:
        return None
    runs = list(_mappings(simulation.get("runs")))
    names = setting_names(runs)
    best = _list(simulation.get("pareto"))
    knee = simulation.get("knee")
    points = tuple(
        _point(run, name, best=at in best, knee=at == knee)
        for at, (run, name) in enumerate(zip(runs, names, strict=True))
    )
    watched = next((at for at, run in enumerate(runs) if run.get("timeline")), None)
    return Tradeoff(
        source=_source(_mapping(simulation.get("cost_model"))),
        points=points,
        timeline=tuple(_timeline(runs[watched])) if watched is not None else (),
        timeline_of=names[watched] if watched is not None else "",
        warnings=tuple(map(str, _list(simulation.get("warnings")))),
    )


def _source(cost: dict[str, Any]) -> str:
    """
    >>> _source({"source": "roofline", "origin": "an H200"})
    'roofline (an H200)'
    """
    source, origin = str(cost.get("source", "not recorded")), str(cost.get("origin") or "")
    return origin if source in origin else f"{source} ({origin})" if origin else source


def setting_names(runs: Sequence[dict[str, Any]]) -> list[str]:
    """What tells the settings apart: the step budget, and as much else as is needed."""
    names = [
        str(run.get("setting") or ", ".join(_details(run)) or f"run {at + 1}")
        for at, run in enumerate(runs)
    ]
    several = {name for name, times in Counter(names).items() if times > 1}
    return [
        ", ".join(_details(run, with_seqs=True)) if name in several else name
        for name, run in zip(names, runs, strict=True)
    ]


def _details(run: dict[str, Any], *, with_seqs: bool = False) -> Iterator[str]:
    args = _mapping(run.get("args"))
    if (budget := _whole(args.get("max_num_batched_tokens"))) is not None:
        yield f"{budget:,}"
    if threshold := _whole(args.get("long_prefill_token_threshold")):
        yield f"threshold {threshold:,}"
    if args.get("enable_chunked_prefill") is False:
        yield "chunking off"
    if with_seqs and (seqs := _whole(args.get("max_num_seqs"))) is not None:
        yield f"{seqs:,} requests"
    if (policy := run.get("policy", "vllm")) != "vllm":
        yield str(policy)


def _point(run: dict[str, Any], name: str, *, best: bool, knee: bool) -> Point:
    return Point(
        setting=name,
        details=", ".join(_details(run)),
        makespan_s=_number(run.get("makespan_s")),
        ttft_s=_quantiles(run.get("ttft_s")),
        itl_s=_quantiles(run.get("itl_s")),
        steps=_whole(run.get("steps")),
        chunked_prompts=_whole(run.get("chunked_prompts")),
        preemptions=_whole(run.get("preemptions")),
        kv_peak_tokens=_whole(run.get("kv_peak_tokens")),
        best=best,
        knee=knee,
        experiment=run.get("policy", "vllm") not in VLLM_CAN,
    )


def _timeline(run: dict[str, Any]) -> Iterator[TimelinePiece]:
    for at, step in enumerate(_mappings(run.get("timeline"))):
        start, took = _number(step.get("start_s")), _number(step.get("duration_s"))
        if at >= MOST_STEPS or start is None or took is None:
            return
        number = _whole(step.get("number"))
        for kind, tokens in _tokens_by_kind(step).items():
            yield TimelinePiece(
                step=at if number is None else number,
                start_s=start,
                end_s=start + took,
                kind=kind,
                tokens=tokens,
            )


def _tokens_by_kind(step: dict[str, Any]) -> dict[str, int]:
    """A prompt that is read in one step needs no colour of its own."""
    found = {"decodes": _whole(step.get("decode_requests")) or 0, "whole prompts": 0}
    for chunk in _mappings(step.get("chunks")):
        start, end = _whole(chunk.get("start")) or 0, _whole(chunk.get("end")) or 0
        is_whole = start == 0 and end == chunk.get("prompt_tokens")
        kind = "whole prompts" if is_whole else f"prompt {chunk.get('request')}"
        found[kind] = found.get(kind, 0) + end - start
    return {kind: tokens for kind, tokens in found.items() if tokens}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    yield from (item for item in _list(value) if isinstance(item, dict))


def _quantiles(value: Any) -> dict[str, float]:
    read = {at: _number(_mapping(value).get(at)) for at in QUANTILES}
    return {at: number for at, number in read.items() if number is not None}


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None
