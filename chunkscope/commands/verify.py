"""`chunkscope verify`."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.errors import EngineError, InputError, UsageError
from chunkscope.vllm.choices import Task

if TYPE_CHECKING:
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import Plan
    from chunkscope.verification.engine_run import Measured
    from chunkscope.verification.result import Verification
    from chunkscope.verification.rows import Report
    from chunkscope.verification.verify import VerifyOptions


def verify(
    plan: shared.PlanFile = shared.PLAN,
    profile: shared.ProfileFiles = None,
    model: Annotated[
        str | None,
        shared.model_option("Folder, hub id or built-in name. [default: the plan's]"),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Of default, off, length-policy, conservative, aggressive; or none.",
        ),
    ] = "default,off,length-policy",
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARG=N", help="One more setting, such as max-num-batched-tokens=4096."
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="SETTING", help="Just this one: `--only plan`.")
    ] = None,
    requests: Annotated[int, typer.Option(metavar="N", help="Requests in one repeat.")] = 200,
    repeats: Annotated[int, typer.Option(metavar="N", help="How often all are sent.")] = 3,
    arrivals: Annotated[
        str, typer.Option(metavar="WHEN", help="batch (all at once), or a rate such as 4/s.")
    ] = "batch",
    concurrency: shared.Concurrency = None,
    slo: shared.Limits = None,
    check_outputs: Annotated[
        bool,
        typer.Option("--check-outputs", help="Are answers the same in every setting, and again?"),
    ] = False,
    max_output: shared.MaxOutput = None,
    task: Annotated[
        Task | None, typer.Option(help="What is asked of the model. [default: the plan's]")
    ] = None,
    shared_prefix: Annotated[
        int | None,
        typer.Option(metavar="N", help="First tokens all prompts share. [default: as counted]"),
    ] = None,
    order: shared.SentIn = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Send real prompts of this data. [default: random ids]"),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="NAME", help="For --data. [default: the profile's]")
    ] = None,
    seed: shared.Seed = 0,
    load_format: Annotated[
        str, typer.Option(metavar="NAME", help="dummy: no weights needed, config.json will do.")
    ] = "auto",
    fixed_kv_cache: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The same KV cache in every setting, such as 8GiB."),
    ] = None,
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="No compilation: faster start, slower steps.")
    ] = False,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="For every engine, such as dtype=float32."),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let vLLM run the model's own code.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds without a sign of life: then it is ended.")
    ] = 1800,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Measure a server that is already running.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the rows that are measured already.")
    ] = False,
    as_json: shared.Json = False,
    quiet: shared.Quiet = False,
    output: shared.Output = shared.VERIFY,
    _shared_cache: shared.SharedCache = None,
) -> None:
    """Measure the plan on a real vLLM: memory, latency, throughput.

    Example: chunkscope verify --model llama-3.1-8b --load-format dummy
    """
    from chunkscope.hardware.gpus import parse_memory
    from chunkscope.lengths.profile import load_profiles
    from chunkscope.planning.plan import Plan
    from chunkscope.simulation.slo import read_slo
    from chunkscope.verification.endpoint.server import key_for
    from chunkscope.verification.rows import Report
    from chunkscope.verification.settings import parse_engine_args
    from chunkscope.verification.verify import VerifyOptions, verify_endpoint

    options = VerifyOptions(
        against=_chosen(against, only),
        also=tuple(also or ()) if only is None else (),
        requests=requests,
        seed=seed,
        arrivals=arrivals,
        concurrency=concurrency,
        slo=read_slo(slo),
        task=task,
        max_output=max_output,
        shared_prefix=shared_prefix,
        order=order,
        check_outputs=check_outputs,
        repeats=repeats,
        timeout_s=timeout,
        load_format=load_format,
        fixed_kv_cache=parse_memory(fixed_kv_cache) if fixed_kv_cache else None,
        enforce_eager=enforce_eager,
        engine_args=parse_engine_args(engine_arg or ()),
        trust_remote_code=trust_remote_code,
        data=tuple(data or ()),
        tokenizer=tokenizer,
        command=console.command(),
    )
    shared.refuse_data((plan,), "plan", "chunkscope recommend")
    made = Plan.load(plan)
    loaded = made, load_profiles(shared.profiles_for(plan, made, profile))
    with console.verify_progress(quiet=quiet) as listener:
        report = Report(output=output, listener=listener, on_failure=_tell_failure)
        if endpoint is not None:
            verification = verify_endpoint(
                endpoint,
                *loaded,
                model=model,
                key=key_for(endpoint),
                options=options,
                report=report,
            )
        else:
            verification = _launch(*loaded, model, options, report, resume=resume)
    _show(verification, as_json=as_json)
    for line in (*_doubts(loaded[0], verification), *_other_tokenizer(*loaded, model)):
        console.say(f"note: {line}")
    folder = "" if output.parent == shared.REPORTS else f" {shlex.quote(str(output.parent))}"
    console.say(f"\nwrote {output}; next: chunkscope report{folder}")
    _fail_if_the_plan_failed(verification)


def _chosen(against: str, only: str | None) -> tuple[str, ...]:
    if only is not None:
        if only != "plan":
            raise UsageError(
                f"--only {only!r}: only the plan can be measured alone",
                hint="write `--only plan`, or choose what it is compared to with --against",
            )
        return ()
    names = (name.strip() for name in against.split(","))
    return tuple(name for name in names if name and name != "none")


def _launch(
    plan: "Plan",
    profile: "Profile",
    model: str | None,
    options: "VerifyOptions",
    report: "Report",
    *,
    resume: bool,
) -> "Verification":
    from chunkscope.verification.verify import verify

    earlier = _earlier(report.output) if resume else None
    try:
        return verify(plan, profile, model=model, options=options, report=report, resume=earlier)
    except KeyboardInterrupt:
        _tell_what_is_kept(report.output)
        raise


def _earlier(output: Path) -> "Verification | None":
    from chunkscope.verification.result import Verification

    return Verification.load(output) if output.exists() else None


def _tell_what_is_kept(output: Path) -> None:
    try:
        earlier = _earlier(output)
    except InputError:
        return
    rows = len(earlier.runs) if earlier else 0
    if rows:
        again = shlex.join(word for word in sys.argv[1:] if word != "--resume")
        console.say(
            f"\n{rows} measured rows are in {output}; go on with: chunkscope {again} --resume"
        )


def _tell_failure(measured: "Measured") -> None:
    run = measured.run
    console.say(f"{run.setting}: {run.message}")
    for line in measured.last_lines:
        console.say(f"  | {line}")
    if run.log:
        console.say(f"  (the end of {run.log})")


def _show(verification: "Verification", *, as_json: bool) -> None:
    if as_json:
        from chunkscope.artefacts.codec import dump

        console.emit(dump(verification.to_json()))
        return
    from chunkscope.report.terminal.verification import show_verification

    console.show(lambda out: show_verification(verification, out))


def _doubts(plan: "Plan", verification: "Verification") -> Iterator[str]:
    """Where the plan was made for something else than what it was measured on."""
    machine = verification.machine
    if machine is None:
        return
    planned, ran = plan.release.text.split(".")[:2], (machine.vllm or "").split(".")[:2]
    if machine.vllm and planned != ran:
        yield (
            f"the plan was made for vLLM {plan.release.text}, this is {machine.vllm}: plan for it "
            f"with `chunkscope recommend --vllm-version {machine.vllm}`"
        )
    if machine.gpu and plan.gpu and plan.gpu.title != machine.gpu:
        yield (
            f"the plan was made for {plan.gpu.title}, this is {machine.gpu}: its memory and "
            "defaults differ"
        )


def _other_tokenizer(plan: "Plan", profile: "Profile", model: str | None) -> Iterator[str]:
    """Of the plan's own model `recommend` said it."""
    from chunkscope.models.find import built_in, find_model
    from chunkscope.planning.tokenizer_match import tokenizer_doubt

    if model is None or (plan.model and model in (plan.model.name, plan.model.load_name)):
        return
    # A server may call it anything: nobody is asked over the network.
    shape = find_model(model) if (Path(model) / "config.json").is_file() else built_in(model)
    if shape and (doubt := tokenizer_doubt(profile.tokenizer, shape)):
        yield doubt


def _fail_if_the_plan_failed(verification: "Verification") -> None:
    """Another row that fails is a result; the plan, or all there is, must run."""
    first = verification.runs[0]
    if not first.ok:
        raise EngineError(f"{first.setting}: {first.message}", hint=_hint(first.status.value))


def _hint(status: str) -> str:
    return {
        "out_of_memory": "choose a smaller setting: `chunkscope recommend` with the right --gpu",
        "timeout": "allow more with --timeout, or send fewer --requests",
        "refused": "ask `chunkscope recommend --check` whether vLLM accepts the arguments",
        "died": "the log beside the artefact says more",
    }[status]
