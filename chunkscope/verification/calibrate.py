"""Steps that were measured -> the calibration file that `simulate` fits its step times to."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chunkscope.hardware.calibration import COLUMNS, Calibration, StepSamples
from chunkscope.hardware.step_time import READ_AGAIN
from chunkscope.models.shape import ModelShape
from chunkscope.prefixes.sharing import read_together
from chunkscope.simulation.workload import Workload
from chunkscope.verification.engine_run import EngineRecord
from chunkscope.verification.result import Run
from chunkscope.vllm.enums import Task

STEPS_PER_RUN = 3_000  # enough to fit a dozen numbers, and small enough to commit
BURSTS = "bursts"  # in place of a setting's name
# Many requests with short prompts, few with long ones: (requests, prompt tokens, output tokens).
# The cheapest come first: those that would take too long are left out.
SHAPES = (
    (1_024, 16, 16),
    (512, 32, 16),
    (256, 64, 16),
    (64, 512, 16),
    (8, 4_096, 16),
    (1, 32_768, 16),
)


def bursts_for(max_model_len: int) -> list[tuple[int, int, int]]:
    """What is sent after the repeats, so that any workload shows what every kind of step costs."""
    longest = max_model_len - 1
    return [
        (count, max(1, min(prompt, longest - output)), min(output, longest))
        for count, prompt, output in SHAPES
    ]


def calibration_of(
    measured: Sequence[tuple[Run, EngineRecord]], shape: ModelShape, workload: Workload
) -> Calibration | None:
    """All steps of the runs that went well; None when there were none."""
    good = [(run, record) for run, record in measured if run.ok]
    rows = [
        (run.setting, row)
        for run, record in good
        for row in timed_steps(
            record.steps, context_weight=_context_weight(record, workload)
        )
    ]
    rows += [(BURSTS, row) for _, record in good for row in timed_steps(record.bursts)]
    if not rows or (machine := good[0][1].machine) is None:
        return None
    record, tp = good[0][1], good[0][0].settings.parallel.tensor
    columns = {name: tuple(row[i] for _, row in rows) for i, name in enumerate(COLUMNS)}
    return Calibration(
        gpu=machine.gpu or "cpu",
        device=machine.device,
        model=shape,
        tp=tp,
        vllm=machine.vllm or "",
        eager=bool(record.engine.get("enforce_eager")),
        async_scheduling=record.engine.get("async_scheduling"),
        steps=StepSamples(setting=tuple(setting for setting, _ in rows), **columns),
    )


def _context_weight(record: EngineRecord, workload: Workload) -> float:
    """How much of the context would take as long, if no request read what its neighbour does."""
    is_shared = record.engine.get("enable_prefix_caching", True)
    if workload.task is Task.LOGLIKELIHOOD or not is_shared:
        return 1.0
    return 1 - (1 - READ_AGAIN) * read_together(workload.requests, workload.stretches)


def timed_steps(
    repeats: Sequence[dict[str, Any]], *, context_weight: float = 1.0
) -> list[tuple[Any, ...]]:
    """Every step with a known duration, thinned when there are very many."""
    timed = [
        row
        for repeat in repeats
        for row in zip(*(repeat[name] for name in COLUMNS), strict=True)
        if row[-1] is not None and row[-1] > 0
    ]
    every = -(-len(timed) // STEPS_PER_RUN) if timed else 1
    return [
        (*row[:-2], round(row[-2] * context_weight), round(row[-1], 7))
        for row in timed[::every]
    ]


def calibration_path(folder: Path, calibration: Calibration) -> Path:
    """`calibration-nvidia-h200-llama-3.1-8b.json`"""
    names = (calibration.gpu, Path(calibration.model.name).name)
    slugs = (
        re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "model"
        for name in names
    )
    return folder / f"calibration-{'-'.join(slugs)}.json"
