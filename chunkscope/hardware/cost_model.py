"""Seconds per step, from one of three sources, always labelled: calibrated, scaled or roofline."""

from dataclasses import dataclass, replace
from enum import StrEnum

from chunkscope.artefacts.note import Note, note
from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.gpus import TABLE, Gpu, card_titled
from chunkscope.hardware.parallel import ALONE, Parallel
from chunkscope.hardware.step_time import StepModel, assumed_host, step_model
from chunkscope.models.shape import BYTES, ModelShape

GPU_TIMES = ("fixed_s", "per_token_s", "per_prefill_pair_s", "per_decode_context_s", "experts_s")


class CostSource(StrEnum):
    CALIBRATED = "calibrated"
    SCALED = "scaled"
    ROOFLINE = "roofline"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTarget:
    """What the steps are to be timed for."""

    shape: ModelShape
    gpu: Gpu
    vllm: str
    parallel: Parallel = ALONE
    kv_element_bytes: int = BYTES

    def roofline(self, gpu: Gpu) -> StepModel | None:
        return step_model(self.shape, gpu, self.parallel, self.kv_element_bytes)


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
        step, error = _fit(calibration)
        model = CostModel(
            source=CostSource.CALIBRATED,
            step=step,
            gpu=calibration.gpu,
            model=calibration.model.name,
            samples=len(calibration.steps),
            error=error,
        )
        differing = _differences(target, calibration) if target else {}
        return _scaled(model, target, calibration, differing) if target and differing else model
    if target is None:
        raise MissingError(
            "how long a step takes is not known without a model and a GPU",
            hint="plan for them: `chunkscope recommend --model llama-3.1-8b --gpu h200`, "
            "or pass --calibration",
        )
    roofline = target.roofline(target.gpu)
    if roofline is None:
        raise MissingError(
            f"the speed of {target.gpu.title} is not known",
            hint="plan for one of `chunkscope gpus`, or pass --calibration",
        )
    return CostModel(
        source=CostSource.ROOFLINE,
        step=roofline,
        gpu=target.gpu.title,
        model=target.shape.name,
    )


def _fit(calibration: Calibration) -> tuple[StepModel, float]:
    """What the steps do not show is taken from the roofline, where there is one."""
    try:
        from chunkscope.hardware.step_fit import fit_steps  # scipy: only for a calibration
    except ImportError:
        raise MissingError(
            "fitting a calibration needs scipy",
            hint="install it: `pip install 'chunkscope[verify]'` or `pip install scipy`",
        ) from None
    shape, e, prior = calibration.model, calibration.model.experts, None
    if calibration.device == "cuda" and calibration.async_scheduling:
        prior = _measured_roofline(calibration, card_titled(calibration.gpu))
        prior = prior or StepModel(host=assumed_host(shape))
    share = e.active / e.count if e else 0.0
    return fit_steps(calibration.steps, expert_share=share, prior=prior)


def _measured_roofline(calibration: Calibration, gpu: Gpu | None) -> StepModel | None:
    """Of the engine that was measured, on that GPU; None where its speed is not known."""
    return step_model(calibration.model, gpu, Parallel(tensor=calibration.tp)) if gpu else None


def _differences(target: CostTarget, calibration: Calibration) -> dict[str, list[str]]:
    """What was measured there, and what is asked for here."""
    names = {calibration.model.name, calibration.model.hub_id}
    same_model = target.shape.name in names or (
        step_model(calibration.model, TABLE["h200"]) == step_model(target.shape, TABLE["h200"])
    )
    differing: dict[str, list[str]] = {}
    if not same_model:
        differing["model"] = [calibration.model.name, target.shape.name]
    if calibration.gpu != target.gpu.title:
        differing["gpu"] = [calibration.gpu, target.gpu.title]
    if target.parallel != Parallel(tensor=calibration.tp):
        differing["gpus"] = [f"{calibration.tp} GPUs", f"{target.parallel.gpus}"]
    # Patch releases do not change the speed: 0.24.0 and 0.24.1 are the same.
    if calibration.vllm.split(".")[:2] != target.vllm.split(".")[:2]:
        differing["vllm"] = [f"vLLM {calibration.vllm}", target.vllm]
    return differing


def _scaled(
    model: CostModel, target: CostTarget, calibration: Calibration, differing: dict[str, list[str]]
) -> CostModel:
    """Of the same model elsewhere: each time, by how many times the roofline there is the one here.

    Of another model only the host carries over, which launches so many times faster or slower than
    the assumed one: what one model's steps show of a GPU was 20 to 40 % off for others (an H200).
    """
    there, here, step = card_titled(calibration.gpu), target.gpu, model.step
    if differing.keys() == {"gpus"}:  # one and the same GPU: its speed does not matter
        there = here = here if here.speed else TABLE["h200"]
    old, new = _measured_roofline(calibration, there), target.roofline(here)
    if old is None or new is None:
        raise InputError(
            f"the calibration is of {calibration.gpu}, the plan is for {target.gpu.title}, and the "
            "speed of one of them is not known: it cannot be scaled",
            hint="calibrate on the GPU of the plan: `chunkscope verify`",
        )
    launch_s = step.host.ungraphed_s * new.host.ungraphed_s / old.host.ungraphed_s
    host = replace(step.host, ungraphed_s=launch_s)
    if "model" in differing:
        step = replace(new, host=host if launch_s else new.host)
    else:
        pairs = {name: (getattr(old, name), getattr(new, name)) for name in GPU_TIMES}
        times = {name: getattr(step, name) * b / a for name, (a, b) in pairs.items() if a}
        free, share = step.free_tokens * new.free_tokens / old.free_tokens, new.expert_share
        step = replace(step, **times, free_tokens=round(free), expert_share=share, host=host)
    return replace(
        model,
        source=CostSource.SCALED,
        gpu=target.gpu.title,
        model=target.shape.name,
        step=step,
        notes=(note("scaled_steps", **differing),),
    )
