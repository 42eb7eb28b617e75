"""Steps that were measured -> the calibration that `simulate` fits step times to."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chunkscope.hardware.calibration import COLUMNS, Calibration, StepSamples
from chunkscope.hardware.step_time import READ_AGAIN
from chunkscope.models.shape import ModelShape
from chunkscope.prefixes.sharing import read_together
from chunkscope.simulation.workload import Workload
from chunkscope.verification.engine_run import Burst, EngineRecord
from chunkscope.verification.inside.chunkscope_sessions import SentTurn
from chunkscope.verification.latencies import EngineSteps
from chunkscope.verification.result import Run
from chunkscope.vllm.enums import Task

STEPS_PER_RUN = 3_000  # enough to fit a dozen numbers, and small enough to commit
BURSTS = "bursts"  # in place of a setting's name
OUTPUT = 16  # tokens of each answer in a burst
# Requests of a burst, by the tokens of their prompts: many short ones, few long ones.
# The cheapest come first: those that would take too long are left out.
COUNTS = {16: 1_024, 32: 512, 64: 256, 512: 64, 4_096: 8, 32_768: 1}

Measured = tuple[Run, EngineRecord]


def bursts_for(max_model_len: int, *, is_scored: bool = False) -> list[Burst]:
    """What is sent after the repeats: any workload then shows what every step costs."""
    longest = max_model_len - 1
    output = min(OUTPUT, longest)
    bursts = []
    for tokens, count in COUNTS.items():
        prompt = max(1, min(tokens, longest - OUTPUT))
        turn = SentTurn(prompt, output, is_scored=is_scored)
        bursts.append(Burst(count=count, turn=turn))
    return bursts


def calibration_of(
    measured: Sequence[Measured], shape: ModelShape, workload: Workload
) -> Calibration | None:
    """All steps of the runs that went well; None when there were none."""
    good = [(run, record) for run, record in measured if run.ok]
    samples: dict[str, list[Any]] = {name: [] for name in ("setting", *COLUMNS)}
    for run, record in good:
        weight = _context_weight(record, workload)
        _add(samples, run.setting, timed_steps(record.steps, context_weight=weight))
    for _, record in good:
        _add(samples, BURSTS, timed_steps(record.bursts))
    if not samples["setting"]:
        return None
    run, record = good[0]
    if record.machine is None:
        return None
    columns = {name: tuple(values) for name, values in samples.items()}
    return Calibration(
        gpu=record.machine.gpu or "cpu",
        device=record.machine.device,
        model=shape,
        tp=run.settings.parallel.tensor,
        vllm=record.machine.vllm or "",
        eager=bool(record.engine.get("enforce_eager")),
        async_scheduling=record.engine.get("async_scheduling"),
        steps=StepSamples(**columns),
    )


def _add(
    samples: dict[str, list[Any]], setting: str, rows: Sequence[dict[str, Any]]
) -> None:
    """Add rows to the columns, as those of a setting."""
    for row in rows:
        samples["setting"].append(setting)
        for name in COLUMNS:
            samples[name].append(row[name])


def _context_weight(record: EngineRecord, workload: Workload) -> float:
    """The share of the context that costs time: neighbours share some of it."""
    is_shared = record.engine.get("enable_prefix_caching", True)
    if workload.task is Task.LOGLIKELIHOOD or not is_shared:
        return 1.0
    shared = read_together(workload.requests, workload.stretches)
    return 1 - (1 - READ_AGAIN) * shared


def timed_steps(
    repeats: Sequence[EngineSteps], *, context_weight: float = 1.0
) -> list[dict[str, Any]]:
    """Every step with a known duration, thinned when there are very many."""
    timed = []
    for repeat in repeats:
        columns = asdict(repeat)
        for number, seconds in enumerate(repeat.duration_s):
            if seconds is not None and seconds > 0:
                timed.append({name: columns[name][number] for name in COLUMNS})
    every = max(1, -(-len(timed) // STEPS_PER_RUN))
    thinned = timed[::every]
    for row in thinned:
        row["duration_s"] = round(row["duration_s"], 7)
        context = row["decode_context_tokens"] * context_weight
        row["decode_context_tokens"] = round(context)
    return thinned


def calibration_path(folder: Path, calibration: Calibration) -> Path:
    """`calibration-nvidia-h200-llama-3.1-8b.json`"""
    model = Path(calibration.model.name).name
    return folder / f"calibration-{_slug(calibration.gpu)}-{_slug(model)}.json"


def _slug(name: str) -> str:
    """`NVIDIA H200` -> `nvidia-h200`"""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "model"
