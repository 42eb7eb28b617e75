"""A plan, a profile and a model -> what a real engine does with each setting."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.files import Name, several
from chunkscope.artefacts.note import one_of
from chunkscope.console import Progress
from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.lengths.profile import Profile, together
from chunkscope.models import find_model, known_model
from chunkscope.models.shape import ModelShape
from chunkscope.planning.plan import Plan
from chunkscope.planning.request import chosen_datasets
from chunkscope.planning.simulator import draw
from chunkscope.simulation.slo import Slo
from chunkscope.simulation.workload import Workload
from chunkscope.verification.calibrate import (
    bursts_for,
    calibration_of,
    calibration_path,
)
from chunkscope.verification.endpoint.client import measure_endpoint
from chunkscope.verification.engine_run import EngineJob, EngineRecord, measure
from chunkscope.verification.outputs import sample_places, with_outputs_compared
from chunkscope.verification.predicting import with_prediction
from chunkscope.verification.prompts import RealPrompt, real_prompts
from chunkscope.verification.result import (
    EngineKind,
    PromptSource,
    Run,
    Subject,
    Verification,
)
from chunkscope.verification.settings import (
    USUALLY,
    SettingRow,
    parse_engine_args,
    rows_of,
)
from chunkscope.verification.verdict import judged
from chunkscope.vllm.check import config_folder, version_in, vllm_python
from chunkscope.vllm.enums import SendOrder, Task
from chunkscope.vllm.flags import release

WARM_UP_REQUESTS = 2_048  # more than run at the same time
WARM_UP_OUTPUT = 16
DUMMY = "dummy"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf", "*.npz")
# Token ids go in and come out: no tokenizer is needed.
ALWAYS = {"skip_tokenizer_init": True, "generation_config": "vllm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where the artefact is written, after every row, and who hears of progress and failures."""

    output: Path = Verification.default_path
    listener: Progress = field(default_factory=Progress)
    on_failure: Callable[[Run, str], None] = lambda _, __: None  # and the engine's log


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What to send, against what, and how to start the engine."""

    against: Sequence[str] = USUALLY
    also: Sequence[str] = ()
    requests: int = 200
    seed: int = 0
    arrivals: str | None = None  # the plan's
    task: Task | None = None  # a word will do, here and below
    max_output: int | None = None
    shared_prefix: int | None = None  # None: as the data has it
    order: SendOrder | None = None  # likewise
    slo: Slo = ()  # the plan's, if there are none
    concurrency: int | None = None  # requests under way; None: the plan's, or all
    check_outputs: bool = False
    repeats: int = 3
    timeout_s: float = 1_800
    load_format: str = "auto"
    trust_remote_code: bool = False
    engine_args: dict[str, Any] = field(default_factory=dict)  # or ["dtype=float32"]
    data: Sequence[str] = ()
    tokenizer: str | None = None
    python: str = field(default_factory=vllm_python)
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, kind in (("task", Task), ("order", SendOrder)):
            if word := getattr(self, name):
                object.__setattr__(self, name, one_of(kind, word, name))
        for name in ("also", "data"):
            object.__setattr__(self, name, several(getattr(self, name)))
        names = (name for text in several(self.against) for name in text.split(","))
        object.__setattr__(
            self, "against", tuple(n for n in names if n not in ("", "none"))
        )
        given = self.engine_args
        given = given if isinstance(given, dict) else parse_engine_args(several(given))
        trusted = {"trust_remote_code": True} if self.trust_remote_code else {}
        object.__setattr__(self, "engine_args", {**given, **trusted})
        for name, least in (("repeats", 1), ("timeout_s", 1), ("shared_prefix", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                raise UsageError(f"{name} must be at least {least}, not {value:g}")
        if self.shared_prefix is not None and self.data:
            raise UsageError(
                "shared_prefix and --data cannot be used together",
                hint="leave one of them out: real prompts have their own prefixes",
            )


def verify(
    plan: Plan,
    profile: Profile,
    options: VerifyOptions,
    *,
    model: str | None = None,
    report: Report | None = None,
    resume: Verification | Name | None = None,
) -> Verification:
    """Measure the plan and what it is compared to, each in a fresh engine; saved after each."""
    report = report or Report()
    rows = rows_of(plan, options.against, options.also)  # a wrong word needs no vLLM
    _check_installed(options.python)
    name = _model_name(plan, model)
    blank, prompts = blank_verification(plan, profile, options, report.listener)
    longest = max(r.prompt_tokens + r.output_tokens for r in blank.workload.requests)
    rows = [row.checked(longest) for row in rows]
    engine_model, shape = model_for_engine(name, options.load_format)
    check_vocabulary(prompts, shape)
    subject = replace(blank.model, name=name, parameters=shape.parameters.total)
    verification = replace(blank, model=subject, options=options.engine_args)
    if resume is not None:
        verification = resumed(verification, Verification.load(resume), rows)
    loaded = {"model": engine_model, "load_format": options.load_format}
    job = EngineJob(
        python=options.python,
        engine={**loaded, **ALWAYS, **options.engine_args},
        entry=plan.deployment.entry,
        workload=blank.workload,
        request=replace(plan.request, slo=blank.slo),
        warm_up=warm_up(blank.workload, plan, profile),
        repeats=options.repeats,
        timeout_s=options.timeout_s,
        prompts=[prompt.ids for prompt in prompts] or None,
        output_places=sample_places(blank.workload) if options.check_outputs else (),
        bursts=bursts_for(_max_model_len(plan)),
    )
    return measure_rows(verification, rows, job, shape, report)


def verify_endpoint(
    url: str,
    plan: Plan,
    profile: Profile,
    options: VerifyOptions,
    *,
    model: str | None = None,
    report: Report | None = None,
) -> Verification:
    """One row: the server as it is, asked greedily."""
    report = report or Report()
    if options.check_outputs or options.also:
        raise UsageError(
            "--also and --check-outputs compare settings, and a server has one",
            hint="leave --endpoint out, or those",
        )
    blank, prompts = blank_verification(plan, profile, options, report.listener)
    machine, subject, run = measure_endpoint(
        url,
        blank.workload,
        repeats=options.repeats,
        model=model,
        prompts=prompts,
        timeout_s=options.timeout_s,
        listener=report.listener,
        slo=blank.slo,
    )
    verification = replace(blank, model=subject, machine=machine, runs=(run,))
    verification = replace(verification, measured=EngineKind.SERVER)
    verification.save(report.output)
    return verification


def _model_name(plan: Plan, model: str | None) -> str:
    """An error where there is none, or one engine cannot run the plan."""
    if (replicas := plan.settings.parallel.data) > 1:
        raise UsageError(
            f"the plan is for {replicas} replicas, and verify starts one engine",
            hint="measure a server that runs them with --endpoint, or plan without --dp",
        )
    if name := model or (plan.model and plan.model.load_name):
        return name
    raise UsageError("the plan names no model", hint="pass --model PATH_OR_ID")


def _check_installed(python: str) -> None:
    version = (
        version_in(python) if hasattr(os, "killpg") else None
    )  # Windows has no vLLM
    if version is None:
        raise MissingError(
            f"{python} has no vLLM",
            hint="pip install 'chunkscope[verify]' on the machine with the GPU, or name the Python "
            "that has vLLM in CHUNKSCOPE_VLLM_PYTHON; --endpoint measures a running server",
        )
    try:
        release(version)
    except UsageError as error:
        raise MissingError(
            error.message, hint="pip install -U 'chunkscope[verify]'"
        ) from None


# -- the rows ------------------------------------------------------------------------------------


def resumed(
    new: Verification, old: Verification, rows: Sequence[SettingRow]
) -> Verification:
    """With the finished rows of an earlier try. The machine is compared when an engine starts."""
    differs = {
        "model": new.model != old.model,
        "workload": new.workload != old.workload or new.source != old.source,
        "limits": new.slo != old.slo,
        "number of repeats": new.repeats != old.repeats,
        "engine options": new.options != old.options,
    }
    if what := next((name for name, is_so in differs.items() if is_so), None):
        raise InputError(
            f"cannot resume: not the {what} of the earlier run",
            hint="use the same options, or leave --resume out to measure everything again",
        )
    # Without a machine no engine ever started: where it was tried is not known.
    final = {
        r.setting: r for r in old.runs if r.status.is_final and old.machine is not None
    }
    runs = [
        replace(run, same_as=row.same_as)
        for row in rows
        if (run := final.get(row.name)) and run.settings == row.settings
    ]
    return replace(new, runs=tuple(runs), machine=old.machine if runs else None)


def measure_rows(
    verification: Verification,
    rows: Sequence[SettingRow],
    job: EngineJob,
    shape: ModelShape,
    report: Report,
) -> Verification:
    """One row after the other, each saved as soon as it is measured."""
    measured: list[tuple[Run, EngineRecord]] = []
    # Rows that are kept left a calibration behind, with bursts: what follows does not replace it.
    calibrated = any(run.ok for run in verification.runs)
    folder, runs = report.output.parent, {run.setting: run for run in verification.runs}
    for number, row in enumerate(rows, start=1):
        if not _is_done(runs.get(row.name), job):
            report.listener.setting(row.name, number, len(rows))
            # One row with bursts is enough: all of them share the model and the GPU.
            bursts = (
                () if calibrated or any(r.bursts for _, r in measured) else job.bursts
            )
            next_job = replace(job, machine=verification.machine, bursts=bursts)
            name = "".join(c if c.isalnum() else "-" for c in row.name).strip("-")
            run, record = measure(
                row, next_job, folder / f"verify-{name}.log", report.listener
            )
            machine = verification.machine or record.machine
            run = with_prediction(
                run, shape, machine, job.workload, job.request, job.entry
            )
            measured.append((run, record))
            runs[row.name], verification = run, replace(verification, machine=machine)
            if not run.ok:
                report.on_failure(run, record.log_text)
        ordered = tuple(runs[one.name] for one in rows if one.name in runs)
        verification = judged(
            with_outputs_compared(replace(verification, runs=ordered))
        )
        verification.save(report.output)
        calibration = calibration_of(measured, shape, job.workload)
        if calibration is not None and not calibrated:
            calibration.save(calibration_path(folder, calibration))
    return verification


def _is_done(run: Run | None, job: EngineJob) -> bool:
    """Was it measured before, as this job would?"""
    if run is None or run.engine.get("entry", job.entry) != job.entry:
        return False
    return not (job.output_places and run.ok and run.outputs is None)


# -- the model -----------------------------------------------------------------------------------


def model_for_engine(name: str, load_format: str) -> tuple[str, ModelShape]:
    """The engine's `model` (a folder or a hub id), and its shape."""
    shape = find_model(name)
    path = Path(name).expanduser()
    if path.exists():
        folder = path if path.is_dir() else path.parent
        if load_format != DUMMY and not has_weights(folder):
            raise MissingError(
                f"there are no weights in {folder}",
                hint="add `--load-format dummy` to measure memory and speed without them",
            )
        return str(folder.absolute()), shape
    if load_format == DUMMY and known_model(name):
        return str(config_folder(name)), shape
    return shape.hub_id or name, shape


