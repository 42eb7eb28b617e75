"""Seconds per step, from one of two labelled sources: calibrated or a roofline."""

from dataclasses import dataclass
from enum import StrEnum

from chunkscope.artefacts.note import Note
from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.gpus import TABLE, Gpu, Parallel, known_gpu
from chunkscope.hardware.step_time import Runner, StepModel, assumed_host, step_model
from chunkscope.models.shape import ModelShape


class CostSource(StrEnum):
    CALIBRATED = "calibrated"
    ROOFLINE = "roofline"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """A step model and where it comes from. `error` is the fit's median, as a share."""

    source: CostSource
    step: StepModel
    gpu: str
    model: str
    samples: int | None = None
    error: float | None = None
    notes: tuple[Note, ...] = ()


def roofline_cost(
    shape: ModelShape | None, gpu: Gpu | None, step: StepModel | None
) -> CostModel:
    """Step times by the GPU's peak figures; MissingError where those are not known."""
    if shape is not None and gpu is not None and step is not None:
        source = CostSource.ROOFLINE
        return CostModel(source=source, step=step, gpu=gpu.title, model=shape.name)
    unknown = "a model and a GPU"
    if shape is not None and gpu is not None:
        unknown = f"the speed of {gpu.title}"
    raise MissingError(
        f"how long a step takes is not known without {unknown}",
        hint="plan for them: `chunkscope recommend --model llama-3.1-8b --gpu h200`, "
        "or pass --calibration",
    )


def calibrated_cost(calibration: Calibration) -> CostModel:
    """Step times fitted to the measured steps of an engine.

    What the steps do not show is taken from the roofline, where there is one.
    """
    try:
        from chunkscope.hardware.step_fit import fit_steps  # scipy is not always there
    except ImportError:
        hint = "install it: `pip install scipy`"
        raise MissingError("fitting a calibration needs scipy", hint=hint) from None
    if calibration.device != "cuda" or not calibration.async_scheduling:
        raise InputError(
            "the calibration is of an engine that schedules one step after another, "
            "such as one on a CPU",
            hint="measure one on a GPU, as vLLM schedules: `chunkscope verify`",
        )
    shape, gpu = calibration.model, known_gpu(calibration.gpu)
    prior = StepModel(host=assumed_host(shape, Runner.V1))
    if gpu is not None:
        parallel = Parallel(tensor=calibration.tp)
        prior = step_model(shape, gpu, parallel) or prior
    expert_share = 0.0
    if shape.experts is not None:
        expert_share = shape.experts.active / shape.experts.count
    fit = fit_steps(calibration.steps, prior, expert_share=expert_share)
    return CostModel(
        source=CostSource.CALIBRATED,
        step=fit.step,
        gpu=gpu.title if gpu else calibration.gpu,
        model=shape.name,
        samples=len(calibration.steps),
        error=fit.error,
    )


def check_calibration(
    calibration: Calibration,
    *,
    shape: ModelShape | None,
    gpu: Gpu | None,
    vllm: str,
    parallel: Parallel,
) -> None:
    """InputError where a calibration is of another engine: it serves its own alone."""
    difference = None
    known = known_gpu(calibration.gpu)
    measured_on = known.title if known else calibration.gpu
    if shape is not None and not _is_same_model(calibration.model, shape):
        difference = f"of {calibration.model.name}, not of {shape.name}"
    elif gpu is not None and measured_on != gpu.title:
        difference = f"of {measured_on}, not of {gpu.title}"
    elif Parallel(tensor=calibration.tp) != parallel:
        difference = f"of {calibration.tp} GPUs, not of {parallel.gpus}"
    elif _minor(calibration.vllm) != _minor(vllm):
        difference = f"of vLLM {calibration.vllm}, not of {vllm}"
    if difference is not None:
        raise InputError(
            f"the calibration is {difference}",
            hint="measure one for this plan: `chunkscope verify`; "
            "or leave --calibration out",
        )


def _is_same_model(measured: ModelShape, shape: ModelShape) -> bool:
    """Does a step of both cost the same? One model may have many names."""
    gpu = TABLE["h200"]
    return step_model(measured, gpu) == step_model(shape, gpu)


def _minor(version: str) -> list[str]:
    """Patch releases do not change the speed: 0.24.0 and 0.24.1 are the same."""
    return version.split(".")[:2]
