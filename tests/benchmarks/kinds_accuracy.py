"""How near the models of memory and step time come to kinds of models other than dense
ones.

    python -m tests.benchmarks.kinds_accuracy ROWS.jsonl ...     Markdown tables of
    measured rows python -m tests.benchmarks.kinds_accuracy MODEL:BUDGET ...   lines for
    kinds/predicted.jsonl python -m tests.benchmarks.kinds_accuracy RAW MODEL:BUDGET
    the same, with the host of that row

Without arguments: the tables of reports/h200/README.md.

Models and workload: kinds.py. What is predicted follows from config.json, GPU, vLLM's
version, the arguments and, where a row names it, the host: how fast it launched the
steps of another model on the same machine (raw/MODEL-BUDGET.json.gz). Nothing measured
of the row goes into it.
"""

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from chunkscope.hardware.calibration import COLUMNS
from chunkscope.hardware.gpus import find_gpu
from chunkscope.hardware.step_time import StepModel, step_model
from chunkscope.models import ModelShape
from chunkscope.simulation.result import SimulatedRun
from chunkscope.simulation.run import simulate
from chunkscope.simulation.workload import BATCH, Workload
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Task
from chunkscope.vllm.flags import release
from tests.benchmarks.kinds import (
    context_of,
    is_even,
    sessions_of,
    settings_of,
    shape_of,
)
from tests.h200 import spaced

FOLDER = Path(__file__).parents[2] / "reports" / "h200" / "kinds"
FIT, HELD_OUT = FOLDER / "fit.jsonl", FOLDER / "held-out.jsonl"
# With random weights a token's scores are all but equal. Where a bias is added to them,
# or they are rounded to 16 bits before they are compared, every token chooses the same
# experts: a step then reads no more of them than one token does, as DeepSeek-V2-Lite's
# steps show. A trained model chooses nearly evenly, and that is what `simulate`
# assumes; the rows called even draw lots.
ROUTED_ALIKE = {
    "deepseek-v2-lite",
    "deepseek-v3-small",
    "deepseek-v3-medium",
    "ernie-4.5-21b-a3b",
    "moonlight-16b-a3b",
    "gpt-oss-20b",
    "gpt-oss-120b",
}
# What was asked for, as shares.
LIMITS = {
    "kv_tokens": 0.01,
    "makespan_s": 0.08,
    "ttft_p50_s": 0.10,
    "ttft_p95_s": 0.10,
    "itl_p50_s": 0.10,
}
# The columns of the tables; activation peaks are measured alone.
TITLES = {
    "kv_tokens": "KV tokens",
    "activation_gib": "activation GiB",
    "makespan_s": "makespan s",
    "ttft_p50_s": "TTFT p50",
    "ttft_p95_s": "TTFT p95",
    "itl_p50_s": "gap p50",
}
Row = dict[str, Any]


def routed_alike(step: StepModel, shape: ModelShape) -> StepModel:
    """All tokens choose the same experts. 4-bit ones are unpacked again for every block
    of tokens: up to eight times, after the steps of gpt-oss-20b."""
    assert shape.experts is not None
    share = shape.experts.active / shape.experts.count
    if shape.quantization.bits <= 4:
        return replace(step, experts_s=8 * share * step.experts_s, expert_share=0.02)
    return replace(step, experts_s=share * step.experts_s, expert_share=1.0)


def step_of(model: str) -> StepModel:
    """Of the vLLM that was measured."""
    shape = shape_of(model)
    runner = release("0.24").runner(shape.architecture, dense=shape.dense)
    step = step_model(shape, find_gpu("h200"), runner=runner)
    assert step is not None
    return step


def host_of(raw: Path) -> dict[str, Any]:
    """The host's times by the steps of one row which it launched kernel by kernel, and
    the model.

    A step takes as long as the slower of host and GPU: here the GPU must have waited.
    """
    with gzip.open(raw, "rt") as file:
        row = json.load(file)
    model, columns = row["row"]["model"], row["repeats"][-1]["steps"]
    step = step_of(model)
    launched, computed = [], []
    for prompt, pairs, prompts, decodes, context, seconds in zip(
        *(columns[name] for name in COLUMNS), strict=True
    ):
        tokens, requests = prompt + decodes, prompts + decodes
        if seconds is not None and tokens > step.graphed_tokens:
            prepare, _, hand_out = step.host_parts(tokens, requests, prompts)
            launched.append(seconds - prepare - hand_out)
            computed.append(step.gpu_s(tokens, pairs, context, requests))
    assert median(launched) > median(computed), f"the GPU was the limit of {raw}"
    return {"model": model, **asdict(replace(step.host, ungraphed_s=median(launched)))}


