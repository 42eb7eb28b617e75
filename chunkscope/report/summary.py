"""What stands on top of every report: the verdict, in sentences that all formats share."""

from collections.abc import Iterator
from dataclasses import dataclass

from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.numbers import gib, number, plural, spaced
from chunkscope.findings import Findings
from chunkscope.hardware.gpus import GIB
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.report import sentences
from chunkscope.report.answer import FinalAnswer, answer
from chunkscope.report.diagnosis_words import answer as diagnosis_answer
from chunkscope.report.words import sentence
from chunkscope.report.words import verdicts as words
from chunkscope.report.words.plan import advice
from chunkscope.verification.result import EngineKind, Run, Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`basis` is how the gains are known; None where there is no verdict yet.

    `overruled` says why the answer is not the plan's, by what was measured.
    """

    title: str
    headline: str
    why: tuple[str, ...] = ()
    gains: tuple[str, ...] = ()
    refused: str | None = None
    basis: Label | None = None
    basis_text: str = ""
    overruled: str | None = None
    answer: FinalAnswer | None = None  # None without a plan
    mixed: tuple[str, ...] = ()  # artefacts that are not of the same data
    cautions: tuple[str, ...] = ()

    @property
    def arguments(self) -> str:
        """Those to use: the plan's, or of what did better than it."""
        return sentences.arguments(self.answer.plan) if self.answer else ""


def summarize(findings: Findings) -> Summary:
    plan, verification = findings.plan, measurements(findings)
    basis = _basis(plan, verification)
    found = answer(plan, verification) if plan else None
    return Summary(
        title=_title(findings),
        headline=found.headline if found else _headline(findings),
        why=tuple(map(spaced, _why(plan))) if plan else (),
        gains=tuple(map(spaced, _gains(plan, verification))),
        refused=sentences.refused(plan) if plan else None,
        basis=basis,
        basis_text=_basis_text(plan, verification, basis),
        overruled=found.overruled if found else None,
        answer=found,
        mixed=tuple(_mixed(findings)),
        cautions=tuple(map(spaced, _cautions(findings))),
    )


# -- what it is about ----------------------------------------------------------------------------


def _title(findings: Findings) -> str:
    plan, verification = findings.plan, findings.verification
    if plan and plan.model:
        return f"{plan.model.name}{f' on {plan.gpu.title}' if plan.gpu else ''}"
    if verification:
        gpu = verification.machine.gpu if verification.machine else None
        return verification.model.name + (f" on {gpu}" if gpu else "")
    if findings.profile:
        return sentences.prompts(findings.profile)
    if findings.diagnosis and not findings.simulation:
        return "an engine that ran"
    return "simulation" if findings.simulation else "settings for vLLM"


def _headline(findings: Findings) -> str:
    verification, profile = findings.verification, findings.profile
    if verification:
        if verification.measured is EngineKind.DEMO:
            return words.demo(verification).rstrip(".")
        return words.verdict(verification).partition(": ")[0] or "Measured, without a plan to judge"
    if profile:
        lengths = profile.overall
        half, longest = number(lengths.percentile(50)), number(lengths.max)
        return f"Half of the prompts are at most {half} tokens long, the longest is {longest}"
    if findings.diagnosis and not findings.simulation:
        return diagnosis_answer(findings.diagnosis).rstrip(".")
    return "Simulated, without a plan to judge"


# -- why, and what it brings ---------------------------------------------------------------------


def _why(plan: Plan) -> Iterator[str]:
    yield advice(plan)
    yield sentences.length_rule(plan)
    yield sentences.chunks(plan.chunks)


def _gains(plan: Plan | None, verification: Verification | None) -> Iterator[str]:
    if verification is not None and verification.runs:
        yield from _measured_gains(verification)
    elif plan is not None:
        yield from _predicted_gains(plan)
    if plan is not None:
        yield from filter(None, (sentences.cost(plan), sentences.client(plan)))


