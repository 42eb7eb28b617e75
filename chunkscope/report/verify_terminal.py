"""What was measured, on a terminal: one column per setting, each figure beside the first one's."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from chunkscope.report.figures import NOT_MEASURED, number, plural, seconds, share
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.verdict import figure, is_tie, spread

if TYPE_CHECKING:
    from rich.console import Console

LABEL_WIDTH = 22
FIRST_WIDTH = 10
COLUMN_WIDTH = 16
HEADING_WIDTH = 14
QUANTILES = ("p50", "p95", "p99", "max")


def show_verification(v: Verification, console: "Console") -> None:
    console.print(_headline(v), style="bold")
    for line in _about(v):
        console.print(line)
    for runs in _pages(v.runs, console.width):
        console.print()
        console.print(_table(v, runs))
    console.print()
    for note in _footnotes(v):
        console.print(note)
    if v.verdict:
        console.print()
        console.print(Text(v.verdict, style="bold"))


def _headline(v: Verification) -> Text:
    where = "an endpoint"
    if v.machine is not None:
        where = v.machine.gpu or {"cpu": "a CPU"}.get(v.machine.device, where)
        if v.machine.gpus > 1:
            where = f"{v.machine.gpus} x {where}"
    engine = f", vLLM {v.machine.vllm}" if v.machine and v.machine.vllm else ""
    dummy = " (random weights: speed and memory are real, answers are not)"
    return Text(f"{v.model.name} on {where}{engine}{dummy if v.model.dummy else ''}")


def _about(v: Verification) -> Iterator[str]:
    w = v.workload
    sent = "all at once" if w.arrivals == "batch" else f"arriving at {w.arrivals}"
    yield (
        f"{plural(len(w.requests), 'request')} {sent}: {w.input_tokens:,} tokens in, "
        f"{w.output_tokens:,} out; {escape(v.source)}, seed {w.seed}; "
        f"{plural(v.repeats, 'repeat')}, the median shown."
    )
    if w.left_out:
        yield f"{plural(w.left_out, 'prompt')} of the profile would not fit and were left out."


def _pages(runs: Sequence[Run], width: int) -> Iterator[Sequence[Run]]:
    """As many settings beside the first as fit the terminal."""
    room = max(1, (width - LABEL_WIDTH - FIRST_WIDTH) // COLUMN_WIDTH)
    first, rest = runs[0], runs[1:]
    yield (first, *rest[:room])
    for start in range(room, len(rest), room):
        yield (first, *rest[start : start + room])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of every run: how to find it, how to write it."""

    label: str
    find: Callable[[Run], float | None] | None  # None: a title
    write: Callable[[float | None], str] = number
    timed: str | None = None  # its name where it varies from repeat to repeat


def _table(v: Verification, runs: Sequence[Run]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=True, header_style="dim")
    table.add_column("", no_wrap=True)
    for run in runs:
        table.add_column(_heading(run), justify="right", overflow="fold")
    if any(not run.ok for run in runs):
        table.add_row("status", *(run.status.value.replace("_", " ") for run in runs))
    for line in _known(_lines(v), v.runs):
        cells = (_cell(line, run, runs[0]) for run in runs)
        table.add_row(Text(line.label, style="dim" if line.find is None else ""), *cells)
    return table


def _known(lines: Iterable[Line], runs: Sequence[Run]) -> Iterator[Line]:
    """Without figures that no run has, and without titles of nothing."""
    title = None
    for line in lines:
        if line.find is None:
            title = line
        elif any(line.find(run) is not None for run in runs):
            if title is not None:
                yield title
            title = None
            yield line


def _heading(run: Run) -> Text:
    """`max-num-batched-tokens=4096` is broken after a word, not in the middle of one."""
    lines = [""]
    for word in re.findall(r"[^-=]*[-=]?", " = ".join((run.setting, *run.same_as))):
        if len(lines[-1] + word) > HEADING_WIDTH:
            lines.append("")
        lines[-1] += word
    return Text("\n".join(line.strip() for line in lines if line.strip()))


def _cell(line: Line, run: Run, first: Run) -> Text:
    if line.find is None:
        return Text()
    value = line.find(run)
    text = Text("-" if value is None else line.write(value))
    reference = line.find(first)
    if run is not first and value is not None and reference:
        times = value / reference
        tie = line.timed is not None and is_tie(run, first, line.timed)
        text.append(f" {times:.2f}x" if times < 99.5 else " >99x", style="dim")
        text.append("=" if tie else " ", style="dim")
    return text


