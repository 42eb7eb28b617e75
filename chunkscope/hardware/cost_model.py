"""Seconds per step, from one of three sources, always labelled: calibrated, scaled or roofline."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.gpus import Gpu, card_titled
from chunkscope.hardware.parallel import ALONE, Parallel
from chunkscope.hardware.step_time import (
    ASSUMED_HOST,
    FITTED_ON,
    Host,
    ModelWork,
    StepModel,
    launch_s,
    roofline,
    with_exchange,
)

if TYPE_CHECKING:
    from chunkscope.hardware.step_fit import StepFit


class CostSource(StrEnum):
    CALIBRATED = "calibrated"
    SCALED = "scaled"
    ROOFLINE = "roofline"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTarget:
    """What the steps are to be timed for."""

    work: ModelWork
    gpu: Gpu
    tp: int
    vllm: str
    parallel: Parallel = ALONE  # `tp` is its tensor's
    exchange_s: tuple[float, float] = (0.0, 0.0)  # of a step and of each token in it


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """A step model, and where it comes from. `error` is the fit's median, as a share.

    `assumed`: coefficients that are another engine's, as the calibration does not show them.
    """

    source: CostSource
    step: StepModel
    gpu: str
    model: str
    vllm: str | None
    samples: int | None = None
    error: float | None = None
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kind: str | None = None  # of the model, in words


def cost_model(target: CostTarget | None, calibration: Calibration | None) -> CostModel:
    """The best there is: a calibration of this very engine, one of another, or a roofline."""
    if calibration is not None:
        return _from_calibration(target, calibration)
    if target is None:
        raise MissingError(
            "without a model and a GPU nobody knows how long a step takes",
            hint="plan for them: `chunkscope recommend --model llama-3.1-8b --gpu h200`, "
            "or pass --calibration",
        )
    step = roofline(target.work, target.gpu, target.tp)
    if step is None:
        raise MissingError(
            f"the speed of {target.gpu.title} is not known",
            hint="plan for a GPU of the table (--gpu h200), or pass --calibration",
        )
    return CostModel(
        source=CostSource.ROOFLINE,
        step=with_exchange(step, target.parallel, target.exchange_s),
        gpu=target.gpu.title,
        model=target.work.name,
        vllm=None,
        assumed=tuple(f"host.{field.name}" for field in fields(Host)),
        warnings=(f"step times are a roofline's, fitted on {FITTED_ON}: not measured here",),
    )


# -- calibrated --------------------------------------------------------------------------------


def _from_calibration(target: CostTarget | None, calibration: Calibration) -> CostModel:
    fit = _fit(calibration)
    model = CostModel(
        source=CostSource.CALIBRATED,
        step=fit.step,
        gpu=calibration.gpu,
        model=calibration.model.name,
        vllm=calibration.vllm,
        samples=fit.samples,
        error=fit.error,
        assumed=fit.assumed,
    )
    others = _differences(target, calibration) if target else []
    return _scaled(model, target, calibration, others) if target and others else model


def _fit(calibration: Calibration) -> "StepFit":
    """What the steps do not show is taken from the roofline, where there is one."""
    from chunkscope.hardware.step_fit import fit_steps  # numpy: only for a calibration

    origin = calibration_origin(calibration)
    if not (calibration.device == "cuda" and calibration.async_scheduling):
        return fit_steps(calibration.steps, origin, work=calibration.model)
    card = card_titled(calibration.gpu)
    prior = roofline(calibration.model, card, calibration.tp) if card else None
    return fit_steps(
        calibration.steps, origin, work=calibration.model, prior=prior, host=ASSUMED_HOST
    )


def calibration_origin(calibration: Calibration) -> str:
    many = f" x {calibration.tp}" if calibration.tp > 1 else ""
    eager = ", eager" if calibration.eager else ""
    return (
        f"{len(calibration.steps):,} steps of {calibration.model.name} on {calibration.gpu}{many}, "
        f"vLLM {calibration.vllm}{eager}"
    )


def _differences(target: CostTarget, calibration: Calibration) -> list[str]:
    names = {calibration.model.name, calibration.model.hub_id}
    figures = (replace(work, name="", hub_id=None) for work in (calibration.model, target.work))
    same_model = target.work.name in names or len(set(figures)) == 1
    found = {
        f"of {calibration.model.name}, not {target.work.name}": not same_model,
        f"of {calibration.gpu}, not {target.gpu.title}": calibration.gpu != target.gpu.title,
        f"of {calibration.tp} GPUs, not {target.tp}": calibration.tp != target.tp,
        f"of vLLM {calibration.vllm}, not {target.vllm}": (
            _minor(calibration.vllm) != _minor(target.vllm)
        ),
    }
    return [text for text, differs in found.items() if differs]


def _minor(version: str) -> list[str]:
    """Patch releases do not change the speed: 0.24.0 and 0.24.1 are the same."""
    return version.split("+")[0].split(".")[:2]


# -- scaled ------------------------------------------------------------------------------------


def _scaled(
    model: CostModel, target: CostTarget, calibration: Calibration, others: list[str]
) -> CostModel:
    bytes_per_s, flops_per_s = _faster(calibration.gpu, target.gpu)
    old, new = calibration.model, target.work
    split = target.tp / calibration.tp
    reading = _always(new) / _always(old) / split / bytes_per_s
    computing = new.active_parameters / old.active_parameters / split / flops_per_s
    pairs = new.pair_flops / old.pair_flops / split / flops_per_s if old.pair_flops else 1.0
    step = model.step
    launch = min(launch_s(old), step.fixed_s)
    return replace(
        model,
        source=CostSource.SCALED,
        gpu=target.gpu.title,
        model=target.work.name,
        step=replace(
            step,
            fixed_s=launch_s(new) * launch / launch_s(old) + (step.fixed_s - launch) * reading,
            per_token_s=step.per_token_s * computing,
            per_prefill_pair_s=step.per_prefill_pair_s * pairs,
            per_decode_context_s=step.per_decode_context_s
            * (new.kv_bytes_per_token / old.kv_bytes_per_token)
            / bytes_per_s,
            free_tokens=round(step.free_tokens * reading / computing),
            experts_s=_experts_s(step, old, new, 1 / split / bytes_per_s),
            expert_share=new.other.expert_share,
            window=new.other.window,
            origin=f"scaled from {step.origin}",
        ),
        warnings=(f"the calibration is {', '.join(others)}: its step times are scaled",),
    )


def _always(work: ModelWork) -> int:
    """Bytes that any step reads, whatever experts are chosen."""
    return work.read_bytes - work.other.expert_bytes


def _experts_s(step: StepModel, old: ModelWork, new: ModelWork, faster: float) -> float:
    """To read all experts; from the calibration where it has some, else as fast as the rest."""
    if not new.other.expert_bytes:
        return 0.0
    if old.other.expert_bytes:
        per_byte = step.experts_s / old.other.expert_bytes
    else:
        per_byte = (step.fixed_s - min(launch_s(old), step.fixed_s)) / _always(old)
    return new.other.expert_bytes * per_byte * faster


def _faster(there: str, here: Gpu) -> tuple[float, float]:
    """How many times the bandwidth, the FLOP/s; InputError where they are needed and not known."""
    if there == here.title:
        return 1.0, 1.0
    old = card_titled(there)
    if old and old.speed and here.speed:
        return here.speed[0] / old.speed[0], here.speed[1] / old.speed[1]
    raise InputError(
        f"the calibration is of {there}, the plan is for {here.title}, and the speed of one of "
        "them is not known: it cannot be scaled",
        hint="calibrate on the GPU of the plan: `chunkscope verify`, or leave --calibration out",
    )
