"""The measured runs in reports/h200, as the tables of its README.

python -m tests.h200
"""

import re
from dataclasses import dataclass
from pathlib import Path

from chunkscope.artefacts.figures import BY_KEY, Figures
from chunkscope.artefacts.numbers import number, seconds
from chunkscope.planning.plan import Plan
from chunkscope.planning.predict import SimulateOptions, predict
from chunkscope.report.verification import headline as answer
from chunkscope.verification.result import Run, Verification

FOLDER = Path(__file__).parents[1] / "reports" / "h200"
HEADER = (
    "| model, data | setting | activation peak, GiB (predicted) | KV cache tokens | "
    "all requests took | first token p50 / p95 | token gap p99 / longest | "
    "chunked, most chunks |",
    "|---|---|---|---|---|---|---|---|",
)


def spaced(text: str) -> str:
    """Percentages as they are written here: "1 %"."""
    return re.sub(r"(?<=\d)%", " %", text)


def measured() -> dict[str, Verification]:
    return {
        f.parent.name: Verification.load(f)
        for f in sorted(FOLDER.glob("*/verify.json"))
    }


def table() -> str:
    rows = [_row(name, v, run) for name, v in measured().items() for run in v.runs]
    return "\n".join([*HEADER, *rows])


def _row(name: str, v: Verification, run: Run) -> str:
    first = run is v.runs[0]
    setting = " = ".join((run.setting, *run.same_as)).replace(
        "max-num-batched-tokens=", ""
    )
    cells = (
        name if first else "",
        setting,
        f"{run.activation_peak_gib:.2f} ({run.predicted_activation_gib:.2f})",
        number(run.kv_cache_tokens),
        _took(run),
        f"{_time(run, 'ttft_s.p50')} / {_time(run, 'ttft_s.p95')}",
        f"{_time(run, 'itl_s.p99')} / {_time(run, 'itl_s.max')}",
        f"{run.figures.chunked_prompts}, {run.figures.chunks_max}",
    )
    return f"| {' | '.join(cells)} |"


def _took(run: Run) -> str:
    spans = [repeat.makespan_s for repeat in run.repeats]
    return f"{seconds(run.figures.makespan_s)} ({min(spans):.2f} to {max(spans):.2f})"


def _time(run: Run, name: str) -> str:
    return seconds(BY_KEY[name].value(run.figures))


# -- advice, tried -------------------------------------------------------------------

ADVICE_HEADER = (
    "| data and model | requests | recommend said | vLLM's default took | "
    "the plan took (predicted) | prefix hits (predicted) | verdict |",
    "|---|---:|---|---|---|---|---|",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What was recommended for some data, and what an H200 made of it."""

    name: str
    plan: Plan
    verification: Verification
    simulated: dict[str, Figures]  # by setting

    @property
    def ours(self) -> Run:
        return self.verification.run("plan")

    @property
    def default(self) -> Run:
        return self.verification.run("default") or self.ours

    @property
    def promised(self) -> float | None:
        """The share of time for all requests that the plan was to save; None for
        another aim."""
        if self.plan.request.slo:
            return None
        took = {name: figures.makespan_s for name, figures in self.simulated.items()}
        return took["default"] / took["plan"] - 1 if self.sets else 0.0

    @property
    def gained(self) -> float:
        return self.default.figures.makespan_s / self.ours.figures.makespan_s - 1

    @property
    def sets(self) -> dict[str, object]:
        return {
            n: v
            for n, v in self.ours.settings.given().items()
            if n != "tensor_parallel_size"
        }


def scenarios() -> list[Scenario]:
    return [
        _scenario(path.parent) for path in sorted(FOLDER.glob("advice/*/verify.json"))
    ]


def _scenario(folder: Path) -> Scenario:
    """Predicted today, of the very requests that were sent."""
    plan, file = Plan.load(folder / "plan.json"), folder / "verify.json"
    simulation = predict(plan, None, SimulateOptions(trace=file))
    simulated = {
        name: run.figures
        for run in simulation.runs
        for name in (run.setting, *run.same_as)
    }
    return Scenario(
        name=folder.name,
        plan=plan,
        verification=Verification.load(file),
        simulated=simulated,
    )


def advice_table(found: list[Scenario]) -> str:
    return "\n".join([*ADVICE_HEADER, *map(_advice_row, found)])


def _advice_row(one: Scenario) -> str:
    set_to = ", ".join(f"`{name}` {value}" for name, value in one.sets.items())
    hits = (one.ours.figures.prefix_hit_rate, one.ours.predicted_prefix_hit_rate)
    cells = (
        one.name,
        number(len(one.verification.workload.requests)),
        set_to or "change nothing",
        _took(one.default),
        f"{_took(one.ours)} ({seconds(one.simulated['plan'].makespan_s)})"
        if set_to
        else f"the same ({seconds(one.simulated['plan'].makespan_s)})",
        spaced(f"{hits[0]:.1%} ({hits[1]:.1%})"),
        answer(one.verification).partition(": ")[0],
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table())
    print()
    print(advice_table(scenarios()))
