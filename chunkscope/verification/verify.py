"""A plan, a profile and a model -> what a real engine does with each setting."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chunkscope.console import VerifyProgress
from chunkscope.costs.calibration import Calibration
from chunkscope.costs.gpus import GIB, driver_version
from chunkscope.costs.models.shape import ModelShape
from chunkscope.engine.check import version_in, vllm_python
from chunkscope.engine.choices import Task
from chunkscope.engine.flags import OLDEST, Release, dotted, release
from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.lengths.profile import Profile, together
from chunkscope.planning.plan import Plan
from chunkscope.planning.recommend import chosen_datasets, profile_digest
from chunkscope.simulation.workload import BATCH, Drawing, Workload, draw_workload
from chunkscope.verification.calibrating import (
    bursts_for,
    calibration_of,
    calibration_path,
    joined,
)
from chunkscope.verification.engine_run import Job, Measured, Story, measure
from chunkscope.verification.model_folder import model_for_engine
from chunkscope.verification.predicting import with_prediction
from chunkscope.verification.result import Machine, Subject, Verification
from chunkscope.verification.settings import DEFAULT, Setting, settings_of
from chunkscope.verification.verdict import judge

if TYPE_CHECKING:
    from chunkscope.verification.prompts import RealPrompts

RANDOM = "random token ids"
WARM_UP_REQUESTS = 2_048  # more than run at the same time
WARM_UP_OUTPUT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What to send, against what, and how to start the engine."""

    against: Sequence[str] = (DEFAULT, "off")
    also: Sequence[str] = ()
    requests: int = 200
    seed: int = 0
    arrivals: str = BATCH
    task: Task | None = None
    max_output: int | None = None
    shared_prefix: int = 0
    repeats: int = 3
    timeout_s: float = 1_800
    load_format: str = "auto"
    fixed_kv_cache: int | None = None
    enforce_eager: bool = False
    trust_remote_code: bool = False
    engine_args: dict[str, Any] = field(default_factory=dict)
    data: Sequence[str] = ()
    tokenizer: str | None = None
    python: str = field(default_factory=vllm_python)
    command: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where things are told and kept: after every row, so that none is lost."""

    output: Path = Verification.default_path
    listener: VerifyProgress = field(default_factory=VerifyProgress)
    on_failure: Callable[[Measured], None] = lambda _: None


def verify(
    plan: Plan,
    profile: Profile,
    *,
    model: str | None = None,
    options: VerifyOptions | None = None,
    report: Report | None = None,
    resume: Verification | None = None,
) -> Verification:
    """Measure the plan and what it is compared to, each in a fresh engine.

    The artefact is written after each row; `resume` keeps the rows that are there already.
    """
    options, report = options or VerifyOptions(), report or Report()
    check_options(options)
    installed = _installed(options.python)
    name = model or (plan.model and (plan.model.hub_id or plan.model.name))
    if not name:
        raise UsageError("which model? The plan names none", hint="pass --model PATH_OR_ID")
    workload, prompts = workload_for(plan, profile, options)
    settings = settings_of(plan, profile, installed, against=options.against, also=options.also)
    engine_model, shape = model_for_engine(name, options.load_format)
    _check_vocabulary(prompts, shape)
    verification = Verification(
        model=Subject(
            name=name, load_format=options.load_format, parameters=shape.parameters.total
        ),
        workload=workload,
        source=prompts.source if prompts else RANDOM,
        repeats=options.repeats,
        options=_engine_options(options),
        runs=(),
        plan_digest=plan.digest(),
        profile_digest=profile_digest(profile),
        command=tuple(options.command),
    )
    if resume is not None:
        verification = _resumed(verification, resume, settings)
    job = Job(
        python=options.python,
        engine={"model": engine_model, **_always(options), **_engine_options(options)},
        entry=plan.inputs.entry.value,
        workload=workload,
        warm_up=_warm_up(workload, plan, profile),
        repeats=options.repeats,
        timeout_s=options.timeout_s,
        prompts=prompts.ids if prompts else None,
        bursts=bursts_for(_max_model_len(plan)),
    )
    return _Rows(verification, plan, shape, job, report).measure(settings)


def check_options(options: VerifyOptions) -> None:
    if options.repeats < 1:
        raise UsageError(f"--repeats must be at least 1, not {options.repeats}")
    if options.timeout_s <= 0:
        raise UsageError(f"--timeout must be over 0 seconds, not {options.timeout_s:g}")
    if options.shared_prefix < 0:
        raise UsageError(f"--shared-prefix must not be negative: {options.shared_prefix}")


def _installed(python: str) -> Release:
    version = version_in(python)
    if version is None:
        raise MissingError(
            f"{python} has no vLLM",
            hint="pip install 'chunkscope[verify]' on the machine with the GPU, or name the Python "
            "that has vLLM in CHUNKSCOPE_VLLM_PYTHON",
        )
    try:
        return release(version)
    except UsageError:
        raise MissingError(
            f"vLLM {version} is too old to be measured",
            hint=f"install vLLM {dotted(OLDEST)} or newer: pip install -U 'chunkscope[verify]'",
        ) from None


# -- what is sent --------------------------------------------------------------------------------


def workload_for(
    plan: Plan, profile: Profile, options: VerifyOptions
) -> "tuple[Workload, RealPrompts | None]":
    """Lengths as in the profile; real prompts where their data is given."""
    _same_profile(plan, profile)
    task = options.task or plan.inputs.task
    workload = draw_workload(
        chosen_datasets(profile, plan.inputs.dataset),
        Drawing(
            count=options.requests,
            room=_max_model_len(plan),
            output=options.max_output,
            output_if_unknown=plan.inputs.output.tokens,
            seed=options.seed,
            arrivals=options.arrivals,
            task=task,
            long_over=plan.threshold or plan.inputs.cuts.conservative_threshold,
            shared_prefix=options.shared_prefix,
        ),
    )
    if not options.data:
        return workload, None
    from chunkscope.verification.prompts import real_prompts

    return real_prompts(
        options.data, profile, workload, tokenizer=options.tokenizer, seed=options.seed
    )


def _check_vocabulary(prompts: "RealPrompts | None", shape: ModelShape) -> None:
    """An engine without a tokenizer does not look at ids before it uses them: it would die."""
    highest = max((max(ids) for ids in prompts.ids if ids), default=0) if prompts else 0
    if highest >= shape.vocab:
        raise InputError(
            f"token {highest:,} of these prompts is beyond the model's vocabulary of "
            f"{shape.vocab:,}: the tokenizer belongs to another model",
            hint="analyze with the model's own --tokenizer, or leave --data out",
        )


def _same_profile(plan: Plan, profile: Profile) -> None:
    if plan.inputs.profile_digest != profile_digest(profile):
        raise InputError(
            "the plan was made from another profile",
            hint="make both anew: `chunkscope analyze` and then `chunkscope recommend`",
        )


def _max_model_len(plan: Plan) -> int:
    value = plan.argument("max_model_len").value
    return int(value) if value is not None else plan.refused.room_tokens + plan.inputs.output.tokens


def _warm_up(workload: Workload, plan: Plan, profile: Profile) -> list[tuple[int, int]]:
    """The requests, their answers cut short, and the longest prompt of all: it decides the peak.

    Fewer will not do: vLLM compiles some kernels when it first meets a step of their size.
    """
    first = workload.requests[:WARM_UP_REQUESTS]
    cut = [(r.prompt_tokens, min(r.output_tokens, WARM_UP_OUTPUT)) for r in first]
    lengths = together(chosen_datasets(profile, plan.inputs.dataset))
    longest = min(lengths.max or 1, _max_model_len(plan) - 1)
    return [(max(longest, 1), 1), *cut]


# -- the rows ------------------------------------------------------------------------------------


def _always(options: VerifyOptions) -> dict[str, Any]:
    """Token ids go in and come out: no tokenizer is needed."""
    always: dict[str, Any] = {"skip_tokenizer_init": True, "generation_config": "vllm"}
    return {**always, "load_format": options.load_format}


def _engine_options(options: VerifyOptions) -> dict[str, Any]:
    """What the user asked of every engine; part of the artefact."""
    asked: dict[str, Any] = dict(options.engine_args)
    if options.enforce_eager:
        asked["enforce_eager"] = True
    if options.fixed_kv_cache is not None:
        asked["kv_cache_memory_bytes"] = options.fixed_kv_cache
    if options.trust_remote_code:
        asked["trust_remote_code"] = True
    return asked


def _resumed(fresh: Verification, old: Verification, settings: Sequence[Setting]) -> Verification:
    """The finished rows of an earlier try at the same thing."""
    differs = {
        "model": fresh.model != old.model,
        "workload": fresh.workload != old.workload or fresh.source != old.source,
        "number of repeats": fresh.repeats != old.repeats,
        "engine options": fresh.options != old.options,
    }
    for what, is_so in differs.items():
        if is_so:
            raise InputError(
                f"cannot resume: the {what} differs from the earlier run's",
                hint="repeat its options, or leave --resume out to measure everything anew",
            )
    wanted = {setting.name: setting.args for setting in settings}
    kept = [
        run
        for run in old.runs
        if run.status.is_final and run.setting in wanted and run.args == wanted[run.setting]
    ]
    return replace(fresh, runs=tuple(kept), machine=old.machine)


class _Rows:
    """One row after the other, each kept as soon as it is there."""

    def __init__(
        self, verification: Verification, plan: Plan, shape: ModelShape, job: Job, report: Report
    ) -> None:
        self._made, self._plan, self._shape = verification, plan, shape
        self._job, self._report = job, report
        self._measured: list[Measured] = []
        self._earlier: dict[Path, Calibration | None] = {}

    def measure(self, settings: Sequence[Setting]) -> Verification:
        for number, setting in enumerate(settings, start=1):
            done = self._made.run(setting.name)
            if done is None:
                listener = self._report.listener
                listener.setting(setting.name, number, len(settings))
                found = measure(setting, self._next_job(), self._log(setting), listener)
                self._keep(found)
                if found.interrupted:
                    raise KeyboardInterrupt
        order = [setting.name for setting in settings]
        runs = sorted(self._made.runs, key=lambda run: order.index(run.setting))
        self._made = replace(self._made, runs=tuple(runs))
        self._save()
        return self._made

    def _next_job(self) -> Job:
        """One row with bursts is enough: all of them share the model and the GPU."""
        has_bursts = any(measured.story.bursts for measured in self._measured)
        return replace(self._job, bursts=()) if has_bursts else self._job

    def _keep(self, measured: Measured) -> None:
        machine = self._made.machine or machine_of(measured.story)
        run = with_prediction(
            measured.run,
            self._shape,
            gpu_title=machine.gpu if machine else None,
            vllm=machine.vllm if machine else None,
            workload=self._job.workload,
        )
        self._made = replace(self._made.with_run(run), machine=machine)
        self._measured.append(replace(measured, run=run))
        self._save()
        if not run.ok:
            self._report.on_failure(measured)

    def _save(self) -> None:
        verdict = judge(self._made, self._plan.inputs.objective)
        if verdict is not None:
            self._made = replace(self._made, verdict=verdict.text, better=verdict.better)
        self._made.save(self._report.output)
        calibration = calibration_of(self._measured, self._shape, self._plan.inputs.tp)
        if calibration is not None:
            path = calibration_path(self._report.output.parent, calibration)
            earlier = self._calibration_before(path)
            (joined(earlier, calibration) if earlier else calibration).save(path)

    def _calibration_before(self, path: Path) -> Calibration | None:
        """What an earlier try wrote, if its rows are kept; read before it is written over."""
        if path not in self._earlier:
            fresh = {measured.run.setting for measured in self._measured}
            resumed = any(run.setting not in fresh for run in self._made.runs)
            with suppress(InputError):
                self._earlier[path] = Calibration.load(path) if resumed else None
        return self._earlier.setdefault(path, None)

    def _log(self, setting: Setting) -> Path:
        name = "".join(c if c.isalnum() else "-" for c in setting.name).strip("-")
        return self._report.output.parent / f"verify-{name}.log"


def machine_of(story: Story) -> Machine | None:
    """None until an engine has started: only then is it known where it runs."""
    if not story.workers:
        return None
    worker = story.workers[0]
    total = worker.get("total_bytes")
    return Machine(
        device=worker["device"],
        gpu=worker.get("gpu"),
        gpus=len(story.workers) if worker["device"] != "cpu" else 0,
        gpu_memory_gib=total / GIB if total else None,
        driver=driver_version() if worker["device"] == "cuda" else None,
        vllm=story.versions.get("vllm"),
        torch=story.versions.get("torch"),
    )
