"""`chunkscope demo` as sections: what chunks did to waiting times, memory and answers."""

from statistics import mean

from chunkscope.artefacts.numbers import seconds
from chunkscope.reference.demo import Demonstration
from chunkscope.report.section import Section, Table, figures
from chunkscope.report.simulation import timeline_table
from chunkscope.report.words import verdicts as words

STEPS = 3  # of each setting, in the short answer
MOST_STEPS = 30


def sections(demo: Demonstration) -> list[Section]:
    runs = [(name, run.run) for name, run in demo.runs.items()]
    return [
        Section(
            sentences=(words.demo(demo.measured), words.demo_setup(demo), words.demo_answers(demo)),
            table=_summary(demo),
        ),
        *(
            Section(
                title=f"First steps {name}",
                table=timeline_table(run.timeline[:steps], run.args.max_num_batched_tokens),
                details=steps == MOST_STEPS,
            )
            for steps in (STEPS, MOST_STEPS)
            for name, run in runs
        ),
        Section(title="Every request: first token, end", table=_requests(demo), details=True),
    ]


def _summary(demo: Demonstration) -> Table:
    columns = figures("setting", "short wait", "longest gap", "all done", "prompt step", "memory")
    rows = []
    for name, run in demo.runs.items():
        memory = run.beyond_weights_bytes
        rows.append(
            (
                name,
                seconds(_waits(demo, name)),
                seconds(run.run.figures.longest_gap_s),
                seconds(run.run.figures.makespan_s),
                seconds(mean(run.chunk_s)),
                "not measured" if memory is None else f"{memory / 2**20:,.0f} MiB",
            )
        )
    return Table(columns=columns, rows=tuple(rows), caption=words.DEMO_KEY)


def _waits(demo: Demonstration, setting: str) -> float | None:
    """Of short requests, until their first token."""
    run = demo.measured.run(setting)
    short = run.figures.short if run and run.figures else None
    return short.ttft_s.mean if short else None


def _requests(demo: Demonstration) -> Table:
    answers = zip(*(run.answers for run in demo.runs.values()), strict=True)
    rows = []
    for place, (request, settings) in enumerate(zip(demo.requests, answers, strict=True), start=1):
        size = "long" if len(request.prompt) > demo.measured.workload.long_over else "short"
        times = [f"{seconds(a.first_s)}, {seconds(a.all_s)}" for a in settings]
        rows.append((f"{place} {size}", f"{len(request.prompt):,}", *times))
    return Table(columns=figures("request", "tokens", *demo.runs), rows=tuple(rows))
