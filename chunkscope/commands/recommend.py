"""`chunkscope recommend`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands.options import (
    LIMITS,
    MACHINE,
    OUTPUT,
    PLAN,
    PROFILE,
    WORKLOAD,
    Arrivals,
    Concurrency,
    Details,
    Dp,
    E2eTimeout,
    Ep,
    Gpu,
    Json,
    KvCacheDtype,
    MaxOutput,
    Model,
    Order,
    Out,
    Output,
    OutputFrom,
    Requests,
    Samples,
    SamplesAtOnce,
    Slo,
    Together,
    Tp,
    VllmVersion,
    argument,
    option,
)
from chunkscope.commands.printing import (
    command_line,
    say_written,
    show,
    unless_usual,
)
from chunkscope.errors import UsageError
from chunkscope.vllm.enums import Entry, KvCacheType, Mode, Target, Task

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan


def recommend(
    profiles: Annotated[
        list[Path] | None,
        argument(
            "[PROFILE]...",
            "From `chunkscope analyze`; several are planned as one run. [default: "
            "reports/profile.json]",
        ),
    ] = None,
    model: Model = None,
    gpu: Gpu = None,
    tp: Tp = 1,
    dp: Dp = 1,
    ep: Ep = False,
    kv_cache_dtype: KvCacheDtype = None,
    max_model_len: Annotated[
        int | None,
        option(
            MACHINE,
            "Longest context. [default: the model's, if it fits]",
            "--max-model-len",
            metavar="N",
            min=1,
        ),
    ] = None,
    vllm_version: VllmVersion = None,
    entry: Annotated[
        Entry | None,
        option(
            MACHINE,
            "How you start vLLM; its defaults differ between `vllm serve` and "
            "`LLM(...)`. [default: as --emit needs]",
            "--entry",
        ),
    ] = None,
    task: Annotated[
        Task | None,
        option(
            WORKLOAD,
            "Generate answers or score choices. [default: as in the data]",
            "--task",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        option(WORKLOAD, "Plan for this dataset alone.", "--dataset", metavar="NAME"),
    ] = None,
    max_output: MaxOutput = None,
    output: Output = None,
    output_from: OutputFrom = None,
    samples: Samples = None,
    samples_at_once: SamplesAtOnce = None,
    together: Together = False,
    e2e_timeout: E2eTimeout = None,
    order: Order = None,
    arrivals: Arrivals = None,
    concurrency: Concurrency = None,
    requests: Requests = None,
    slo: Slo = None,
    mode: Annotated[
        Mode | None,
        option(LIMITS, "Force this chunked-prefill mode.", "--mode"),
    ] = None,
    log: Annotated[
        Path | None,
        option(
            LIMITS,
            "vLLM's log on this GPU; the memory it measured replaces the predicted "
            "one.",
            "--log",
            metavar="FILE",
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        option(
            OUTPUT,
            "Price of one GPU; adds the price of the run to the answer.",
            "--price-per-hour",
            metavar="PRICE",
        ),
    ] = None,
    emit: Annotated[
        Target | None,
        option(
            OUTPUT,
            f"Print only the arguments, as: {', '.join(Target)}.",
            "--emit",
            metavar="FORM",
        ),
    ] = None,
    anyway: Annotated[
        bool,
        option(
            OUTPUT, "Emit arguments even if no setting keeps the limits.", "--anyway"
        ),
    ] = False,
    check: Annotated[
        bool,
        option(OUTPUT, "Ask the installed vLLM to check the arguments.", "--check"),
    ] = False,
    details: Details = False,
    json: Json = False,
    out: Out = PLAN,
) -> None:
    """Recommend vLLM settings for this data, model and GPU.

    Example: chunkscope recommend --model llama-3.1-8b --gpu h200
    """
    from chunkscope.vllm import check as vllm

    files = profiles or [PROFILE]
    if check and vllm_version is None:  # it will check the arguments
        vllm_version = vllm.version_in(vllm.vllm_python())
    with console.simulating() as tick:
        plan = api.recommend(
            files,
            model=model,
            gpu=gpu,
            tp=tp,
            dp=dp,
            ep=ep,
            kv_cache_dtype=kv_cache_dtype or KvCacheType.AUTO,
            max_model_len=max_model_len,
            vllm_version=vllm_version,
            entry=entry_for(emit, entry),
            task=task,
            dataset=dataset,
            max_output=max_output,
            output=output,
            output_from=output_from,
            samples=samples,
            samples_at_once=samples_at_once,
            together=together,
            e2e_timeout=e2e_timeout,
            order=order,
            arrivals=arrivals,
            concurrency=concurrency,
            requests=requests,
            slo=slo,
            mode=mode,
            log=log,
            price_per_hour=price_per_hour,
            tick=tick,
        )
    names = tuple(str(file) for file in files)
    source = replace(plan.source, command=console.command(), profiles=names)
    plan = replace(plan, source=source)
    if check:
        python = vllm.vllm_python()
        version = vllm.check(plan.deployment, plan.settings, python=python)
        console.say(f"vLLM {version} accepts these arguments")
    if emit is None:
        plan.save(out)
        show(plan, details=details, json=json)
        say_written(out, then=next_command(plan, out))
    else:
        emit_plan(plan, emit, out, anyway=anyway)


def entry_for(emit: Target | None, entry: Entry | None) -> Entry | None:
    """Who starts the engine that the emitted arguments are for."""
    if emit is None or emit is Target.JSON:
        return entry
    if entry not in (None, emit.entry):
        raise UsageError(
            f"--emit {emit} is for --entry {emit.entry}, not {entry}: their defaults "
            "differ",
            hint="leave --entry out",
        )
    return emit.entry


def emit_plan(plan: "Plan", target: Target, out: Path, *, anyway: bool) -> None:
    """Print the arguments alone; what is worth saying goes to stderr."""
    from chunkscope.planning.emit import emit
    from chunkscope.report.notes import sentence, sentences
    from chunkscope.report.show import headline

    emission = emit(plan, target, anyway=anyway)  # fails if no setting keeps the limits
    plan.save(out)
    text = emission.text.rstrip("\n") + "\n"
    if emission.comment is not None:
        text = f"# {sentence(emission.comment)}\n{text}"
    console.emit(text.encode())
    notes = [*sentences(emission.notes), *sentences(plan.notes)]
    if not plan.settings.given() or plan.advice.basis == "lengths":
        # Why no flag is printed, or that it rests on lengths alone.
        notes.insert(0, headline(plan))
    for note in notes:
        console.say(f"note: {note}")
    say_written(out)


def next_command(plan: "Plan", out: Path) -> str:
    """The command that usually comes next; "" where nobody can know it."""
    from chunkscope.planning.plan import AdviceKind

    file = unless_usual(out, PLAN)
    if plan.advice.kind is AdviceKind.NO_SETTING:
        if plan.advice.rate:
            return command_line("simulate", *file, "--find-rate")
        return ""
    if plan.model is None or plan.gpu is None:
        return command_for_names(plan)
    if plan.deployment.entry is not Entry.SERVE:
        return command_line("verify", *file)
    words = ["vllm", "serve", plan.model.load_name]
    if plan.settings.given():
        words += plan.cli_args()
    return shlex.join(words)


def command_for_names(plan: "Plan") -> str:
    """What lists the names of what was missing to simulate."""
    if plan.model is None:
        return "chunkscope models"
    return "chunkscope gpus"
