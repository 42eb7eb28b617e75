"""The commands as Python functions with the same names and options; they return values.

A command parses, calls one of these, and prints. `demo`, `doctor`, `gate` and `memory`
are defined where their work is done.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chunkscope.artefacts.files import Name, several
from chunkscope.artefacts.note import one_of
from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.vllm.enums import (
    ChunkPolicy,
    Entry,
    KvCacheType,
    Mode,
    SendOrder,
    Task,
)

if TYPE_CHECKING:
    from chunkscope.console import Progress
    from chunkscope.hardware.calibration import Calibration
    from chunkscope.hardware.gpus import Gpu
    from chunkscope.lengths.options import AnalyzeOptions, DatasetOptions
    from chunkscope.lengths.profile import Profile
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.models.shape import ModelShape
    from chunkscope.planning.plan import Plan
    from chunkscope.report.prefixes import PrefixSummary
    from chunkscope.simulation.outputs import OutputLengths
    from chunkscope.simulation.result import Simulation
    from chunkscope.simulation.slo import Slo
    from chunkscope.verification.options import Report
    from chunkscope.verification.result import Verification


def no_progress() -> None:
    """What is called after each simulated setting, where nobody watches."""


def options_by_dataset(
    tables: Mapping[str, Mapping[str, object]],
) -> "dict[str, DatasetOptions]":
    """The options of single datasets, by pattern."""
    from chunkscope.lengths.options import DatasetOptions

    options = {}
    for pattern, table in tables.items():
        options[pattern] = DatasetOptions.of(pattern, table)
    return options


def new_export() -> "TraceExport":
    """What takes the requests down while they are counted, to be written later."""
    from chunkscope.lengths.trace_export import TraceExport

    return TraceExport()


def analyze(
    paths: Name | Sequence[Name],
    *,
    field: str | Sequence[str] = (),
    template: str | None = None,
    choices: str | Sequence[str] = (),
    task: Task | Literal["generate", "loglikelihood"] = Task.GENERATE,
    each: str | Sequence[str] = (),
    prefix_file: Name | None = None,
    output_field: str | None = None,
    log_model: str | None = None,
    datasets: Mapping[str, Mapping[str, object]] | None = None,
    exclude: str | Sequence[str] = (),
    sample: int | None = None,
    input_format: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    header: bool | None = None,
    per_line: bool = False,
    model: Name | None = None,
    tokenizer: Name | None = None,
    chat_template: Name | None = None,
    apply_chat_template: bool = False,
    special_tokens: bool = True,
    trust_remote_code: bool = False,
    shots: int | None = None,
    limit: float | None = None,
    include_path: str | None = None,
    fewshot_as_multiturn: bool = False,
    prefixes: bool = True,
    ray: bool | str = False,
    export_trace: Name | None = None,
    export: "TraceExport | None" = None,
    options: "AnalyzeOptions | None" = None,
    listener: "Progress | None" = None,
) -> "Profile":
    """Measure how long prompts are: `analyze("data/", model="qwen3-8b")`.

    `datasets` has the options of single datasets by pattern, such as
    `{"mmlu*": {"field": "question"}}`. `ray` may be the address of a cluster.
    `options` stands for all other options of the data and the tokenizer.
    """
    from chunkscope.lengths.analyze import analyze as count
    from chunkscope.lengths.options import AnalyzeOptions
    from chunkscope.prompts.harness.rendering import RenderOptions
    from chunkscope.prompts.options import SelectOptions
    from chunkscope.prompts.prefix_files import PrefixFile
    from chunkscope.sources.base import ReadOptions

    if ray and (export is not None or export_trace is not None):
        raise UsageError("--ray and --export-trace cannot be used together")
    if options is None:
        select = SelectOptions(
            fields=several(field),
            each=several(each),
            template=one_text(template),
            choices=several(choices),
            task=one_of(Task, task, "task").value,
            output_field=one_text(output_field),
            log_model=log_model,
        )
        read = ReadOptions(
            input_format=input_format,
            encoding=encoding,
            per_line=per_line,
            delimiter=delimiter,
            header=header,
            trust_remote_code=trust_remote_code,
        )
        render = RenderOptions(
            shots=shots,
            include_path=include_path,
            fewshot_as_multiturn=fewshot_as_multiturn or None,
            limit=limit,
        )
        options = AnalyzeOptions(
            tokenizer=chosen_tokenizer(model, tokenizer),
            select=select,
            prefix_file=None if prefix_file is None else PrefixFile.read(prefix_file),
            datasets=options_by_dataset(datasets or {}),
            apply_chat_template=apply_chat_template,
            chat_template=None if chat_template is None else Path(chat_template),
            special_tokens=special_tokens,
            sample=sample,
            exclude=several(exclude),
            read=read,
            render=render,
            prefixes=prefixes,
        )
    if ray:
        return counted_on_ray(paths, ray, options, listener)
    if export is None and export_trace is not None:
        export = new_export()
    profile = count(paths, options=options, listener=listener, export=export)
    if export is not None and export_trace is not None:
        export.write(Path(export_trace))
    return profile


def counted_on_ray(
    paths: Name | Sequence[Name],
    ray: bool | str,
    options: "AnalyzeOptions",
    listener: "Progress | None",
) -> "Profile":
    """The same by a cluster: at the address, or the one that RAY_ADDRESS names."""
    from chunkscope.lengths.on_ray import analyze_on_ray

    address = ray if isinstance(ray, str) else os.environ.get("RAY_ADDRESS")
    return analyze_on_ray(paths, address, options=options, listener=listener)


def recommend(
    profiles: "Profile | Name | Sequence[Profile | Name] | None" = None,
    *,
    model: "Name | ModelShape | None" = None,
    gpu: "str | Gpu | None" = None,
    tp: int = 1,
    dp: int = 1,
    ep: bool = False,
    kv_cache_dtype: KvCacheType | Literal["auto", "fp8"] = KvCacheType.AUTO,
    max_model_len: int | None = None,
    vllm_version: str | None = None,
    entry: Entry | Literal["serve", "llm", "other"] | None = None,
    task: Task | Literal["generate", "loglikelihood"] | None = None,
    dataset: str | None = None,
    max_output: int | None = None,
    output: "OutputLengths | str | int | None" = None,
    outputs: "Mapping[str, OutputLengths | str | int] | None" = None,
    output_from: Name | None = None,
    samples: int | None = None,
    samples_at_once: int | None = None,
    together: bool = False,
    e2e_timeout: float | None = None,
    order: SendOrder | Literal["data", "longest", "shuffled"] | None = None,
    arrivals: str | None = None,
    concurrency: int | None = None,
    requests: int | None = None,
    slo: "str | Sequence[str] | Slo | None" = None,
    mode: Mode | Literal["off", "conservative", "aggressive"] | None = None,
    log: Name | None = None,
    price_per_hour: float | None = None,
    tick: Callable[[], None] = no_progress,
) -> "Plan":
    """Recommend vLLM settings: `recommend(profile, model="qwen3-8b", gpu="h100")`.

    Several profiles are planned as one run. `outputs` has lengths of answers by
    dataset. `gpu` is this machine's by default, if it
    has one. `tick` is called after each simulated setting.
    """
    from chunkscope.hardware.gpus import LOCAL, find_gpu
    from chunkscope.lengths.profile import Profile, joined
    from chunkscope.planning.recommend import recommend as plan_for
    from chunkscope.planning.request import PlanRequest

    request = PlanRequest.of(
        tp=tp,
        dp=dp,
        ep=ep,
        kv_cache_dtype=kv_cache_dtype,
        max_model_len=max_model_len,
        task=task,
        dataset=dataset,
        max_output=max_output,
        output=output,
        outputs=outputs,
        output_from=output_from,
        samples=samples or 1,
        samples_at_once=samples_at_once,
        together=together,
        e2e_timeout=e2e_timeout,
        order=order,
        arrivals=arrivals,
        concurrency=concurrency,
        requests=requests,
        slo=slo,
        mode=mode,
        price_per_hour=price_per_hour,
    )
    if gpu is None:
        with suppress(MissingError):  # this machine has none
            gpu = find_gpu(LOCAL)
    return plan_for(
        Profile.load() if profiles is None else joined(profiles),
        request=request,
        model=model,
        gpu=gpu,
        vllm_version=vllm_version,
        entry=entry,
        log=log,
        tick=tick,
    )


def simulate(
    plan: "Plan | Name | None" = None,
    profile: "Profile | Name | Sequence[Profile | Name] | None" = None,
    *,
    trace: Name | None = None,
    calibration: Name | Sequence[Name] = (),
    max_num_batched_tokens: int | None = None,
    long_prefill_token_threshold: int | None = None,
    max_num_seqs: int | None = None,
    kv_cache_dtype: KvCacheType | Literal["auto", "fp8"] | None = None,
    vllm_version: str | None = None,
    policy: ChunkPolicy
    | Literal["vllm", "fixed", "by-length", "adaptive"] = ChunkPolicy.VLLM,
    sweep: bool = False,
    find_rate: bool = False,
    timeline: int = 0,
    requests: int | None = None,
    arrivals: str | None = None,
    concurrency: int | None = None,
    max_output: int | None = None,
    output: "OutputLengths | str | int | None" = None,
    samples: int | None = None,
    samples_at_once: int | None = None,
    together: bool = False,
    e2e_timeout: float | None = None,
    slo: "str | Sequence[str] | Slo | None" = None,
    tick: Callable[[], None] = no_progress,
) -> "Simulation":
    """Predict what a setting does: `simulate(plan, profile, max_num_seqs=64)`.

    What is not given is as in the plan. `tick` is called after each simulated setting.
    """
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.predict import SimulateOptions, predict
    from chunkscope.planning.request import as_lengths
    from chunkscope.simulation.slo import read_slo
    from chunkscope.vllm.settings import Settings

    dtype = None
    if kv_cache_dtype is not None:
        dtype = one_of(KvCacheType, kv_cache_dtype, "kv_cache_dtype").value
    options = SimulateOptions(
        trace=None if trace is None else Path(trace),
        asked=Settings(
            max_num_batched_tokens=max_num_batched_tokens,
            long_prefill_token_threshold=long_prefill_token_threshold,
            max_num_seqs=max_num_seqs,
            kv_cache_dtype=dtype,
        ),
        vllm_version=vllm_version,
        policy=one_of(ChunkPolicy, policy, "policy"),
        sweep=sweep,
        find_rate=find_rate,
        timeline=timeline,
        requests=requests,
        arrivals=arrivals,
        concurrency=concurrency,
        max_output=max_output,
        output=None if output is None else as_lengths(output),
        samples=samples,
        samples_at_once=samples_at_once,
        together=together,
        e2e_timeout_s=e2e_timeout,
        slo=read_slo(slo),
    )
    if profile is not None or trace is None:
        profile = profile_of(plan, profile)
    return predict(
        Plan.load(plan),
        profile,
        options,
        calibration=calibration_in(several(calibration)),
        tick=tick,
    )


def verify(
    plan: "Plan | Name | None" = None,
    profile: "Profile | Name | Sequence[Profile | Name] | None" = None,
    *,
    model: str | None = None,
    endpoint: str | None = None,
    load_format: str = "auto",
    trust_remote_code: bool = False,
    engine_arg: str | Sequence[str] = (),
    timeout: float = 1_800,
    against: str | Sequence[str] | None = None,
    also: str | Sequence[str] = (),
    check_outputs: bool = False,
    requests: int = 200,
    repeats: int = 3,
    time_limit: float | None = None,
    arrivals: str | None = None,
    concurrency: int | None = None,
    max_output: int | None = None,
    output: "OutputLengths | str | int | None" = None,
    samples: int | None = None,
    samples_at_once: int | None = None,
    together: bool = False,
    e2e_timeout: float | None = None,
    data: str | Sequence[str] = (),
    slo: "str | Sequence[str] | Slo | None" = None,
    resume: "Verification | Name | None" = None,
    report: "Report | None" = None,
    command: Sequence[str] = (),
) -> "Verification":
    """Measure the plan on a real engine, or a running server at `endpoint`.

    A repeat is cut off after `time_limit` seconds. `report` says where the result is
    written and who hears of progress; `command` is what was typed, for the record.
    """
    from chunkscope.planning.plan import Plan
    from chunkscope.planning.request import as_lengths
    from chunkscope.simulation.slo import read_slo
    from chunkscope.verification.options import VerifyOptions
    from chunkscope.verification.settings import USUALLY, parse_engine_args
    from chunkscope.verification.verify import verify as measure
    from chunkscope.verification.verify import verify_endpoint

    options = VerifyOptions(
        model=model,
        load_format=load_format,
        trust_remote_code=trust_remote_code,
        engine_args=parse_engine_args(several(engine_arg)),
        timeout_s=timeout,
        against=USUALLY if against is None else several(against),
        also=several(also),
        check_outputs=check_outputs,
        requests=requests,
        repeats=repeats,
        time_limit_s=time_limit,
        arrivals=arrivals,
        concurrency=concurrency,
        max_output=max_output,
        output=None if output is None else as_lengths(output),
        samples=samples,
        samples_at_once=samples_at_once,
        together=together,
        e2e_timeout_s=e2e_timeout,
        data=several(data),
        slo=read_slo(slo),
        command=command,
    )
    profile = profile_of(plan, profile)
    plan = Plan.load(plan)
    if endpoint is not None:
        return verify_endpoint(endpoint, plan, profile, options, report)
    return measure(plan, profile, options, report, resume)


def prefix_sharing(profile: "Profile | Name | None" = None) -> "PrefixSummary":
    """How much of the prompts vLLM's prefix cache would serve."""
    from chunkscope.lengths.profile import Profile
    from chunkscope.report.prefixes import prefixes

    return prefixes(Profile.load(profile))