def has_weights(folder: Path) -> bool:
    return any(True for pattern in WEIGHTS for _ in folder.glob(pattern))


# -- what is sent --------------------------------------------------------------------------------


def blank_verification(
    plan: Plan, profile: Profile, options: VerifyOptions, listener: Progress
) -> tuple[Verification, Sequence[RealPrompt]]:
    """What is to be sent, without a model or a run; and the prompts where they are real."""
    if plan.source.profile_digest != profile.digest():
        raise InputError(
            "the plan was made from another profile",
            hint="make both again: `chunkscope analyze`, then `chunkscope recommend`",
        )
    request = plan.request.asked_as(options)
    datasets = chosen_datasets(profile, plan.request.dataset)
    long_over = plan.decision.threshold or plan.request.rule.conservative_threshold
    drawn = draw(request, plan.deployment, datasets, _max_model_len(plan))
    workload, prompts = replace(drawn, long_over=long_over), list[RealPrompt]()
    source = PromptSource()
    if options.data:
        workload, prompts, source = real_prompts(
            options.data,
            profile,
            workload,
            tokenizer=options.tokenizer,
            trust_remote_code=options.trust_remote_code,
            seed=options.seed,
            listener=listener,
        )
    return Verification(
        model=Subject(name="", load_format=options.load_format),
        workload=workload,
        source=source,
        repeats=options.repeats,
        runs=(),
        slo=options.slo or plan.request.slo,
        plan_digest=plan.digest(),
        command=tuple(options.command),
    ), prompts


