"""Measured runs as sections: the verdict, the figures that decide, then every figure."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from chunkscope.artefacts.numbers import as_written, seconds
from chunkscope.reference.demo import Demonstration
from chunkscope.report.runs import every_figure, runs_table, steps_table
from chunkscope.report.section import Chart, Section, Table, Written, table_of
from chunkscope.report.words import sentence
from chunkscope.report.words import verdicts as words
from chunkscope.verification.result import EngineKind, Run, Verification

TIMES = ("ttft_s", "itl_s")
STEPS, MOST_STEPS = 3, 30  # of each setting of the demo, in the short answer and in the details


def sections(v: Verification) -> list[Section]:
    ran = [(titled(run), run) for run in v.runs if run.ok]
    failed = [f"{words.failure(run)}." for run in v.runs if not run.ok]
    is_demo = v.measured is EngineKind.DEMO
    answer = words.demo(v) if is_demo else words.verdict(v) or words.without_plan(v)
    use = v.verdict.use if v.verdict else None
    strong = [at for at, (_, run) in enumerate(ran) if use is not None and run.is_called(use)]
    return [
        Section(
            sentences=(answer, words.measured_on(v), *failed),
            table=runs_table(ran, strong=strong),
            chart=_chart(v.runs),
        ),
        Section(
            sentences=tuple(words.outputs(v)),
            notes=tuple(f"{run.setting}: {sentence(n)}" for run in v.runs for n in run.notes),
        ),
        Section(title="Every figure", table=every_figure(ran), details=True),
        Section(
            title="Settings",
            table=table_of(
                ("", "sets"), [(titled(run), _settings(run)) for run in v.runs], words=("sets",)
            ),
            details=True,
        ),
        Section(title="How it was measured", sentences=tuple(words.method(v)), details=True),
    ]


def titled(run: Run) -> str:
    """A setting by all its names: the same arguments are measured once."""
    return " = ".join((run.setting, *run.same_as))


def _settings(run: Run) -> str:
    given = run.settings.given().items()
    return ", ".join(f"{name} {as_written(value)}" for name, value in given) or "vLLM's defaults"


def _chart(runs: Sequence[Run]) -> Chart | None:
    """For the page: how times are spread, as pairs of percentile and seconds of each setting."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for name in TIMES:
        for run in runs:
            values: tuple[float, ...] = getattr(run.distribution, name, None) or ()
            if len(values) > 1:
                last = len(values) - 1
                points = [[100 * i / last, float(f"{x:.4g}")] for i, x in enumerate(values)]
                curves.setdefault(name, []).append({"setting": titled(run), "at": points})
    data = {"settings": [titled(run) for run in runs], "curves": curves}
    return Chart(name="measured", data=data) if curves else None


# -- the demo ------------------------------------------------------------------------------------


def demo_sections(demo: Demonstration) -> list[Section]:
    return [
        Section(
            sentences=(words.demo(demo.measured), words.demo_setup(demo), words.demo_answers(demo)),
            table=_demo_summary(demo),
        ),
        *(
            Section(
                title=f"First steps {name}",
                table=steps_table(run.run.timeline[:steps]),
                details=steps == MOST_STEPS,
            )
            for steps in (STEPS, MOST_STEPS)
            for name, run in demo.runs.items()
        ),
        Section(title="Every request: first token, end", table=_demo_requests(demo), details=True),
    ]


def _demo_summary(demo: Demonstration) -> Table | None:
    rows = []
    for name, run in demo.runs.items():
        measured, memory = demo.measured.run(name), run.beyond_weights_bytes
        short = measured.figures.short if measured and measured.figures else None
        rows.append(
            (
                name,
                seconds(short.ttft_s.mean if short else None),
                seconds(run.run.figures.longest_gap_s),
                seconds(run.run.figures.makespan_s),
                seconds(mean(run.chunk_s)),
                "not measured" if memory is None else f"{memory / 2**20:,.0f} MiB",
            )
        )
    heads = ("setting", "short wait", "longest gap", "all done", "prompt step", "memory")
    return table_of(heads, rows, caption=words.DEMO_KEY)


def _demo_requests(demo: Demonstration) -> Table | None:
    over = demo.measured.workload.long_over
    answers = zip(*(run.answers for run in demo.runs.values()), strict=True)
    rows: list[tuple[Written, ...]] = [
        (
            f"{place} {'long' if len(request.prompt) > over else 'short'}",
            len(request.prompt),
            *(f"{seconds(a.first_s)}, {seconds(a.all_s)}" for a in settings),
        )
        for place, (request, settings) in enumerate(zip(demo.requests, answers, strict=True), 1)
    ]
    return table_of(("request", "tokens", *demo.runs), rows)
