"""The same workload, sent to a server that is already running."""

from pathlib import Path

from chunkscope.console import VerifyProgress
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.recommend import profile_digest
from chunkscope.verification.endpoint import measure_endpoint
from chunkscope.verification.result import Verification
from chunkscope.verification.verify import RANDOM, VerifyOptions, check_options, workload_for


def verify_endpoint(
    url: str,
    plan: Plan,
    profile: Profile,
    *,
    model: str | None = None,
    key: str | None = None,
    options: VerifyOptions | None = None,
    output: Path = Verification.default_path,
    listener: VerifyProgress | None = None,
) -> Verification:
    """One row: the server as it is. The key is sent to it and kept nowhere."""
    options = options or VerifyOptions()
    check_options(options)
    workload, prompts = workload_for(plan, profile, options)
    machine, subject, run = measure_endpoint(
        url,
        workload,
        repeats=options.repeats,
        model=model,
        key=key,
        prompts=prompts,
        timeout_s=options.timeout_s,
        listener=listener or VerifyProgress(),
    )
    verification = Verification(
        model=subject,
        workload=workload,
        source=prompts.source if prompts else RANDOM,
        repeats=options.repeats,
        runs=(run,),
        machine=machine,
        plan_digest=plan.digest(),
        profile_digest=profile_digest(profile),
        command=tuple(options.command),
    )
    verification.save(output)
    return verification