def check_vocabulary(prompts: Sequence[RealPrompt], shape: ModelShape) -> None:
    """An engine without a tokenizer does not look at ids before it uses them: it would die."""
    highest = max((number for prompt in prompts for number in prompt.ids), default=0)
    if highest >= shape.vocab:
        raise InputError(
            f"token {highest:,} of these prompts is beyond the model's vocabulary of "
            f"{shape.vocab:,}: the tokenizer belongs to another model",
            hint="analyze with the model's own --tokenizer, or leave --data out",
        )


def _max_model_len(plan: Plan) -> int:
    return plan.effective.max_model_len or plan.refused.room_tokens + plan.output_tokens


def warm_up(
    workload: Workload, plan: Plan, profile: Profile
) -> list[tuple[int, int, float, int | None]]:
    """The requests, their answers cut short, and the longest prompt of all: it decides the peak.

    Fewer will not do: vLLM compiles some kernels when it first meets a step of their size.
    """
    first = enumerate(workload.requests[:WARM_UP_REQUESTS])
    cut = [
        (r.prompt_tokens, min(r.output_tokens, WARM_UP_OUTPUT), 0.0, n)
        for n, r in first
    ]
    lengths = together(chosen_datasets(profile, plan.request.dataset))
    longest = min(lengths.max or 1, _max_model_len(plan) - 1)
    return [(max(longest, 1), 1, 0.0, None), *cut]
