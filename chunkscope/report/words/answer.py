"""What is said of all results together: the first screen of a report."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import duration, plural, share
from chunkscope.planning.plan import AdviceKind, Basis, Plan
from chunkscope.report.words import data, doctor, plan, sentence, simulation
from chunkscope.report.words import verdicts as measured
from chunkscope.verification.result import Conclusion, EngineKind, Verification
from chunkscope.vllm.settings import Settings

if TYPE_CHECKING:
    from chunkscope.findings import Findings

GLOSSARY = (
    ("token", "a piece of text, on average about four characters; models read and write tokens"),
    ("prefill", "reading a prompt, before the first token of the answer"),
    ("step", "one pass of the model, over tokens of many requests at once"),
    ("chunk", "the part of a long prompt that is read in one step"),
    ("KV cache", "GPU memory for what the model keeps of each token while a request runs"),
    ("preemption", "the KV cache is full: a request is stopped, and computed again later"),
    ("first token, gap", "how long a request waits for its first token, and between two tokens"),
    ("p95", "19 of 20 are at most this long"),
)


def measurements(findings: "Findings") -> Verification | None:
    """Those of this plan: what was measured of another says nothing about it."""
    of_another = findings.verification_is_of_this_plan is False
    return None if of_another else findings.verification


def plan_to_use(findings: "Findings") -> Plan | None:
    """The plan; with the settings of another run where that did better on an engine."""
    planned, v = findings.plan, measurements(findings)
    verdict = v.verdict if v else None
    if planned is None or v is None or verdict is None:
        return planned
    if verdict.conclusion is Conclusion.DROP_FLAGS:
        given = planned.settings.given()
        left = {name: value for name, value in given.items() if name not in verdict.drop}
        return replace(planned, settings=Settings.of(left))
    run = v.run(verdict.use)
    return planned if run is None else replace(planned, settings=run.settings)


def title(findings: "Findings") -> str:
    planned, v = findings.plan, findings.verification
    if planned and planned.model:
        return _where(planned)
    if v:
        return measured.where_measured(v)
    return data.prompts(findings.profile) if findings.profile else "chunkscope"


def _where(planned: Plan) -> str:
    model = planned.model.load_name if planned.model else "any model"
    gpu = planned.gpu.title if planned.gpu else None
    return plan.where(model, gpu, planned.effective.parallel.gpus)


def headline(findings: "Findings") -> str:
    """The answer in one sentence, for somebody who has never seen this tool."""
    planned, v = findings.plan, measurements(findings)
    if v is not None and v.measured is EngineKind.DEMO:
        return measured.demo(v)
    if planned is not None:
        prompts = plural(planned.refused.of, "prompt")
        return f"{prompts} for {_where(planned)}: {_answer(planned, v)}."
    if v is not None:
        return measured.verdict(v) or measured.without_plan(v)
    if findings.profile:
        return next(data.answer(findings.profile))
    if findings.simulation:
        return simulation.simulated_answer(findings.simulation)
    return doctor.answer(findings.diagnosis) if findings.diagnosis else "Nothing to show."


def _answer(planned: Plan, v: Verification | None) -> str:
    verdict = v.verdict if v else None
    if v is not None and verdict is not None:
        return measured.short_verdict(v, verdict)
    advice = planned.advice
    if advice.kind is AdviceKind.NO_SETTING:
        return f"no setting we tried keeps {' and '.join(map(str, planned.request.slo))}"
    if advice.basis is Basis.LENGTHS:
        return "which vLLM settings pay cannot be said without a model and a GPU"
    needed = plan.listed(advice.needed)
    also = f", but {needed} is needed" if needed else ""
    if advice.kind is AdviceKind.KEEP:
        return f"vLLM's default settings are as fast as any we tried{also}"
    gain = f" for {share(advice.gain)} more throughput" if advice.gain else ""
    return f"set {plan.listed(planned.settings)}{gain}"


def lead(findings: "Findings") -> Iterator[str]:
    """How long it takes, and how sure that is."""
    planned, v = findings.plan, measurements(findings)
    if planned is not None and planned.cost is not None and not planned.request.is_open:
        cost = planned.cost
        usual, least, most = map(duration, (cost.hours, cost.least_hours, cost.most_hours))
        measured_too = "" if v is not None else "; no engine has run it yet"
        yield f"The run takes about {usual} ({least} to {most}), simulated{measured_too}."
    if planned is not None and planned.advice.kind is AdviceKind.NO_SETTING:
        yield plan.advice(planned)
    if v is not None:
        yield measured.measured_on(v)


def mixed(findings: "Findings") -> Iterator[str]:
    """Results that do not belong together."""
    if findings.plan_is_of_this_profile is False:
        yield "The plan was made from other data than this profile: run `chunkscope recommend`."
    if findings.verification_is_of_this_plan is False:
        yield "The measurements are of another plan: run `chunkscope verify`."
    if findings.simulation_is_of_this_profile is False:
        yield "The simulation is of other data: run `chunkscope simulate`."


def cautions(findings: "Findings") -> Iterator[str]:
    if findings.profile is not None:
        if findings.profile.skipped:
            yield f"{plural(findings.profile.skipped, 'bad row')} skipped"
        for dataset in findings.profile.failures:
            yield f"{dataset.name} was not read to its end: {dataset.failed_because}"
    if findings.plan is not None:
        yield from map(sentence, findings.plan.notes)
