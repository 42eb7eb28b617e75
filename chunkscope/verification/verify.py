"""A plan, a profile and a model -> what a real engine does with each setting."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from chunkscope.artefacts.figures import Figures
from chunkscope.artefacts.files import Name
from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.hardware.gpus import Gpu, find_gpu
from chunkscope.hardware.step_time import StepModel
from chunkscope.lengths.profile import Profile, together
from chunkscope.models import find_model, known_model
from chunkscope.models.shape import ModelShape
from chunkscope.planning.drawing import draw
from chunkscope.planning.plan import Plan
from chunkscope.planning.request import chosen_datasets
from chunkscope.simulation.result import Judged, SimulatedRun
from chunkscope.simulation.run import simulate
from chunkscope.verification.calibrate import (
    Measured,
    bursts_for,
    calibration_of,
    calibration_path,
)
from chunkscope.verification.endpoint.client import EndpointJob, measure_endpoint
from chunkscope.verification.engine_run import EngineJob, measure
from chunkscope.verification.latencies import ended_by, figures_of
from chunkscope.verification.options import Report, VerifyOptions
from chunkscope.verification.prompts import Ids, Sent, real_prompts
from chunkscope.verification.result import (
    EngineKind,
    Machine,
    Run,
    Subject,
    Verification,
)
from chunkscope.verification.settings import SettingRow, check_room, rows_of
from chunkscope.verification.task import output_sample, warm_up
from chunkscope.verification.verdict import judged, with_outputs_compared
from chunkscope.vllm.check import config_folder, version_in
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry, Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import KvPool, Settings

DUMMY = "dummy"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf", "*.npz")
# Token ids go in and come out: no tokenizer is needed.
ALWAYS = {"skip_tokenizer_init": True, "generation_config": "vllm"}
# Requests that are there from the start are in the same steps however long those take.
ANY_STEP = StepModel(fixed_s=1.0)


def verify(
    plan: Plan,
    profile: Profile,
    options: VerifyOptions,
    report: Report | None = None,
    resume: Verification | Name | None = None,
) -> Verification:
    """Measure the plan and what it is compared to; save after each fresh engine."""
    report = report or Report()
    rows = rows_of(plan, options.against, options.also)  # a wrong word needs no vLLM
    check_installed(options.python)
    name = model_name(plan, options)
    sent = what_is_sent(plan, profile, options, report)
    longest = max(session.longest for session in sent.workload.sessions)
    check_room(rows, longest)
    engine_model, shape = model_for_engine(name, options.load_format)
    check_vocabulary(sent.prompts, shape)
    subject = Subject(
        name=name, load_format=options.load_format, parameters=shape.parameters.total
    )
    verification = blank_verification(plan, options, sent, subject)
    if resume is not None:
        verification = resumed(verification, Verification.load(resume), rows)
    engine = {**ALWAYS, "model": engine_model, "load_format": options.load_format}
    max_model_len = max_model_len_of(plan)
    longest_prompt = longest_prompt_of(plan, profile)
    is_scored = sent.workload.task is Task.LOGLIKELIHOOD
    job = EngineJob(
        python=options.python,
        engine={**engine, **options.arguments},
        entry=plan.deployment.entry,
        workload=sent.workload,
        slo=verification.slo,
        warm_up=warm_up(sent.workload, longest_prompt),
        repeats=options.repeats,
        timeout_s=options.timeout_s,
        time_limit_s=options.time_limit_s,
        prompts=sent.prompts or None,
        output_sample=output_sample(sent.workload) if options.check_outputs else (),
        bursts=bursts_for(max_model_len, is_scored=is_scored),
    )
    return measure_rows(verification, rows, job, shape, report)


def verify_endpoint(
    url: str,
    plan: Plan,
    profile: Profile,
    options: VerifyOptions,
    report: Report | None = None,
) -> Verification:
    """One row: the server as it is, asked greedily."""
    report = report or Report()
    if options.check_outputs or options.also:
        raise UsageError(
            "--also and --check-outputs compare settings, and a server has one",
            hint="leave --endpoint out, or those",
        )
    sent = what_is_sent(plan, profile, options, report)
    job = EndpointJob(
        workload=sent.workload,
        prompts=sent.prompts,
        repeats=options.repeats,
        timeout_s=options.timeout_s,
        time_limit_s=options.time_limit_s,
        slo=options.slo or plan.request.slo,
    )
    measured = measure_endpoint(url, job, options.model, report.listener)
    verification = replace(
        blank_verification(plan, options, sent, measured.model),
        machine=measured.machine,
        options={},
        runs=(measured.run,),
        measured=EngineKind.SERVER,
    )
    verification.save(report.output)
    return verification


def model_name(plan: Plan, options: VerifyOptions) -> str:
    """The model to load; an error where one engine cannot run the plan."""
    replicas = plan.settings.parallel.data
    if replicas > 1:
        raise UsageError(
            f"the plan is for {replicas} replicas, and verify starts one engine",
            hint="measure a server that runs them with --endpoint, or plan without "
            "--dp",
        )
    if options.model is not None:
        return options.model
    if plan.model is not None and plan.model.load_name:
        return plan.model.load_name
    raise UsageError("the plan names no model", hint="pass --model PATH_OR_ID")


def check_installed(python: str) -> None:
    """MissingError where an interpreter has no vLLM that is supported."""
    has_process_groups = hasattr(os, "killpg")  # Windows has none, and no vLLM
    version = version_in(python) if has_process_groups else None
    if version is None:
        raise MissingError(
            f"{python} has no vLLM",
            hint="on the machine with the GPU, in a clone of chunkscope: pip install "
            "'.[verify]'; or name the Python that has vLLM in CHUNKSCOPE_VLLM_PYTHON; "
            "--endpoint measures a running server",
        )
    try:
        release(version)
    except UsageError as error:
        hint = "install another vLLM: pip install -U vllm"
        raise MissingError(error.message, hint=hint) from None


# -- the rows --------------------------------------------------------------------------


def resumed(
    new: Verification, old: Verification, rows: Sequence[SettingRow]
) -> Verification:
    """With the finished rows of an earlier try.

    The machine is compared when an engine starts.
    """
    parts = {
        "model": (new.model, old.model),
        "workload": ((new.workload, new.source), (old.workload, old.source)),
        "limits": ((new.slo, new.time_limit_s), (old.slo, old.time_limit_s)),
        "number of repeats": (new.repeats, old.repeats),
        "engine options": (new.options, old.options),
    }
    for part, (today, before) in parts.items():
        if today != before:
            raise InputError(
                f"cannot resume: not the {part} of the earlier run",
                hint="use the same options, or leave --resume out to measure "
                "everything again",
            )
    if old.machine is None:  # no engine ever started: where it was tried is not known
        return new
    final = {run.setting: run for run in old.runs if run.status.is_final}
    runs = []
    for row in rows:
        run = final.get(row.name)
        if run is not None and run.settings == row.settings:
            runs.append(replace(run, same_as=row.same_as))
    return replace(new, runs=tuple(runs), machine=old.machine if runs else None)


def measure_rows(
    verification: Verification,
    rows: Sequence[SettingRow],
    job: EngineJob,
    shape: ModelShape,
    report: Report,
) -> Verification:
    """One row after the other, each saved as soon as it is measured."""
    folder = report.output.parent
    runs = {run.setting: run for run in verification.runs}
    # Rows that are kept left a calibration behind: what follows does not replace it.
    calibrates = not any(run.ok for run in verification.runs)
    if not calibrates:
        job = replace(job, bursts=())
    measured: list[Measured] = []
    for number, row in enumerate(rows, start=1):
        if not is_done(runs.get(row.name), job):
            report.listener.setting(row.name, number, len(rows))
            here = replace(job, machine=verification.machine)
            log = folder / f"verify-{slug(row.name)}.log"
            run, record = measure(row, here, log, report.listener)
            machine = verification.machine or record.machine
            verification = replace(verification, machine=machine)
            run = with_prediction(run, shape, verification)
            if not run.ok:
                report.on_failure(run, record.log_text)
            if record.bursts:  # enough: all rows share the model and the GPU
                job = replace(job, bursts=())
            runs[row.name] = run
            measured.append((run, record))
        ordered = [runs[row.name] for row in rows if row.name in runs]
        verification = replace(verification, runs=tuple(ordered))
        verification = judged(with_outputs_compared(verification))
        verification.save(report.output)
        calibration = calibration_of(measured, shape, job.workload)
        if calibration is not None and calibrates:
            calibration.save(calibration_path(folder, calibration))
    return verification


def is_done(run: Run | None, job: EngineJob) -> bool:
    """Was it measured before, as this job would?"""
    if run is None or run.engine.get("entry", job.entry) != job.entry:
        return False
    lacks_outputs = run.ok and run.outputs is None
    return not (job.output_sample and lacks_outputs)


def slug(name: str) -> str:
    """`max-num-seqs=8` -> `max-num-seqs-8`"""
    letters = [letter if letter.isalnum() else "-" for letter in name]
    return "".join(letters).strip("-")


# -- the prediction beside it ----------------------------------------------------------


def with_prediction(run: Run, shape: ModelShape, measured: Verification) -> Run:
    """The run with what `chunkscope simulate` predicts of it.

    On a CPU that is only the hits of the prefix cache. What the simulator would refuse,
    an engine may have taken: then nothing is predicted.
    """
    machine = measured.machine
    workload = measured.workload
    if machine is None or machine.vllm is None:
        return run
    deployment = Engine(
        release=release(machine.vllm),
        shape=shape,
        gpu=gpu_of(machine),
        entry=Entry(run.engine.get("entry", Entry.SERVE)),
        logprobs=bool(workload.likelihoods),
        cuda_graphs=not run.engine.get("enforce_eager"),
    )
    # Of models that keep less than every token vLLM finds another part.
    keeps_all = not shape.hybrid and not shape.attention.sliding_layers
    is_known = run.engine.get("num_gpu_blocks") and run.engine.get("block_size")
    if keeps_all and is_known:
        with suppress(ChunkscopeError):
            simulated = simulated_as_measured(run, measured, deployment)
            figures = predicted_figures(simulated, measured)
            run = replace(run, predicted_prefix_hit_rate=figures.prefix_hit_rate)
    if deployment.gpu is None or not run.engine.get("max_num_batched_tokens"):
        return run
    # What was only set with `--engine-arg` is among the engine's facts.
    settings = Settings.of(run.engine).over(run.settings)
    judged = Judged(limits=measured.slo, keeps_rows=True)
    with suppress(ChunkscopeError):
        simulated = simulate(workload, settings, deployment, judged=judged)
        figures = predicted_figures(simulated, measured)
        run = replace(run, predicted_figures=figures)
    with suppress(ChunkscopeError):
        started = replace(deployment, compiled_before=run.compiled_before)
        memory = started.memory(settings, longest=workload.longest)
        run = replace(run, predicted=memory)
    return run


def predicted_figures(simulated: SimulatedRun, measured: Verification) -> Figures:
    """Cut off as the measured run was; then nothing is known of the gaps."""
    if measured.time_limit_s is None or simulated.rows is None:
        return simulated.figures
    answers = ended_by(simulated.rows, measured.time_limit_s)
    if not answers:
        raise InputError("the prediction is cut off before any request has ended")
    long_over = measured.workload.long_over
    figures = figures_of(answers, long_over, slo=measured.slo)
    return replace(figures, itl_s=None, short=None, long=None)


def simulated_as_measured(
    run: Run, measured: Verification, deployment: Engine
) -> SimulatedRun:
    """The run simulated with the KV cache and the scheduling that the engine had.

    How long steps take is known of GPUs alone. It does not matter where the order is
    the same however long they take, and nothing is cut off.
    """
    workload = measured.workload
    arrives = any(session.arrival_s for session in workload.sessions)
    is_serial = workload.samples_at_once == 1
    is_ordered = is_serial or not (arrives or workload.has_turns)
    any_step = is_ordered and measured.time_limit_s is None
    block_size = run.engine["block_size"]
    tokens = run.engine["num_gpu_blocks"] * block_size
    return simulate(
        workload,
        Settings.of(run.engine),
        deployment,
        ANY_STEP if any_step else None,
        judged=Judged(keeps_rows=True),
        kv_pool=KvPool(tokens=tokens, block_size=block_size),
        async_scheduling=bool(run.engine.get("async_scheduling")),
    )


def gpu_of(machine: Machine) -> Gpu | None:
    """None on a CPU, and of a GPU that chunkscope does not know."""
    if machine.gpu is None:
        return None
    try:
        return find_gpu(machine.gpu)
    except ChunkscopeError:
        return None


# -- the model -------------------------------------------------------------------------


def model_for_engine(name: str, load_format: str) -> tuple[str, ModelShape]:
    """The engine's `model` (a folder or a hub id), and its shape."""
    shape = find_model(name)
    path = Path(name).expanduser()
    if path.exists():
        folder = path if path.is_dir() else path.parent
        if load_format != DUMMY and not has_weights(folder):
            raise MissingError(
                f"there are no weights in {folder}",
                hint="add `--load-format dummy` to measure memory and speed without "
                "them",
            )
        return str(folder.absolute()), shape
    if load_format == DUMMY and known_model(name):
        return str(config_folder(name)), shape
    return shape.hub_id or name, shape


