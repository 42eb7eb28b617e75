"""How near the simulator comes to what `verify` measured: Markdown tables, worst cases
included.

    python -m tests.benchmarks.simulate_accuracy

Each folder of reports/h200 is named MODEL-WORKLOAD and holds a verify.json and the
calibration that was written beside it. For each model the step times are fitted on the
mixed workload, and every run is simulated with them; only the runs of the other
workloads are a test. Below, other choices of what to fit on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from chunkscope.artefacts.figures import BY_KEY
from chunkscope.hardware.calibration import Calibration, together
from chunkscope.hardware.cost_model import CostModel, calibrated_cost, roofline_cost
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.step_time import StepModel
from chunkscope.models import find_model
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.run import simulate
from chunkscope.verification.result import Run, Verification
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import KvPool, Settings
from tests.h200 import FOLDER, spaced

FIT = ("mixed",)
LIMITS = {"makespan": 0.05, "TTFT p50": 0.10, "TTFT p95": 0.10, "gap p50": 0.10}
SPREADS = dict(
    zip(LIMITS, ("makespan_s", "ttft_s.p50", "ttft_s.p95", "itl_s.p50"), strict=True)
)
ROOFLINE_LIMIT = 0.25
Errors = dict[str, float]


@dataclass(frozen=True, eq=False)
class Case:
    """A workload that was measured, and the calibration of that day."""

    folder: Path
    verification: Verification
    calibration: Calibration

    @property
    def model(self) -> str:
        return self.calibration.model.name

    @property
    def workload(self) -> str:
        return self.folder.name.removeprefix(f"{self.model}-")

    @property
    def runs(self) -> Iterator[Run]:
        for run in self.verification.runs:
            if run.figures and run.engine.get("num_gpu_blocks"):
                yield run


@cache
def cases(root: Path) -> dict[str, list[Case]]:
    """By model."""
    found: dict[str, list[Case]] = {}
    for path in sorted(root.glob("*/verify.json")):
        beside = Calibration.load(next(path.parent.glob("calibration*.json")))
        case = Case(path.parent, Verification.load(path), beside)
        found.setdefault(case.model, []).append(case)
    return found


# -- simulated, and measured ---------------------------------------------------------


@cache
def simulated(
    case: Case, setting: str, step: StepModel, *, watch: int = 0
) -> SimulatedRun:
    """The same requests under the settings that the engine said it ran with."""
    engine, workload = case.verification.run(setting).engine, case.verification.workload
    blocks, size = engine["num_gpu_blocks"], engine["block_size"]
    pool = KvPool(tokens=blocks * size, block_size=size)
    return simulate(
        workload,
        Settings.of(engine),
        Engine(release=release(case.calibration.vllm)),
        step,
        timeline=watch,
        kv_pool=pool,
        async_scheduling=bool(engine.get("async_scheduling")),
    )


def errors(case: Case, run: Run, cost: CostModel) -> Errors:
    predicted = simulated(case, run.setting, cost.step).figures
    figures = {name: BY_KEY[key] for name, key in SPREADS.items()}
    return {
        name: (figure.value(predicted) or 0.0) / figure.value(run.figures) - 1
        for name, figure in figures.items()
    }


def worst(found: Iterable[Errors]) -> Errors:
    rows = [*found]
    return {name: max((row[name] for row in rows), key=abs) for name in rows[0]}


def rough_cost(case: Case) -> CostModel:
    """As `simulate` asks for it without a calibration."""
    shape, gpu = find_model(case.model), find_gpu(case.calibration.gpu)
    engine = Engine(release=release("0.24"), shape=shape, gpu=gpu)
    return roofline_cost(shape, gpu, engine.step_model())


def fitted(group: Iterable[Case], names: Sequence[str]) -> CostModel:
    calibrations = [case.calibration for case in group if case.workload in names]
    return calibrated_cost(together(calibrations))


# -- the tables ----------------------------------------------------------------------


def tables(root: Path) -> str:
    groups = cases(root)
    return "\n\n".join(["\n".join(main_table(groups)), "\n".join(other_fits(groups))])


def main_table(groups: dict[str, list[Case]]) -> Iterator[str]:
    yield f"| model, data | setting | {' | '.join(LIMITS)} | roofline: makespan |"
    yield f"|---|---|{'---:|' * (len(LIMITS) + 1)}"
    held_out, rough = [], []
    for group in groups.values():
        cost, flat = fitted(group, FIT), rough_cost(group[0])
        for case in sorted(group, key=lambda case: case.workload in FIT):
            for run in case.runs:
                found, roofline = errors(case, run, cost), errors(case, run, flat)
                if case.workload not in FIT:
                    held_out.append(found)
                rough.append(roofline)
                yield _row(case, run, found, roofline, is_fitted=case.workload in FIT)
    found, roofline = worst(held_out), worst(rough)["makespan"]
    cells = [
        *(f"**{_percent(found[name])}**" for name in LIMITS),
        f"**{_percent(roofline)}**",
    ]
    yield f"| **worst, held out** | {len(held_out)} runs | {' | '.join(cells)} |"
    limits = [*(f"{limit:.0%}" for limit in LIMITS.values()), f"{ROOFLINE_LIMIT:.0%}"]
    yield spaced(f"| target | | {' | '.join(limits)} |")
    within = [
        *(
            _within([e[name] for e in held_out], limit)
            for name, limit in LIMITS.items()
        ),
        _within([e["makespan"] for e in rough], ROOFLINE_LIMIT),
    ]
    yield f"| runs within it | | {' | '.join(within)} |"


def _row(case: Case, run: Run, found: Errors, rough: Errors, *, is_fitted: bool) -> str:
    setting = run.setting.replace("max-num-batched-tokens=", "")
    cells = [
        f"{_percent(found[name])} ({_spread(run, SPREADS[name])})" for name in LIMITS
    ]
    note = " *(fitted on)*" if is_fitted else ""
    cells.append(_percent(rough["makespan"]))
    return f"| {case.folder.name}{note} | {setting} | {' | '.join(cells)} |"


def other_fits(groups: dict[str, list[Case]]) -> Iterator[str]:
    titles = " | ".join(f"{name}, worst" for name in LIMITS)
    yield f"| fitted on | tried on | {titles} |"
    yield f"|---|---|{'---:|' * len(LIMITS)}"
    for model, group in groups.items():
        names = [case.workload for case in group]
        for left_out in names:
            used = [name for name in names if name != left_out]
            yield _other(
                f"{model} {' + '.join(used)}", group, fitted(group, used), [left_out]
            )
        for alone in names:
            rest = [name for name in names if name != alone]
            yield _other(f"{model} {alone}", group, fitted(group, [alone]), rest)


def _other(
    name: str, group: Iterable[Case], cost: CostModel, tried: Sequence[str]
) -> str:
    chosen = [case for case in group if case.workload in tried]
    found = worst(errors(case, run, cost) for case in chosen for run in case.runs)
    cells = [_percent(found[limit]) for limit in LIMITS]
    on = f"{chosen[0].model} {', '.join(case.workload for case in chosen)}"
    return f"| {name} | {on} | {' | '.join(cells)} |"


def _within(found: Sequence[float], limit: float) -> str:
    return f"{sum(abs(value) <= limit for value in found)} of {len(found)}"


def _percent(error: float) -> str:
    return spaced(f"{error:+.1%}")


def _spread(run: Run, name: str) -> str:
    """From the fastest repeat to the slowest, against their median."""
    values = [BY_KEY[name].value(repeat) for repeat in run.repeats]
    middle = median(values)
    return f"{_whole(min(values) / middle - 1)} to {_whole(max(values) / middle - 1)}"


def _whole(value: float) -> str:
    return spaced(f"{value:+.0%}") if abs(value) >= 0.005 else "0 %"


if __name__ == "__main__":
    print(tables(FOLDER))
