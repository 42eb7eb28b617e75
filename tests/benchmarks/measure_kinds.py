"""Measures rows of reports/h200/kinds again, on the GPU of this machine.

    python -m tests.benchmarks.measure_kinds OUTPUT MODEL:BUDGET ... --engine-arg
    enforce_eager=true

Models and requests: kinds.py. Each row is an engine of its own, started as `verify`
does it, with random weights; two short requests warm it up, then all are sent at once,
twice. A line of JSON per row in OUTPUT/rows.jsonl, as in held-out.jsonl; OUTPUT/raw has
the answers and steps, which `kinds_accuracy RAW` takes the host's times from, and the
engine's log.
"""

import argparse
import gzip
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chunkscope.artefacts.figures import Figures
from chunkscope.console import Progress
from chunkscope.simulation.workload import BATCH, Workload
from chunkscope.verification.engine_run import EngineJob, measure
from chunkscope.verification.inside.chunkscope_sessions import (
    SentSession,
    SentTurn,
)
from chunkscope.verification.settings import SettingRow, parse_engine_args
from chunkscope.verification.verify import ALWAYS, DUMMY
from chunkscope.vllm.check import vllm_python
from chunkscope.vllm.enums import Entry, Task
from tests.benchmarks.kinds import (
    config_of,
    context_of,
    is_even,
    sessions_of,
    settings_of,
)


def measured(
    model: str, budget: int, folder: Path, arguments: dict[str, Any]
) -> dict[str, Any]:
    """The row's line; what it was made from goes into `folder`."""
    # Compiling DeepGEMM's kernels before the first request takes ten minutes.
    os.environ["VLLM_DEEP_GEMM_WARMUP"] = "skip"
    config, context, even = config_of(model), context_of(model), is_even(model)
    # Each token draws its experts, as those of a trained model are chosen: nearly
    # evenly.
    os.environ["VLLM_MOE_ROUTING_SIMULATION_STRATEGY"] = (
        "uniform_random" if even else ""
    )
    engine = {
        **ALWAYS,
        "load_format": DUMMY,
        "dtype": config["torch_dtype"],
        **arguments,
    }
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "config.json").write_text(json.dumps(config))
        job = EngineJob(
            python=vllm_python(),
            engine={"model": place, **engine},
            entry=Entry.SERVE,
            workload=Workload(
                sessions=sessions_of(context),
                seed=0,
                arrivals=BATCH,
                task=Task.GENERATE,
            ),
            warm_up=[SentSession([SentTurn(64, 8)])] * 2,
            repeats=2,
            timeout_s=600,
        )
        row = SettingRow(name=f"{model}-{budget}", settings=settings_of(model, budget))
        run, record = measure(row, job, folder / f"{row.name}.log", Progress())
    eager = bool(engine.get("enforce_eager"))
    line = {"model": model, "budget": budget, "eager": eager, "even": even}
    rounds = [{"steps": asdict(steps)} for steps in record.steps]
    answers = [answer.told() for repeat in record.answers for answer in repeat]
    with gzip.open(folder / f"{row.name}.json.gz", "wt") as file:
        json.dump({"row": line, "repeats": rounds, "answers": answers}, file)
    line |= {"start_s": run.start_s, "engine": run.engine, "took_s": run.took_s}
    if not run.ok:
        return {**line, "failed": f"{run.status}: {record.error}"}
    line |= {"kv_tokens": run.kv_cache_tokens, "repeats": [*map(_figures, run.repeats)]}
    return {**line, "worker": record.workers[0], "memory": record.memory[0]}


def _figures(figures: Figures) -> dict[str, float]:
    spreads = {"ttft": figures.ttft_s, "itl": figures.itl_s}
    parts = {
        f"{name}_p{p}_s": getattr(s, f"p{p}")
        for name, s in spreads.items()
        for p in (50, 95)
    }
    return {"makespan_s": figures.makespan_s, **parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("rows", nargs="+", metavar="MODEL:BUDGET")
    parser.add_argument(
        "--engine-arg", action="append", default=[], metavar="NAME=VALUE"
    )
    options = parser.parse_args()
    for row in options.rows:
        model, _, budget = row.partition(":")
        arguments = parse_engine_args(options.engine_arg)
        line = json.dumps(
            measured(model, int(budget), options.output / "raw", arguments)
        )
        with (options.output / "rows.jsonl").open("a") as file:
            print(line, file=file)
        print(line, flush=True)


if __name__ == "__main__":
    main()
