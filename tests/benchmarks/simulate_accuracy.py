"""How near the simulator comes to what `verify` measured: a Markdown table, worst case included.

Each folder below the one given holds a verify.json and the calibration that was written beside it.
For each GPU and model the step times are fitted on one workload, and every run of the others is
simulated with them; runs of the workload that was used to fit are left out. The uncalibrated
roofline is tried on all of them.

Example: python tests/benchmarks/simulate_accuracy.py reports/h200 --fit mixed-batch
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chunkscope.calibration import Calibration
from chunkscope.choices import Task
from chunkscope.errors import ChunkscopeError
from chunkscope.hardware import find_gpu
from chunkscope.simulation.args import EngineArgs
from chunkscope.simulation.arrivals import read_trace
from chunkscope.simulation.cost import CostModel, Target, cost_model
from chunkscope.simulation.loop import Circumstances, run_setting
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.rules import rules_of
from chunkscope.step_time import ModelWork, StepModel
from chunkscope.vllm_flags import release

LIMITS = {"makespan": 0.05, "TTFT p50": 0.10, "TTFT p95": 0.10, "ITL p50": 0.10}
ROOFLINE_LIMIT = 0.25


@dataclass(frozen=True)
class Case:
    """A workload that was measured, and the calibration of that day."""

    folder: Path
    document: dict[str, Any]
    calibration: Calibration

    @property
    def group(self) -> tuple[str, str]:
        return self.calibration.gpu, self.calibration.model.name

    @property
    def runs(self) -> Iterator[dict[str, Any]]:
        for run in self.document["runs"]:
            if run.get("makespan_s") and run.get("engine", {}).get("num_gpu_blocks"):
                yield run


def cases(root: Path) -> Iterator[Case]:
    for path in sorted(root.rglob("verify*.json")):
        beside = sorted(path.parent.glob("calibration*.json"))
        if not beside:
            print(f"<!-- {path}: no calibration beside it -->")
            continue
        document = json.loads(path.read_text())
        yield Case(path.parent, document, Calibration.load(beside[0]))


def simulated(case: Case, run: dict[str, Any], step: StepModel) -> SimulatedRun:
    """The same requests under the settings that the engine said it ran with."""
    trace = read_trace(next(case.folder.glob("verify*.json")))
    engine = run["engine"]
    block = int(engine.get("block_size") or 16)
    args = EngineArgs(
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_num_seqs=engine["max_num_seqs"],
        long_prefill_token_threshold=engine.get("long_prefill_token_threshold") or 0,
        enable_chunked_prefill=bool(engine.get("enable_chunked_prefill", True)),
        enable_prefix_caching=bool(engine.get("enable_prefix_caching", True)),
        async_scheduling=bool(engine.get("async_scheduling")),
        kv_cache_tokens=engine["num_gpu_blocks"] * block,
        block_size=block,
    )
    circumstances = Circumstances(
        requests=trace.requests,
        rules=rules_of(release(case.calibration.vllm)),
        step=step,
        shared_prefix=trace.shared_prefix,
        prompt_logprobs=trace.task is Task.LOGLIKELIHOOD,
    )
    return run_setting(circumstances, args)


def errors(found: SimulatedRun, run: dict[str, Any]) -> dict[str, float | None]:
    itl = run.get("itl_s") or {}
    pairs = {
        "makespan": (found.makespan_s, run["makespan_s"]),
        "TTFT p50": (found.ttft_s.p50, run["ttft_s"]["p50"]),
        "TTFT p95": (found.ttft_s.p95, run["ttft_s"]["p95"]),
        "ITL p50": (found.itl_s.p50 if found.itl_s else None, itl.get("p50")),
    }
    return {
        name: mine / real - 1 if mine and real else None for name, (mine, real) in pairs.items()
    }


def roofline(case: Case) -> CostModel | None:
    m = case.calibration.model
    work = ModelWork(
        read_bytes=m.read_bytes,
        active_parameters=m.active_parameters,
        pair_flops=m.pair_flops,
        kv_bytes_per_token=m.kv_bytes_per_token,
    )
    try:
        gpu = find_gpu(case.calibration.gpu)
        assert gpu is not None
        target = Target(
            model=m.name, work=work, gpu=gpu, tp=case.calibration.tp, vllm=case.calibration.vllm
        )
        return cost_model(target, None)
    except ChunkscopeError:
        return None


def table(group: list[Case], fitted: Case) -> Iterator[str]:
    gpu, model = fitted.group
    step = cost_model(None, fitted.calibration)
    vllm, name = fitted.calibration.vllm, fitted.folder.name
    yield f"\n### {model} on {gpu}, vLLM {vllm}: fitted on {name}\n"
    yield f"Step model: {replace(step.step, origin='')}; median error of a step {step.error:.1%}.\n"
    yield f"| workload | setting | {' | '.join(LIMITS)} | roofline makespan |"
    yield f"|---|---|{'---:|' * (len(LIMITS) + 1)}"
    flat = roofline(fitted)
    worst: dict[str, float] = {}
    for case in group:
        for run in case.runs:
            found: dict[str, float | None] = dict.fromkeys(LIMITS)
            if case is not fitted:
                found = errors(simulated(case, run, step.step), run)
            rough = errors(simulated(case, run, flat.step), run)["makespan"] if flat else None
            for name, value in {**found, "roofline": rough}.items():
                if value is not None and abs(value) > abs(worst.get(name, 0.0)):
                    worst[name] = value
            cells = [*(_cell(found[name]) for name in LIMITS), _cell(rough)]
            note = " (fitted on)" if case is fitted else ""
            yield f"| {case.folder.name}{note} | {run['setting']} | {' | '.join(cells)} |"
    cells = [_cell(worst.get(name)) for name in (*LIMITS, "roofline")]
    yield f"| **worst** | | {' | '.join(cells)} |"
    limits = [*(f"{limit:.0%}" for limit in LIMITS.values()), f"{ROOFLINE_LIMIT:.0%}"]
    yield f"| target | | {' | '.join(limits)} |"


def _cell(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--fit", help="folder name of the workload to fit on; else the first")
    asked = parser.parse_args()
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases(asked.root):
        groups.setdefault(case.group, []).append(case)
    for group in groups.values():
        fitted = next((c for c in group if c.folder.name == asked.fit), group[0])
        print("\n".join(table(group, fitted)))


if __name__ == "__main__":
    main()