def on_host(step: StepModel, host: Mapping[str, Any]) -> StepModel:
    """Launched so many times as fast as that model was launched there."""
    times = {name: seconds for name, seconds in host.items() if name != "model"}
    times["ungraphed_s"] *= (
        step.host.ungraphed_s / step_of(host["model"]).host.ungraphed_s
    )
    return replace(step, host=replace(step.host, **times))


def predicted(
    model: str,
    budget: int,
    *,
    eager: bool,
    even: bool,
    host: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Memory and times of the workload of kinds.py."""
    shape, gpu = shape_of(model), find_gpu("h200")
    engine = Engine(
        shape=shape, gpu=gpu, release=release("0.24"), cuda_graphs=not eager
    )
    settings = engine.complete(settings_of(model, budget))
    memory, step = engine.memory(settings), step_of(model)
    if model in ROUTED_ALIKE and not even:
        step = routed_alike(step, shape)
    if host:
        step = on_host(step, host)
    workload = Workload(
        sessions=sessions_of(context_of(model)),
        seed=0,
        arrivals=BATCH,
        task=Task.GENERATE,
    )
    run = simulate(workload, settings, engine, step)
    ttft, gap = run.figures.ttft_s, run.figures.itl_s
    values = (
        memory.kv_cache_tokens,
        run.figures.makespan_s,
        ttft.p50,
        ttft.p95,
        gap.p50,
    )
    return dict(zip(LIMITS, values, strict=True))


def prompt_steps(run: SimulatedRun) -> list[tuple[int, list[tuple[int, int]]]]:
    """Those that read prompts: how many requests decode beside, and the pieces."""
    steps = []
    for step in run.timeline:
        if step.chunks:
            pieces = [(chunk.start, chunk.end) for chunk in step.chunks]
            steps.append((step.decode_requests, pieces))
    return steps


def measured(row: Row) -> dict[str, float]:
    """The figures of a line of rows.jsonl; of the last round, as the first compiles
    kernels."""
    figures = {"kv_tokens": row["kv_tokens"], **(row.get("repeats") or [{}])[-1]}
    if peak := (row.get("memory") or {}).get("activation_peak_bytes"):
        figures["activation_gib"] = peak / 2**30
    return figures


def errors(row: Row) -> dict[str, float]:
    """By figure, how far the prediction is from what was measured."""
    figures = measured(row)
    even, host = row.get("even", False), row.get("host")
    values = predicted(
        row["model"], row["budget"], eager=row["eager"], even=even, host=host
    )
    return {
        name: values[name] / figures[name] - 1 for name in LIMITS if figures.get(name)
    }


def rows(file: Path) -> list[Row]:
    """Those whose engine got ready. Of a row measured again, the last."""
    found = map(json.loads, file.read_text().splitlines())
    ready = [row for row in found if "kv_tokens" in row]
    return [*{key_of(row): row for row in ready}.values()]


def key_of(row: Row) -> tuple[str, int]:
    """Its name in the table, and its budget."""
    how = [word for word in ("eager", "even") if row.get(word)]
    return ", ".join((row["model"], *how)), row["budget"]


def table(file: Path) -> Iterator[str]:
    """What was measured, and behind it how far the prediction was off."""
    yield f"| shape | budget | {' | '.join(TITLES.values())} |"
    yield f"|---|---:|{'---:|' * len(TITLES)}"
    for row in rows(file):
        figures, off = measured(row), errors(row)
        cells = []
        for key in TITLES:
            cell = _shown(key, figures[key]) if key in figures else ""
            if key in off:
                cell += f" ({off[key]:+.1%})"
            cells.append(cell)
        name, budget = key_of(row)
        yield spaced(f"| {name} | {budget:,} | {' | '.join(cells)} |")


def _shown(key: str, value: float) -> str:
    if key == "kv_tokens":
        return f"{value:,.0f}"
    return f"{value * 1e3:.1f} ms" if key.startswith("itl") else f"{value:.2f}"


def main() -> None:
    host: dict[str, Any] | None = None
    for word in sys.argv[1:] or map(str, (FIT, HELD_OUT)):
        model, _, budget = word.partition(":")
        if budget:
            line = {
                "model": model,
                "budget": int(budget),
                "eager": False,
                "even": is_even(model),
            }
            line |= predicted(**line, host=host)
            print(json.dumps({**line, "host": host} if host else line))
        elif model.endswith(".jsonl"):
            print("\n".join((f"\n{model}\n", *table(Path(word)))))
        else:
            host = host_of(Path(word))


if __name__ == "__main__":
    main()