def has_weights(folder: Path) -> bool:
    files = [file for pattern in WEIGHTS for file in folder.glob(pattern)]
    return bool(files)


def check_vocabulary(prompts: Sequence[Ids], shape: ModelShape) -> None:
    """Refuse ids that an engine without a tokenizer would die of."""
    highest = 0
    for ids in prompts:
        highest = max(highest, *ids)
    if highest >= shape.vocab:
        raise InputError(
            f"token {highest:,} of these prompts is beyond the model's vocabulary of "
            f"{shape.vocab:,}: the tokenizer belongs to another model",
            hint="analyze with the model's own --tokenizer, or leave --data out",
        )


# -- what is sent ----------------------------------------------------------------------


def what_is_sent(
    plan: Plan, profile: Profile, options: VerifyOptions, report: Report
) -> Sent:
    """The plan's workload as the options change it, with real prompts if asked for."""
    if plan.source.profile_digest != profile.digest():
        raise InputError(
            "the plan was made from another profile",
            hint="make both again: `chunkscope analyze`, then `chunkscope recommend`",
        )
    request = plan.request.asked_as(options)
    datasets = chosen_datasets(profile, plan.request.dataset)
    drawn = draw(
        request,
        plan.deployment,
        datasets,
        max_model_len_of(plan),
        advised_samples=advised_samples(plan),
        together=True,
    )
    long_over = plan.decision.threshold or plan.request.rule.conservative_threshold
    workload = replace(drawn, long_over=long_over)
    if options.data:
        return real_prompts(workload, profile, options, report.listener)
    return Sent(workload=workload)


def advised_samples(plan: Plan) -> int | None:
    """How many samples the plan says to keep under way."""
    answer = plan.concurrency
    if answer is None or answer.unit != "samples":
        return None
    return answer.advised


def blank_verification(
    plan: Plan, options: VerifyOptions, sent: Sent, model: Subject
) -> Verification:
    """What is to be measured, without a run."""
    return Verification(
        model=model,
        workload=sent.workload,
        source=sent.source,
        repeats=options.repeats,
        runs=(),
        slo=options.slo or plan.request.slo,
        time_limit_s=options.time_limit_s,
        options=options.arguments,
        plan_digest=plan.digest(),
        command=tuple(options.command),
    )


def max_model_len_of(plan: Plan) -> int:
    if plan.effective.max_model_len:
        return plan.effective.max_model_len
    return plan.refused.room_tokens + plan.output_tokens


def longest_prompt_of(plan: Plan, profile: Profile) -> int:
    """Of the plan's data, as far as the context goes."""
    lengths = together(chosen_datasets(profile, plan.request.dataset))
    return max(1, min(lengths.max or 1, max_model_len_of(plan) - 1))
