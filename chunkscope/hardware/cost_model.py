"""Seconds per step, from one of three sources, always labelled: calibrated, scaled or roofline."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from chunkscope.artefacts.note import Fact, Note
from chunkscope.errors import InputError, MissingError
from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.gpus import Gpu, card_titled
from chunkscope.hardware.parallel import ALONE, Parallel
from chunkscope.hardware.step_time import (
    FITTED_ON,
    Host,
    ModelWork,
    StepModel,
    exchange_s,
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
    vllm: str
    parallel: Parallel = ALONE


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
    notes: tuple[Note, ...] = ()
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
    step = roofline(target.work, target.gpu, target.parallel)
    if step is None:
        raise MissingError(
            f"the speed of {target.gpu.title} is not known",
            hint="plan for a GPU of the table (--gpu h200), or pass --calibration",
        )
    return CostModel(
        source=CostSource.ROOFLINE,
        step=step,
        gpu=target.gpu.title,
        model=target.work.name,
        vllm=None,
        assumed=tuple(f"host.{field.name}" for field in fields(Host)),
        notes=(Note(code="roofline_steps", values={"fitted_on": FITTED_ON}),),
    )


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
    differing = _differences(target, calibration) if target else {}
    return _scaled(model, target, calibration, differing) if target and differing else model


def _fit(calibration: Calibration) -> "StepFit":
    """What the steps do not show is taken from the roofline, where there is one."""
    from chunkscope.hardware.step_fit import fit_steps  # scipy: only for a calibration

    work, origin = calibration.model, calibration_origin(calibration)
    if not (calibration.device == "cuda" and calibration.async_scheduling):
        return fit_steps(calibration.steps, origin, work=work)
    card = card_titled(calibration.gpu)
    prior = roofline(work, card, Parallel(tensor=calibration.tp)) if card else None
    return fit_steps(calibration.steps, origin, work=work, prior=prior, host=work.host)


def calibration_origin(calibration: Calibration) -> str:
    many = f" x {calibration.tp}" if calibration.tp > 1 else ""
    eager = ", eager" if calibration.eager else ""
    return (
        f"{len(calibration.steps):,} steps of {calibration.model.name} on {calibration.gpu}{many}, "
        f"vLLM {calibration.vllm}{eager}"
    )


def _differences(target: CostTarget, calibration: Calibration) -> dict[str, list[Fact]]:
    """What was measured there, and what is asked for here."""
    names = {calibration.model.name, calibration.model.hub_id}
    figures = (replace(work, name="", hub_id=None) for work in (calibration.model, target.work))
    same_model = target.work.name in names or len(set(figures)) == 1
    there, here = calibration.vllm, target.vllm
    differing = {
        "model": (not same_model, calibration.model.name, target.work.name),
        "gpu": (calibration.gpu != target.gpu.title, calibration.gpu, target.gpu.title),
        "gpus": (
            target.parallel != Parallel(tensor=calibration.tp),
            f"{calibration.tp} GPUs",
            f"{target.parallel.gpus}",
        ),
        "vllm": (_minor(there) != _minor(here), f"vLLM {there}", here),
    }
    return {name: [one, two] for name, (differs, one, two) in differing.items() if differs}


def _minor(version: str) -> list[str]:
    """Patch releases do not change the speed: 0.24.0 and 0.24.1 are the same."""
    return version.split("+")[0].split(".")[:2]


def _scaled(
    model: CostModel, target: CostTarget, calibration: Calibration, differing: dict[str, list[Fact]]
) -> CostModel:
    """By bytes and FLOPs; communication is taken out of the measured times and put in anew."""
    bytes_per_s, flops_per_s = _faster(calibration.gpu, target.gpu)
    old, new, step = calibration.model, target.work, model.step
    split = target.parallel.tensor / calibration.tp
    reading = new.always_read_bytes / old.always_read_bytes / split / bytes_per_s
    computing = new.active_parameters / old.active_parameters / split / flops_per_s
    pairs = new.pair_flops / old.pair_flops / split / flops_per_s if old.pair_flops else 1.0
    card = card_titled(calibration.gpu) or target.gpu
    every_s, token_s = exchange_s(old, card, Parallel(tensor=calibration.tp))
    fixed_s, per_token_s = max(0.0, step.fixed_s - every_s), max(0.0, step.per_token_s - token_s)
    kernels_s = min(old.kernels_s, fixed_s)
    scaled = replace(
        step,
        fixed_s=new.kernels_s * kernels_s / old.kernels_s + (fixed_s - kernels_s) * reading,
        per_token_s=per_token_s * computing,
        per_prefill_pair_s=step.per_prefill_pair_s * pairs,
        per_decode_context_s=step.per_decode_context_s
        * (new.kv_bytes_per_token / old.kv_bytes_per_token)
        / bytes_per_s,
        free_tokens=round(step.free_tokens * reading / computing),
        experts_s=_experts_s(step, old, new, fixed_s - kernels_s, 1 / split / bytes_per_s),
        expert_share=new.expert_share,
        window=new.window,
        host=replace(
            step.host,
            ungraphed_s=step.host.ungraphed_s * new.host.ungraphed_s / old.host.ungraphed_s,
        ),
        origin=f"scaled from {step.origin}",
    )
    return replace(
        model,
        source=CostSource.SCALED,
        gpu=target.gpu.title,
        model=target.work.name,
        step=with_exchange(scaled, new, target.gpu, target.parallel),
        notes=(Note(code="scaled_steps", values=dict(differing)),),
    )


def _experts_s(
    step: StepModel, old: ModelWork, new: ModelWork, reading_s: float, faster: float
) -> float:
    """To read all experts; from the calibration where it has some, else as fast as the rest.

    `reading_s`: what the calibrated model's other weights take.
    """
    if old.expert_bytes:
        return step.experts_s * faster * new.expert_bytes / old.expert_bytes
    return reading_s * faster * new.expert_bytes / old.always_read_bytes


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
