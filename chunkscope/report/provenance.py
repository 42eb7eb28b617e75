"""Where the numbers come from: digests, versions, commands, machines."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from chunkscope.artefacts.artefact import Artefact
from chunkscope.artefacts.numbers import plural
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.findings import Findings
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.report.words.verdicts import prompts_sent
from chunkscope.simulation.result import Simulation
from chunkscope.verification.result import Machine, Verification

Fact = tuple[str, str]  # what it is about, and what is said
UNKNOWN = "not recorded"
UNDATED = "undated (it follows from the others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """One artefact, and what it says of itself."""

    file: str
    sha256: str
    created: str
    version: str
    facts: tuple[Fact, ...]


def origins(findings: Findings) -> tuple[Origin, ...]:
    told: tuple[tuple[Artefact | None, Callable[[Any], Iterator[Fact]]], ...] = (
        (findings.profile, _of_profile),
        (findings.plan, _of_plan),
        (findings.simulation, _of_simulation),
        (findings.verification, _of_verification),
        (findings.diagnosis, _of_diagnosis),
    )
    return tuple(
        Origin(
            file=artefact.default_path.name,
            sha256=findings.digests.get(artefact.default_path.name, UNKNOWN),
            created=getattr(artefact, "created", UNDATED),
            version=artefact.version or UNKNOWN,
            facts=tuple(facts(artefact)),
        )
        for artefact, facts in told
        if artefact is not None
    )


def _of_diagnosis(found: Diagnosis) -> Iterator[Fact]:
    yield from (("read", source) for source in dict.fromkeys(e.source for e in found.engines))
    yield "lines", f"{found.lines:,}, {found.understood:,} of them understood"
    yield from (("note", note) for note in found.notes)


def _of_profile(profile: Profile) -> Iterator[Fact]:
    tokenizer = profile.tokenizer
    options = dict(profile.options)
    if command := options.pop("command", None):
        yield "command", _written(command)
    yield "tokenizer", tokenizer.name
    yield "tokenizer digest", tokenizer.digest
    yield "counted by", tokenizer.engine
    yield from (("note", note) for note in tokenizer.notes)
    given = {name: value for name, value in options.items() if value not in (None, [], "")}
    yield from ((f"option {name}", _written(value)) for name, value in given.items())


def _written(value: Any) -> str:
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value)


def _of_plan(plan: Plan) -> Iterator[Fact]:
    request, source = plan.request, plan.source
    if source.command:
        yield "command", shlex.join(source.command)
    yield "for vLLM", plan.release.text
    if plan.model is not None:
        yield "model", f"{plan.model.load_name} ({plan.model.source})"
    if plan.gpu is not None:
        many = plan.effective.parallel.gpus
        each = f"{many} x " if many > 1 else ""
        yield "GPU", f"{each}{plan.gpu.title}, {plan.gpu.memory_gib:,.1f} GiB ({plan.gpu.source})"
    yield "from the profile", source.profile_digest
    yield from ((f"with {profile.path}", profile.sha256) for profile in source.profiles)
    if request.dataset is not None:
        yield "for the dataset", request.dataset
    yield "aim", f"{request.aim}, {request.task}, started by {plan.deployment.entry}"
    yield "answer", f"{plural(plan.output.tokens, 'token')}: {plan.output.origin}"
    rule = request.rule
    yield (
        "cut-offs",
        f"off below {rule.off_below:,}, conservative below {rule.conservative_threshold:,}, "
        f"aggressive at {rule.aggressive_factor:g} x p95",
    )


def _of_simulation(simulation: Simulation) -> Iterator[Fact]:
    if simulation.command:
        yield "command", shlex.join(simulation.command)
    yield "for vLLM", simulation.vllm
    yield "step times", simulation.cost_model.step.origin
    said = {name: value for name, value in asdict(simulation.workload).items() if value is not None}
    if digest := said.pop("profile_digest", None):
        yield "from the profile", digest
    told = (f"{name.replace('_', ' ')} {value}" for name, value in said.items())
    yield "workload", ", ".join(told)


def _of_verification(verification: Verification) -> Iterator[Fact]:
    machine, workload = verification.machine, verification.workload
    if verification.command:
        yield "command", shlex.join(verification.command)
    weights = "random weights" if verification.model.dummy else verification.model.load_format
    yield "model", f"{verification.model.name} ({weights})"
    if machine is not None:
        yield from _of_machine(machine)
    arrivals = "all at once" if workload.arrivals == "batch" else workload.arrivals
    yield (
        "workload",
        f"{plural(len(workload.requests), 'request')}, {workload.input_tokens:,} tokens in and "
        f"{workload.output_tokens:,} out, {arrivals}, {workload.task}, seed {workload.seed}",
    )
    yield "prompts", prompts_sent(verification.source)
    yield "repeats", str(verification.repeats)
    yield "from the plan", verification.plan_digest or UNKNOWN


def _of_machine(machine: Machine) -> Iterator[Fact]:
    memory = f", {machine.gpu_memory_gib:,.1f} GiB" if machine.gpu_memory_gib else ""
    if machine.gpu:
        yield "GPU", f"{max(1, machine.gpus)} x {machine.gpu}{memory}"
    elif machine.endpoint:
        yield "endpoint", machine.endpoint
    else:
        yield "device", machine.device
    for name, value in (
        ("driver", machine.driver),
        ("vLLM", machine.vllm),
        ("torch", machine.torch),
    ):
        if value:
            yield name, value
