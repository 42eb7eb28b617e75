"""The demo as blocks: how long short prompts wait for long ones, step by step."""

from dataclasses import replace

from chunkscope.artefacts.figures import ITL_MAX, MAKESPAN, TTFT_P95
from chunkscope.artefacts.numbers import seconds
from chunkscope.reference.demo import Demonstration
from chunkscope.report.blocks import Block, Details, Heading, Headline, Text
from chunkscope.report.phrases import listed
from chunkscope.report.pictures import timeline
from chunkscope.report.run_figures import figures_table, run_name, value_of
from chunkscope.report.simulation import steps_table
from chunkscope.report.verification import (
    pictures,
    runs_table,
    settings_table,
    where_measured,
)
from chunkscope.verification.result import Verification

SHORT_WAIT = replace(TTFT_P95, key="short.ttft_s.mean")
COLUMNS = {
    "first token, short": SHORT_WAIT,
    "time": MAKESPAN,
    "longest gap": ITL_MAX,
}
SHOWN_STEPS = 3


def demo_blocks(demo: Demonstration) -> list[Block]:
    runs = demo.measured.runs
    timelines = []
    for name, run in demo.runs.items():
        timelines.append((name, run.run.timeline[:SHOWN_STEPS]))
    blocks: list[Block] = [
        Headline(headline(demo.measured)),
        Text(setup(demo)),
        Text(same_answers(demo)),
        runs_table(runs, COLUMNS),
    ]
    for name, steps in timelines:
        blocks += [Heading(f"First steps {name}"), steps_table(steps)]
    picture = timeline(timelines)
    if picture is not None:
        blocks.append(picture)
    blocks += pictures(runs)
    blocks.append(Details("Every figure", (figures_table(runs),)))
    blocks.append(Details("Settings", (settings_table(runs),)))
    return blocks


def headline(measured: Verification) -> str:
    """How long short prompts wait: from the longest wait to the shortest."""
    waits = []
    for run in measured.runs:
        waits.append((value_of(SHORT_WAIT, run) or 0.0, run_name(run)))
    waits.sort(reverse=True)
    shown = [waits[0]]
    if len(waits) > 1:
        shown.append(waits[-1])
    texts = [f"{seconds(wait_s)} {name}" for wait_s, name in shown]
    return f"Short prompts wait {listed(texts)} for their first token (mean, measured)."


def setup(demo: Demonstration) -> str:
    """The model, and in which order the requests come."""
    measured = demo.measured
    lengths = [len(request.prompt) for request in demo.requests]
    long = [tokens for tokens in lengths if tokens > measured.workload.long_over]
    early = sum(request.arrival_s == 0 for request in demo.requests)
    behind = len(lengths) - len(long) - early
    size = f"{(measured.model.parameters or 0) / 1e6:,.1f} M parameters"
    return (
        f"Model: {where_measured(measured)} ({size}). {early} short requests are being "
        f"answered when {len(long)} prompts of {long[0]:,} tokens arrive, with "
        f"{behind} short ones behind them."
    )


def same_answers(demo: Demonstration) -> str:
    """Whether chunks changed the answers."""
    same = f"{demo.same_answers} of {len(demo.requests)} answers are the same"
    return f"{same}."
