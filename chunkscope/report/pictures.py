"""The pictures of plans and runs: what people would rather look at than read."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from chunkscope.artefacts.figures import (
    ITL_MAX,
    ITL_P99,
    MAKESPAN,
    TTFT_P95,
    Figure,
    Figures,
)
from chunkscope.artefacts.numbers import (
    COUNT,
    SECONDS,
    SHARE,
    SIZE,
    plural,
    seconds,
    share,
)
from chunkscope.hardware.memory import Memory
from chunkscope.report.charts import (
    Axis,
    Bar,
    Lane,
    Line,
    Lines,
    Part,
    Point,
    Scatter,
    StackedBars,
    Step,
    StepPart,
    Timeline,
)
from chunkscope.simulation.result import TimelineStep
from chunkscope.verification.result import Distribution, Run, WorkerMemory, largest

# A range that spans more than this factor is drawn on a logarithmic axis.
WIDE_RANGE = 8.0
# What vLLM profiles as activations, in the memory model's lines.
ACTIVATIONS = ("activation", "experts", "sampler", "compiling")
MOST_LANES = 3  # runs whose steps are drawn
MOST_STEPS = 60  # of a run that are drawn: more of them would be hairlines


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting that was simulated or measured, as it is drawn."""

    name: str
    flags: str  # as typed; "" for vLLM's defaults
    figures: Figures
    strong: bool = False  # the one that is advised
    group: str = ""


# -- settings --------------------------------------------------------------------------


def trade_off(settings: Sequence[Setting], *, is_open: bool = False) -> Scatter | None:
    """Time against the longest gap; None where there are not two points.

    Where requests arrive at their own times (`is_open`) these decide when the last one
    ends: the wait for a first token is drawn against the p99 gap.
    """
    across, up = (TTFT_P95, ITL_P99) if is_open else (MAKESPAN, ITL_MAX)
    points = []
    for setting in settings:
        x, y = across.value(setting.figures), up.value(setting.figures)
        if x is None or y is None:
            continue
        flags = f"Flags: {setting.flags}" if setting.flags else "vLLM's defaults."
        point = Point(
            x=x,
            y=y,
            name=setting.name,
            detail=flags,
            group=setting.group,
            strong=setting.strong,
        )
        points.append(point)
    if len(points) < 2:
        return None
    best = min(points, key=lambda point: point.x)
    smoothest = min(points, key=lambda point: point.y)
    return Scatter(
        title=f"{_capital(across.title)} against {up.title}: lower left is better",
        alternative=(
            f"{plural(len(points), 'setting')} by {across.title} and {up.title}. "
            f"Fastest: {best.name}, {seconds(best.x)} and {seconds(best.y)}. "
            f"Smoothest: {smoothest.name}, {seconds(smoothest.x)} and "
            f"{seconds(smoothest.y)}."
        ),
        x=_time_axis(across.title, [point.x for point in points]),
        y=_time_axis(up.title, [point.y for point in points]),
        points=tuple(points),
    )


def _time_axis(label: str, values: Sequence[float]) -> Axis:
    least = min((value for value in values if value > 0), default=1.0)
    is_wide = max(values) > WIDE_RANGE * least
    return Axis(label=label, unit=SECONDS, logarithmic=is_wide)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def predicted_against_measured(runs: Sequence[tuple[str, Run]]) -> Scatter | None:
    """A point for each time that was predicted and measured; None without any.

    On the dashed line both are equal.
    """
    points = []
    for figure in (MAKESPAN, TTFT_P95, ITL_P99, ITL_MAX):
        for name, run in runs:
            point = _compared(figure, name, run)
            if point is not None:
                points.append(point)
    if not points:
        return None
    return Scatter(
        title="Predicted against measured: on the line both are equal",
        alternative=" ".join(
            f"{point.name}: predicted {seconds(point.x)}, measured {seconds(point.y)}."
            for point in points
        ),
        x=Axis(label="predicted", unit=SECONDS, logarithmic=True),
        y=Axis(label="measured", unit=SECONDS, logarithmic=True),
        points=tuple(points),
        diagonal=True,
    )


def _compared(figure: Figure, name: str, run: Run) -> Point | None:
    predicted = figure.value(run.predicted_figures)
    measured = figure.value(run.figures)
    if not predicted or not measured:
        return None
    return Point(
        x=predicted, y=measured, name=f"{figure.title}, {name}", group=figure.title
    )


# -- memory ----------------------------------------------------------------------------


def memory_bars(bars: Sequence[Bar], total_gib: float | None = None) -> StackedBars:
    """What a GPU holds, predicted or measured; `total_gib` is all it has."""
    words = []
    for bar in bars:
        parts = ", ".join(f"{part.name} {SIZE.brief(part.value)}" for part in bar.parts)
        words.append(f"{bar.name}: {parts}.")
    return StackedBars(
        title="Weights, activations and the KV cache",
        alternative=" ".join(words),
        unit=SIZE,
        bars=tuple(bars),
        limit=total_gib,
        limit_name="the GPU has",
    )


def predicted_memory_bar(name: str, memory: Memory) -> Bar:
    """Weights, activations, KV cache and the rest of a GPU's bill."""
    weights = activations = rest = 0.0
    for line in memory.lines:
        if line.name == "weights":
            weights += line.gib
        elif line.name in ACTIVATIONS:
            activations += line.gib
        else:
            rest += line.gib
    return _memory_bar(name, (weights, activations, memory.kv_cache_gib, rest))