def _measured_gains(verification: Verification) -> Iterator[str]:
    if verification.verdict:
        yield words.verdict(verification)
    mine = verification.run("plan") or verification.runs[0]
    is_compared = verification.verdict is not None  # with vLLM's default
    if not mine.ok:
        yield failure(mine)
    for name in ("default", "off"):
        other = verification.run(name)
        if other is mine:
            yield f"{mine.setting} and {name} are the same arguments here."
        elif other is not None and not other.ok:
            yield failure(other)
        elif other is not None and mine.ok and not (is_compared and name == "default"):
            yield words.comparison(mine, other)


def failure(run: Run) -> str:
    return f"{words.failure(run)}."


def _predicted_gains(plan: Plan) -> Iterator[str]:
    if plan.memory is None:
        yield "What it gains in memory is not known: the plan was made without a model and a GPU."
        return
    yield from _step_memory(plan)
    if (held := sentences.capacity(plan)) is not None:
        yield held
    if (simulated := sentences.forecast(plan)) is not None:
        yield simulated


def _step_memory(plan: Plan) -> Iterator[str]:
    """Activations are linear in a step's tokens, so a prompt that is split saves in proportion."""
    assert plan.memory is not None  # noqa: S101  (the caller asked)
    here = plan.memory.line("activation").gib
    longest, model = plan.decision.longest, plan.model
    whole = (
        longest * model.activation_bytes_per_token(plan.effective.parallel.tensor) / GIB
        if model
        else None
    )
    if whole is not None and whole > here:
        yield (
            f"A step's activations take {gib(here)}; reading the longest prompt ({longest:,} "
            f"tokens) in one step would take {gib(whole)}."
        )
    else:
        yield f"A step's activations take {gib(here)}, enough for every prompt in one step."


# -- how it is known -----------------------------------------------------------------------------


def measurements(findings: Findings) -> Verification | None:
    """Those of this plan: what was measured of another says nothing about it."""
    of_another = findings.verification_is_of_this_plan is False
    return None if of_another else findings.verification


def _basis(plan: Plan | None, verification: Verification | None) -> Label | None:
    if verification is not None and any(run.ok for run in verification.runs):
        return Label.MEASURED
    return Label.PREDICTED if plan else None


def _basis_text(plan: Plan | None, verification: Verification | None, basis: Label | None) -> str:
    if basis is Label.MEASURED and verification is not None:
        return measured_on(verification)
    if basis is Label.PREDICTED:
        by = "simulator" if plan and plan.advice.basis == "simulated" else "length policy"
        return f"by the memory model and the {by}; no engine has run it yet"
    return ""


def measured_on(verification: Verification) -> str:
    machine, workload = verification.machine, verification.workload
    where = "an engine"
    if machine is not None:
        several = f"{machine.gpus} x " if machine.gpus > 1 else ""
        where = several + (machine.gpu or machine.endpoint or machine.device)
    engine = f", vLLM {machine.vllm}" if machine and machine.vllm else ""
    weights = ", dummy weights" if verification.model.dummy else ""
    sent = f"{plural(len(workload.requests), 'request')} x {verification.repeats}"
    return f"on {where}{engine}{weights}, {sent}"


def _mixed(findings: Findings) -> Iterator[str]:
    """Artefacts that do not belong together: the page would compare what cannot be compared."""
    if findings.plan_is_of_this_profile is False:
        yield "The plan was made from another profile than this one: run `chunkscope recommend`."
    if findings.verification_is_of_this_plan is False:
        yield "The measurements belong to another plan than this one: run `chunkscope verify`."
    if findings.simulation_is_of_this_profile is False:
        yield "The simulation ran the requests of another profile: run `chunkscope simulate`."


def _cautions(findings: Findings) -> Iterator[str]:
    if findings.profile is not None:
        yield from _bad_data(findings.profile)
    if findings.plan is not None:
        yield from map(sentence, findings.plan.notes)


def _bad_data(profile: Profile) -> Iterator[str]:
    if profile.skipped:
        yield f"Left out, because they could not be used: {plural(profile.skipped, 'row')}."
    for dataset in profile.failures:
        yield f"{dataset.name} was not read to its end: {dataset.failed_because}"
    sampled = [dataset for dataset in profile.datasets if dataset.sample]
    if sampled:
        yield f"Only a sample was counted of {plural(len(sampled), 'dataset')}."