def write_report(folder: Name = "reports", *, out: Name | None = None) -> Path:
    """Write one HTML page of a folder's results. Returns its path."""
    from chunkscope.artefacts.files import write_atomically
    from chunkscope.findings import load_findings
    from chunkscope.report.page import render

    findings = load_findings(Path(folder))
    page = findings.folder / "report.html"
    if out is not None:
        page = Path(out)
    write_atomically(page, render(findings))
    return page


# -- what the commands are about -------------------------------------------------------


def one_text(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else (text,)


def chosen_tokenizer(model: Name | None, tokenizer: Name | None) -> str | None:
    """The name of the tokenizer: the model's own, or the one that was named."""
    if model is not None and tokenizer is not None:
        raise UsageError(
            "--model and --tokenizer cannot be used together", hint="leave one out"
        )
    if model is not None:
        return tokenizer_of(model)
    return None if tokenizer is None else str(tokenizer)


def calibration_in(files: Sequence[str]) -> "Calibration | None":
    """The measured step times of all files together; None without a file."""
    from chunkscope.hardware.calibration import Calibration, together

    if not files:
        return None
    return together([Calibration.load(Path(file)) for file in files])


def profile_of(
    plan: "Plan | Name | None",
    named: "Profile | Name | Sequence[Profile | Name] | None" = None,
) -> "Profile":
    """The named profiles joined, else the one that the plan was made from."""
    from chunkscope.lengths.profile import Profile, joined
    from chunkscope.planning.plan import Plan

    if named is not None:
        return joined(named)
    usual = Profile.default_path
    folder = usual.parent
    if isinstance(plan, str | os.PathLike):
        folder = Path(plan).parent
    plan = Plan.load(plan)
    for files in (plan.profile_files(folder), [folder / usual.name], [usual]):
        if not files or not all(file.exists() for file in files):
            continue
        profile = joined(files)
        if profile.digest() == plan.source.profile_digest:
            return profile
    raise InputError(
        "the profile that the plan was made from is not here",
        hint="name it with --profile, or run `chunkscope recommend` again",
    )


def tokenizer_of(model: Name) -> str:
    """A model's tokenizer: its folder or hub id."""
    from chunkscope.models.find import MODELS, built_in, suggestion

    name = str(model)
    path = Path(model).expanduser()
    if path.is_file():  # its config.json
        return str(path.parent)
    if path.exists():
        return name
    shape = built_in(name)
    if shape is not None:
        return shape.load_name
    if get_close_matches(name.lower(), MODELS, cutoff=0.8):
        raise MissingError(f"unknown model: {name}", hint=suggestion(name))
    return name