def _lines(v: Verification) -> Iterator[Line]:
    yield from _memory_lines(v)
    yield from _total_lines()
    for name, title in (("ttft_s", "first token"), ("itl_s", "token gap")):
        for part in ("short", "long"):
            yield from _quantile_lines(f"{name}.{part}", f"{title}, {part} prompts")
    yield from _quantile_lines("e2e_s", "whole request")
    yield from _step_lines()


def _memory_lines(v: Verification) -> Iterator[Line]:
    on_cpu = v.machine is not None and v.machine.device == "cpu"
    held = "  process peak GiB" if on_cpu else "  device peak GiB"
    yield Line(label="memory", find=None)
    yield Line(label="  activation peak GiB", find=lambda r: r.activation_peak_gib, write=_gib)
    yield Line(
        label="    predicted",
        find=lambda r: r.predicted.activation_gib if r.predicted else None,
        write=_gib,
    )
    yield Line(label=held, find=lambda r: r.device_peak_gib, write=_gib)
    yield Line(label="  weights GiB", find=lambda r: r.weights_gib, write=_gib)
    yield Line(label="  KV cache tokens", find=lambda r: r.kv_cache_tokens, write=number)
    yield Line(
        label="    predicted",
        find=lambda r: r.predicted.kv_cache_tokens if r.predicted else None,
        write=number,
    )
    yield Line(label="  longest requests", find=lambda r: r.kv_concurrency, write="{:,.1f}".format)


def _total_lines() -> Iterator[Line]:
    yield Line(label="throughput", find=None)
    yield _figure_line("makespan_s", "  all requests took", seconds)
    yield Line(label="    least", find=lambda r: _end(r, 0), write=seconds)
    yield Line(label="    most", find=lambda r: _end(r, 1), write=seconds)
    yield _figure_line("input_tokens_per_s", "  input tokens/s", number)
    yield _figure_line("output_tokens_per_s", "  output tokens/s", number)


def _end(run: Run, which: int) -> float | None:
    """Of the spread; a single repeat has none."""
    found = spread(run, "makespan_s")
    return found[which] if found and len(run.repeats) > 1 else None


def _quantile_lines(name: str, title: str) -> Iterator[Line]:
    yield Line(label=title, find=None)
    for at in QUANTILES:
        label = f"  {'longest' if at == 'max' else at}"
        yield _figure_line(f"{name}.{at}", label, seconds)


def _step_lines() -> Iterator[Line]:
    yield Line(label="scheduler", find=None)
    yield _figure_line("steps", "  steps", number)
    yield _figure_line("tokens_per_step", "  tokens per step", number)
    yield _figure_line("chunked_prompts", "  prompts in chunks", number)
    yield _figure_line("chunks_max", "  most chunks of one", number)
    yield _figure_line("preemptions", "  preemptions", number)
    yield _figure_line("prefix_hit_rate", "  prefix-cache hits", share)


def _figure_line(name: str, label: str, write: Callable[[float | None], str]) -> Line:
    return Line(label=label, find=lambda run: figure(run.figures, name), write=write, timed=name)


def _gib(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:,.2f}"


def _footnotes(v: Verification) -> Iterator[Text]:
    if len(v.runs) > 1:
        same = "; = is a tie: the spreads over the repeats overlap"
        yield Text(f"1.05x is against {v.runs[0].setting}{same if v.repeats > 1 else ''}.")
    yield Text(f"Prompts over {v.workload.long_over:,} tokens count as long.")
    yield Text(_which_memory(v))
    for run in v.runs:
        if not run.ok:
            yield Text(f"{run.setting}: {run.message}")
        yield from (Text(f"{run.setting}: {note}") for note in run.notes)


def _which_memory(v: Verification) -> str:
    if v.machine is not None and v.machine.device == "endpoint":
        return "A server does not tell its memory."
    if v.machine is not None and v.machine.device == "cpu":
        return "On a CPU only the resident memory of the worker process is known."
    return (
        "Activation is torch's peak in the worker beyond what it held when it was ready; the "
        "device's peak hardly moves, because vLLM fills what is free with KV cache."
    )