def measured_memory_bar(name: str, workers: Sequence[WorkerMemory]) -> Bar | None:
    """The same as vLLM logged it for the fullest GPU; None where it did not."""
    weights = largest([worker.weights_gib for worker in workers])
    kv_cache = largest([worker.kv_cache_gib for worker in workers])
    if weights is None or kv_cache is None:
        return None
    activations = largest([worker.profiled_activation_gib for worker in workers]) or 0.0
    graphs = largest([worker.cuda_graphs_gib for worker in workers]) or 0.0
    outside = largest([worker.non_torch_gib for worker in workers]) or 0.0
    return _memory_bar(name, (weights, activations, kv_cache, graphs + outside))


def _memory_bar(name: str, sizes: tuple[float, float, float, float]) -> Bar:
    names = ("weights", "activations", "KV cache", "CUDA graphs and the rest")
    parts = []
    for part_name, size in zip(names, sizes, strict=True):
        if size > 0:
            parts.append(Part(name=part_name, value=size))
    return Bar(name=name, parts=tuple(parts))


# -- steps -----------------------------------------------------------------------------


def timeline(runs: Sequence[tuple[str, Sequence[TimelineStep]]]) -> Timeline | None:
    """The first steps of each run, one above the other; None without steps."""
    lanes = []
    words = []
    for name, steps in runs[:MOST_LANES]:
        shown = steps[:MOST_STEPS]
        if not shown:
            continue
        drawn = tuple(_steps(shown))
        fullest = max(sum(part.tokens for part in step.parts) for step in drawn)
        title = f"{name}: steps of up to {plural(fullest, 'token')}"
        lanes.append(Lane(name=title, steps=drawn))
        longest = max(step.duration_s for step in shown)
        words.append(
            f"{name}: {plural(len(shown), 'step')}, the longest of {seconds(longest)}."
        )
    if not lanes:
        return None
    return Timeline(
        title="The first steps: how full they are, and how long they take",
        alternative=" ".join(words),
        lanes=tuple(lanes),
    )


def _steps(steps: Sequence[TimelineStep]) -> list[Step]:
    letters = split_prompts(steps)
    drawn = []
    for step in steps:
        parts = []
        words = []
        whole_tokens = 0
        for chunk in step.chunks:
            tokens = chunk.end - chunk.start
            if chunk.request not in letters:
                whole_tokens += tokens
                continue
            letter = letters[chunk.request]
            parts.append(StepPart(prompt=letter, tokens=tokens))
            done = share(chunk.end / chunk.prompt_tokens)
            words.append(f"prompt {letter} {tokens:,} tokens (now {done})")
        if whole_tokens:
            parts.append(StepPart(prompt="", tokens=whole_tokens))
            words.append(f"whole prompts {whole_tokens:,} tokens")
        if step.decode_requests:
            words.append(plural(step.decode_requests, "answer"))
        detail = f"step {step.number:,}, {seconds(step.duration_s)}: {', '.join(words)}"
        drawn.append(
            Step(
                start_s=step.start_s,
                seconds=step.duration_s,
                decodes=step.decode_requests,
                parts=tuple(parts),
                detail=detail,
            )
        )
    return drawn


def split_prompts(steps: Sequence[TimelineStep]) -> dict[int, str]:
    """A letter for each request whose prompt takes several steps: A, B ... Z, A ..."""
    letters: dict[int, str] = {}
    for step in steps:
        for chunk in step.chunks:
            goes_on = chunk.end < chunk.prompt_tokens
            if goes_on and chunk.request not in letters:
                letters[chunk.request] = ascii_uppercase[len(letters) % 26]
    return letters


# -- curves ----------------------------------------------------------------------------


def spreads(runs: Sequence[tuple[str, Distribution]]) -> list[Lines]:
    """How the waits and the gaps of each setting are spread: two pictures at most."""
    waits = []
    gaps = []
    for name, distribution in runs:
        waits.append((name, distribution.ttft_s))
        if distribution.itl_s:
            gaps.append((name, distribution.itl_s))
    pictures = []
    for title, spread in (
        ("time to first token", waits),
        ("gap between tokens", gaps),
    ):
        lines = []
        for name, times in spread:
            if len(times) > 1:
                lines.append(Line(name=name, points=_cumulative(times)))
        if lines:
            pictures.append(_spread(title, lines))
    return pictures


def _cumulative(times: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Percentiles 0 to 100 as points: a time, and the share that takes at most that."""
    last = len(times) - 1
    return tuple((time, place / last) for place, time in enumerate(times))


def _spread(title: str, lines: list[Line]) -> Lines:
    longest = [f"{line.name} {seconds(line.points[-1][0])}" for line in lines]
    return Lines(
        title=f"{_capital(title)}: the share that takes at most so long",
        alternative=f"{_capital(title)}, longest: {', '.join(longest)}.",
        x=Axis(label=title, unit=SECONDS, logarithmic=True),
        y=Axis(
            label="share (the slowest tenth is enlarged)", unit=SHARE, stretched=True
        ),
        lines=tuple(lines),
    )


def time_over_samples(
    points: Sequence[tuple[int, float]], advised: int | None = None
) -> Lines:
    """How long a run takes with so many samples at once; `advised` is marked."""
    fastest = min(points, key=lambda point: point[1])
    mark = None
    if advised is not None:
        mark = Point(x=advised, y=fastest[1], name=f"advised: {advised:,}")
    return Lines(
        title="Time over samples at once",
        alternative=(
            f"With {points[0][0]:,} at once {seconds(points[0][1])}; fastest with "
            f"{fastest[0]:,}: {seconds(fastest[1])}."
        ),
        x=Axis(label="samples at once", unit=COUNT),
        y=Axis(label="time", unit=SECONDS),
        lines=(Line(name="time", points=tuple(points)),),
        mark=mark,
    )
