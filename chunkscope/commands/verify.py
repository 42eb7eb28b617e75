"""`chunkscope verify`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from chunkscope import console
from chunkscope.commands import options as shared
from chunkscope.commands.options import options
from chunkscope.errors import EngineError, InputError

if TYPE_CHECKING:
    from chunkscope.lengths.profile import Profile
    from chunkscope.planning.plan import Plan
    from chunkscope.verification.result import Run, Verification
    from chunkscope.verification.run_settings import Report
    from chunkscope.verification.verify import VerifyOptions

HINTS = {
    "out_of_memory": "choose a smaller setting: `chunkscope recommend` with the right --gpu",
    "timeout": "set a longer timeout in chunkscope.toml ([verify]), or send fewer --requests",
    "refused": "ask `chunkscope recommend --check` whether vLLM accepts the arguments",
    "died": "the log beside the artefact says more",
}


OPTIONS = options("""
Engine:
  --model -m NAME          Folder, hub id or built-in name. [default: the plan's]
  --endpoint URL           Measure a running server.
  --load-format NAME       dummy: random weights; a config.json is enough.
  --engine-arg NAME=VALUE  For every engine, such as dtype=float32; repeatable.
  --trust-remote-code      Let vLLM run the model's own code.
What to compare:
  --against LIST           Of default, off, length-rule, conservative, aggressive; none: only the
                           plan. [default: default,off,length-rule]
  --also ARG=N             One more setting, such as max-num-batched-tokens=4096; repeatable.
  --check-outputs          Compare the answers of all settings, too.
Workload:
  --requests N             Per repeat. [default: 200]
  --repeats N              [default: 3]
  --data PATH              Send this data's prompts. [default: random tokens of the same lengths]
Output:
  --resume                 Keep what was measured already.
""")


def verify(
    plan: shared.PlanFile = shared.PLAN,
    profile: shared.ProfileFiles = None,
    model: Annotated[str | None, OPTIONS["model"]] = None,
    endpoint: Annotated[str | None, OPTIONS["endpoint"]] = None,
    load_format: Annotated[str | None, OPTIONS["load_format"]] = None,
    engine_arg: Annotated[list[str] | None, OPTIONS["engine_arg"]] = None,
    trust_remote_code: Annotated[bool, OPTIONS["trust_remote_code"]] = False,
    against: Annotated[str, OPTIONS["against"]] = "default,off,length-rule",
    also: Annotated[list[str] | None, OPTIONS["also"]] = None,
    check_outputs: Annotated[bool, OPTIONS["check_outputs"]] = False,
    requests: Annotated[int | None, OPTIONS["requests"]] = None,
    repeats: Annotated[int | None, OPTIONS["repeats"]] = None,
    arrivals: shared.Arrivals = None,
    concurrency: shared.Concurrency = None,
    max_output: shared.MaxOutput = None,
    data: Annotated[list[str] | None, OPTIONS["data"]] = None,
    slo: shared.Slo = None,
    resume: Annotated[bool, OPTIONS["resume"]] = False,
    details: shared.Details = False,
    as_json: shared.Json = False,
    output: shared.Output = shared.VERIFY,
    quiet: shared.Quiet = False,
) -> None:
    """Measure the plan on a real vLLM: memory, latency, throughput.

    More options, for a chunkscope.toml: chunkscope help config

    Example: chunkscope verify --model llama-3.1-8b --load-format dummy
    """
    given = locals()
    from chunkscope.lengths.profile import load_profiles
    from chunkscope.planning.plan import Plan
    from chunkscope.simulation.slo import read_slo
    from chunkscope.verification.run_settings import Report
    from chunkscope.verification.settings import parse_engine_args
    from chunkscope.verification.verify import VerifyOptions, verify_endpoint

    given |= {
        "against": tuple(name for name in against.split(",") if name not in ("", "none")),
        "slo": read_slo(slo) or None,
        "engine_args": parse_engine_args(engine_arg) if engine_arg else None,
        "command": console.command(),
    }
    chosen = shared.settled(VerifyOptions, "verify", given)
    shared.refuse_data((plan,), "plan", "chunkscope recommend")
    planned = Plan.load(plan)
    counted = load_profiles(shared.profiles_for(plan, planned, profile))
    with console.progress(quiet=quiet) as listener:
        report = Report(output=output, listener=listener, on_failure=_tell_failure)
        if endpoint is not None:
            verification = verify_endpoint(
                endpoint, planned, counted, model=model, options=chosen, report=report
            )
        else:
            verification = _launch(planned, counted, model, chosen, report, resume=resume)
    shared.show(verification, as_json=as_json, details=details)
    for note in _doubts(planned, counted, verification, model):
        console.say(f"note: {note}")
    folder = "" if output.parent == shared.REPORTS else shared.quoted(output.parent)
    console.say(f"\nwrote {output}; next: chunkscope report{folder}")
    first = verification.runs[0]
    if not first.ok:  # another row that fails is a result; the plan, or all there is, must run
        from chunkscope.report.words.verdicts import failure

        raise EngineError(failure(first), hint=HINTS[first.status.value])


def _launch(
    plan: "Plan",
    profile: "Profile",
    model: str | None,
    options: "VerifyOptions",
    report: "Report",
    *,
    resume: bool,
) -> "Verification":
    from chunkscope.verification.result import Verification
    from chunkscope.verification.verify import verify

    output = report.output
    earlier = Verification.load(output) if resume and output.exists() else None
    try:
        return verify(plan, profile, model=model, options=options, report=report, resume=earlier)
    except KeyboardInterrupt:
        _tell_what_is_kept(output)
        raise


def _tell_what_is_kept(output: Path) -> None:
    from chunkscope.verification.result import Verification

    try:
        rows = len(Verification.load(output).runs)
    except InputError:
        return
    if rows:
        again = shlex.join(word for word in sys.argv[1:] if word != "--resume")
        console.say(
            f"\n{rows} measured rows are in {output}; go on with: chunkscope {again} --resume"
        )


def _tell_failure(run: "Run", log: str) -> None:
    from chunkscope.report.words.verdicts import failure
    from chunkscope.vllm.log.failures import last_lines

    console.say(failure(run))
    for line in last_lines(log):
        console.say(f"  | {line}")
    if run.log:
        console.say(f"  (the end of {run.log})")


def _doubts(
    plan: "Plan", profile: "Profile", verification: "Verification", model: str | None
) -> list[str]:
    """Where the plan was made for something else than what it was measured on."""
    from chunkscope.models.find import built_in, find_model
    from chunkscope.planning.tokenizer_match import tokenizer_note
    from chunkscope.report.words import measured as words
    from chunkscope.report.words import sentence

    notes = list(words.measured_elsewhere(plan, verification))
    if model is None or (plan.model and model in (plan.model.name, plan.model.load_name)):
        return notes  # `recommend` said it of the plan's own model
    # A server may call it anything: nobody is asked over the network.
    shape = find_model(model) if (Path(model) / "config.json").is_file() else built_in(model)
    doubt = tokenizer_note(profile.tokenizer, shape) if shape else None
    return [*notes, *([sentence(doubt)] if doubt else [])]
