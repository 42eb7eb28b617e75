"""What was measured, on a terminal: one column per setting, each figure beside the first one's."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from chunkscope.artefacts.figures import (
    ACTIVATION,
    DEVICE,
    KV_TOKENS,
    MAKESPAN,
    Figure,
    Group,
    in_group,
)
from chunkscope.artefacts.numbers import plural
from chunkscope.artefacts.units import SIZE
from chunkscope.report.runs import titled
from chunkscope.report.terminal.tables import bare_table
from chunkscope.report.words import sentence
from chunkscope.report.words import verdicts as words
from chunkscope.simulation.workload import BATCH, arrivals_in_words
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.verdict import is_tie, spread, value

if TYPE_CHECKING:
    from rich.console import Console

LABEL_WIDTH = 22
FIRST_WIDTH = 10
COLUMN_WIDTH = 16
HEADING_WIDTH = 14


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
        console.print(Text(words.verdict(v), style="bold"))


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
    sent = arrivals_in_words(w.arrivals)
    sent = sent if w.arrivals == BATCH else f"arriving {sent}"
    if w.concurrency is not None:
        under_way = f"at most {w.concurrency:,} under way"
        sent = under_way if w.arrivals == BATCH else f"{sent}, {under_way}"
    yield (
        f"{plural(len(w.requests), 'request')} {sent}: {w.input_tokens:,} tokens in, "
        f"{w.output_tokens:,} out; {escape(words.prompts_sent(v.source))}, seed {w.seed}; "
        f"{plural(v.repeats, 'repeat')}, the median shown."
    )
    if w.stretches:
        alike = sum(request.stretch >= 0 for request in w.requests)
        yield (
            f"{plural(alike, 'prompt')} begin like others; the prefix cache is empty when a repeat "
            "begins."
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
class FigureRow:
    """One figure of every run, or one `end` of its spread: 0 is the least, 1 the most."""

    label: str
    figure: Figure | None = None  # None: a title
    end: int | None = None

    def of(self, run: Run) -> float | None:
        if self.figure is None:
            return None
        if self.end is None:
            return value(run, self.figure)
        ends = spread(run, self.figure) if len(run.repeats) > 1 else None
        return ends[self.end] if ends else None

    def cell(self, run: Run, first: Run) -> Text:
        found, reference, figure = self.of(run), self.of(first), self.figure
        if figure is None or found is None:
            return Text("-" if figure else "")
        text = Text(f"{found:,.2f}" if figure.unit is SIZE else figure.unit.brief(found))
        if run is not first and reference and figure.group is not Group.OUTPUTS:
            times = found / reference
            tie = self.end is None and not figure.once and is_tie(run, first, figure)
            text.append(f" {times:.2f}x" if times < 99.5 else " >99x", style="dim")
            text.append("=" if tie else " ", style="dim")
        return text


def _table(v: Verification, runs: Sequence[Run]) -> Table:
    table = bare_table(gap=1, heading="dim")
    table.add_column("", no_wrap=True)
    for run in runs:
        table.add_column(_heading(run), justify="right", overflow="fold")
    if any(not run.ok for run in runs):
        table.add_row("status", *(run.status.value.replace("_", " ") for run in runs))
    for row in _known(_rows(v), v.runs):
        cells = (row.cell(run, runs[0]) for run in runs)
        table.add_row(Text(row.label, style="dim" if row.figure is None else ""), *cells)
    return table


def _known(rows: Iterable[FigureRow], runs: Sequence[Run]) -> Iterator[FigureRow]:
    """Without figures that no run has, and without titles of nothing."""
    title = None
    for row in rows:
        if row.figure is None:
            title = row
        elif any(row.of(run) is not None for run in runs):
            if title is not None:
                yield title
            title = None
            yield row


def _heading(run: Run) -> Text:
    """`max-num-batched-tokens=4096` is broken after a word, not in the middle of one."""
    lines = [""]
    for word in re.findall(r"[^-=]*[-=]?", titled(run)):
        if len(lines[-1] + word) > HEADING_WIDTH:
            lines.append("")
        lines[-1] += word
    return Text("\n".join(line.strip() for line in lines if line.strip()))


def _rows(v: Verification) -> Iterator[FigureRow]:
    """All figures, by what they are about; memory first, times of short and of long prompts."""
    yield from _memory_rows(v)
    for group in Group:
        if group in (Group.TTFT, Group.ITL):
            for prompts in ("short", "long"):
                yield FigureRow(label=f"{group}, {prompts} prompts")
                yield from (_row(figure.among(prompts)) for figure in in_group(group))
        elif group is not Group.MEMORY:
            yield FigureRow(label=group.value)
            for figure in in_group(group):
                yield _row(figure)
                if figure is MAKESPAN:
                    yield FigureRow(label="    least", figure=figure, end=0)
                    yield FigureRow(label="    most", figure=figure, end=1)


def _memory_rows(v: Verification) -> Iterator[FigureRow]:
    on_cpu = v.machine is not None and v.machine.device == "cpu"
    yield FigureRow(label="memory")
    for figure in in_group(Group.MEMORY):
        device = "process" if on_cpu else "device"
        yield _row(replace(figure, label=figure.label.replace("device", device)))
        if figure is ACTIVATION:
            yield _row(replace(figure, key="predicted.activation_gib", label="  predicted"))
        elif figure is KV_TOKENS:
            yield _row(replace(figure, key="predicted.kv_cache_tokens", label="  predicted"))
        elif figure is DEVICE:
            yield _row(replace(figure, key="weights_gib", label="weights GiB"))


def _row(figure: Figure) -> FigureRow:
    return FigureRow(label=f"  {figure.label}", figure=figure)


def _footnotes(v: Verification) -> Iterator[Text]:
    if len(v.runs) > 1:
        same = "; = is a tie: the spreads over the repeats overlap"
        yield Text(f"1.05x is against {v.runs[0].setting}{same if v.repeats > 1 else ''}.")
    yield Text(f"Prompts over {v.workload.long_over:,} tokens count as long.")
    yield Text(_which_memory(v))
    yield from map(Text, words.outputs(v))
    for run in v.runs:
        if not run.ok:
            yield Text(words.failure(run))
        yield from (Text(f"{run.setting}: {sentence(note)}") for note in run.notes)


def _which_memory(v: Verification) -> str:
    if v.machine is not None and v.machine.device == "endpoint":
        return "A server does not tell its memory."
    if v.machine is not None and v.machine.device == "cpu":
        return "On a CPU only the resident memory of the worker process is known."
    return (
        "Activation is torch's peak in the worker beyond what it held when it was ready; the "
        "device's peak hardly moves, because vLLM fills what is free with KV cache."
    )
