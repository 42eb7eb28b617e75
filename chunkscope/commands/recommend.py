"""`chunkscope recommend`."""

import gc
from dataclasses import replace
from pathlib import Path

from chunkscope import console
from chunkscope.commands import api
from chunkscope.commands import options as opt
from chunkscope.commands.options import LIMITS, MACHINE, OUTPUT, PLAN, PROFILE, WORKLOAD
from chunkscope.errors import UsageError
from chunkscope.vllm.enums import Entry, KvCacheType, Mode, Target, Task


def recommend(
    profiles: list[Path] | None = opt.argument(
        "[PROFILE]...",
        f"From `chunkscope analyze`; several are planned as one run. [default: {PROFILE}]",
    ),
    model: str | None = opt.MODEL,
    gpu: str | None = opt.GPU,
    tp: int | None = opt.TP,
    dp: int | None = opt.DP,
    ep: bool = opt.EP,
    kv_cache_dtype: KvCacheType | None = opt.KV_CACHE,
    max_model_len: int | None = MACHINE(
        "Context. [default: the model's, if it fits]", "N", min=1
    ),
    vllm_version: str | None = opt.VLLM_VERSION,
    entry: Entry | None = MACHINE(
        "How vLLM starts, for its defaults. [default: as --emit needs]"
    ),
    task: Task | None = WORKLOAD(
        "Generate answers or score choices. [default: as in the data]"
    ),
    max_output: list[str] | None = WORKLOAD(
        "Tokens per answer; NAME=N for one dataset. [default: from the data, else 256]",
        "N",
    ),
    arrivals: str | None = opt.ARRIVALS,
    concurrency: int | None = opt.CONCURRENCY,
    slo: str | None = opt.SLO,
    mode: Mode | None = LIMITS("Follow the length rule, in this mode."),
    log: Path | None = LIMITS(
        "vLLM's log on this GPU: use its measured memory, not the predicted.", "FILE"
    ),
    emit: Target | None = OUTPUT(
        f"Print only the arguments, as: {', '.join(Target)}.", "FORM"
    ),
    anyway: bool = OUTPUT("Emit even if no setting keeps the limits.", default=False),
    check: bool = OUTPUT(
        "Ask the installed vLLM to check the arguments.", default=False
    ),
    details: bool = opt.DETAILS,
    json: bool = opt.JSON,
    output: Path = opt.output(PLAN),
) -> None:
    """Which vLLM settings to use for this data, model and GPU.

    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope recommend --model llama-3.1-8b --gpu h200
    """
    given = locals()
    from chunkscope.planning.emit import emit as emitted
    from chunkscope.planning.recommend import recommend as run
    from chunkscope.planning.request import PlanRequest
    from chunkscope.report.notes import sentence, sentences
    from chunkscope.report.plan import headline, next_command
    from chunkscope.vllm import check as vllm

    options = opt.settled(recommend, given, run, PlanRequest.of, PlanRequest)
    files = options.pop("profiles", None) or [PROFILE]
    if check and "vllm_version" not in options:
        options["vllm_version"] = vllm.version_in(
            vllm.vllm_python()
        )  # it will check the arguments
    needed = emit.entry if emit not in (None, Target.JSON) else options.get("entry")
    if options.setdefault("entry", needed) != needed:
        raise UsageError(
            f"--emit {emit} is for --entry {needed}, not {options['entry']}: their defaults differ",
            hint="leave --entry out",
        )
    gc.disable()  # a sixth of the time: many objects, no cycles
    with console.simulating() as tick:
        plan = api.recommend(files, tick=tick, **options)
    source = replace(
        plan.source, command=console.command(), profiles=tuple(map(str, files))
    )
    plan = replace(plan, source=source)
    if check:
        version = vllm.check(plan.deployment, plan.settings, python=vllm.vllm_python())
        opt.tell("vllm_accepts", version=version)
    if emit is None:
        after = next_command(plan, opt.quoted(output, usual=PLAN))
        return opt.finish(plan, output, details=details, json=json, after=after)
    emission = emitted(
        plan, emit, anyway=anyway
    )  # an error if no setting keeps the limits
    plan.save(output)
    above = [f"# {sentence(emission.comment)}"] if emission.comment else []
    console.emit("\n".join((*above, emission.text.rstrip("\n"), "")).encode())
    # Why no flag is printed, or that what is printed rests on lengths alone.
    explains = not plan.settings.given() or plan.advice.basis == "lengths"
    nothing = [headline(plan)] if explains else []
    for note in (*nothing, *sentences((*emission.notes, *plan.notes))):
        console.say(f"note: {note}")
    return opt.tell("wrote", file=output)
