"""Seconds per step, from one of three sources, always labelled: calibrated, scaled or roofline."""

from dataclasses import dataclass, replace
from enum import StrEnum

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.gpus import ALONE, TABLE, Gpu, Parallel, known_gpu
from chunkscope.hardware.step_time import Runner, StepModel, assumed_host, step_model
from chunkscope.models.shape import BYTES, ModelShape

GPU_TIMES = (
    "fixed_s",
    "per_token_s",
    "per_prefill_pair_s",
    "per_decode_context_s",
    "experts_s",
)


class CostSource(StrEnum):
    CALIBRATED = "calibrated"
    SCALED = "scaled"
    ROOFLINE = "roofline"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTarget:
    """An engine: whose steps are to be timed, or were."""

    shape: ModelShape
    gpu: Gpu
    vllm: str
    parallel: Parallel = ALONE
    kv_element_bytes: int = BYTES
    runner: Runner = Runner.V1

    @property
    def roofline(self) -> StepModel | None:
        return step_model(
            self.shape, self.gpu, self.parallel, self.kv_element_bytes, self.runner
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """A step model, and where it comes from. `error` is the fit's median, as a share."""

    source: CostSource
    step: StepModel
    gpu: str
    model: str
    samples: int | None = None
    error: float | None = None
    notes: tuple[Note, ...] = ()


def cost_model(target: CostTarget | None, calibration: Calibration | None) -> CostModel:
    """The best there is: a calibration of this very engine, one of another, or a roofline."""
    if calibration is not None:
        measured = CostTarget(
            shape=calibration.model,
            gpu=known_gpu(calibration.gpu)
            or Gpu(name=calibration.gpu, title=calibration.gpu, memory_gib=0.0),
            vllm=calibration.vllm,
            parallel=Parallel(tensor=calibration.tp),
        )
        return _calibrated(target or measured, measured, calibration)
    if target is None or target.roofline is None:
        gpu = f"the speed of {target.gpu.title}" if target else "a model and a GPU"
        raise MissingError(
            f"how long a step takes is not known without {gpu}",
            hint="plan for them: `chunkscope recommend --model llama-3.1-8b --gpu h200`, "
            "or pass --calibration",
        )
    source, name = CostSource.ROOFLINE, target.shape.name
    return CostModel(
        source=source, step=target.roofline, gpu=target.gpu.title, model=name
    )


def _calibrated(
    target: CostTarget, measured: CostTarget, calibration: Calibration
) -> CostModel:
    """What the steps do not show is taken from the roofline, where there is one."""
    try:
        from chunkscope.hardware.step_fit import (
            fit_steps,
        )  # scipy: only for a calibration
    except ImportError:
        hint = "install it: `pip install 'chunkscope[verify]'` or `pip install scipy`"
        raise MissingError("fitting a calibration needs scipy", hint=hint) from None
    e, prior = measured.shape.experts, None
    if calibration.device == "cuda" and calibration.async_scheduling:
        host = assumed_host(measured.shape, measured.runner)
        prior = measured.roofline or StepModel(host=host)
    share = e.active / e.count if e else 0.0
    step, error = fit_steps(calibration.steps, expert_share=share, prior=prior)
    differing = _differences(target, measured)
    return CostModel(
        source=CostSource.SCALED if differing else CostSource.CALIBRATED,
        step=_scaled(step, target, measured, "model" in differing)
        if differing
        else step,
        gpu=target.gpu.title,
        model=target.shape.name,
        samples=len(calibration.steps),
        error=error,
        notes=(note("scaled_steps", **differing),) if differing else (),
    )


def _differences(here: CostTarget, there: CostTarget) -> dict[str, list[str]]:
    """What was measured there, and what is asked for here; one model may have many names."""
    same_model = step_model(there.shape, TABLE["h200"]) == step_model(
        here.shape, TABLE["h200"]
    )
    # Patch releases do not change the speed: 0.24.0 and 0.24.1 are the same.
    same_vllm = there.vllm.split(".")[:2] == here.vllm.split(".")[:2]
    gpus = f"{there.parallel.gpus} GPUs", f"{here.parallel.gpus}"
    checks = (
        ("model", same_model, there.shape.name, here.shape.name),
        ("gpu", there.gpu.title == here.gpu.title, there.gpu.title, here.gpu.title),
        ("gpus", there.parallel == here.parallel, *gpus),
        ("vllm", same_vllm, f"vLLM {there.vllm}", here.vllm),
    )
    return {name: [was, asked] for name, same, was, asked in checks if not same}


def _scaled(
    step: StepModel, here: CostTarget, there: CostTarget, other_model: bool
) -> StepModel:
    """Of the same model elsewhere: each time, by how many times the roofline there is the one here.
    Of another model only the host carries over, which launches faster or slower than assumed: what
    one model's steps show of a GPU was 20 to 40 % off for others (an H200)."""
    old, new = there.roofline, here.roofline
    if old is None or new is None:
        raise InputError(
            f"a calibration for {there.gpu.title} cannot be scaled to {here.gpu.title}: the speed "
            "of one of them is not known",
            hint="calibrate on the GPU of the plan: `chunkscope verify`",
        )
    launch_s = step.host.ungraphed_s * new.host.ungraphed_s / old.host.ungraphed_s
    host = replace(step.host, ungraphed_s=launch_s, pieces_s=new.host.pieces_s)
    if other_model:
        return replace(new, host=host if launch_s else new.host)
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in GPU_TIMES}
    times = {name: getattr(step, name) * b / a for name, (a, b) in pairs.items() if a}
    free, share = step.free_tokens * new.free_tokens / old.free_tokens, new.expert_share
    return replace(
        step, **times, free_tokens=round(free), expert_share=share, host=host
    )
