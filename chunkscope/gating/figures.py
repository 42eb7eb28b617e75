"""[gate.memory], [gate.slo], [gate.speed], [gate.outputs] and [gate.doctor]: figures of
what `recommend` predicts, `verify` measured and `doctor` found."""

from collections.abc import Iterator
from dataclasses import replace

from chunkscope.artefacts.figures import BY_KEY, BY_PROMISE
from chunkscope.artefacts.note import Note, note
from chunkscope.gating.budget import (
    DoctorTable,
    MemoryTable,
    OutputsTable,
    SpeedLimits,
)
from chunkscope.gating.check import Check
from chunkscope.gating.evidence import Evidence, TableValues, Values
from chunkscope.planning.plan import Plan
from chunkscope.simulation.result import SimulatedRun
from chunkscope.verification.result import Run, Verification

PLAN = "plan"  # the run of `verify` that limits are about


def check_memory(table: MemoryTable, evidence: Evidence) -> Iterator[Check]:
    """What is predicted and what was measured, each against its own limits."""
    if table.predicted is not None:
        plan = evidence.need_plan()
        yield from TableValues(
            table="memory.predicted",
            values=predicted_memory(plan),
            subject=_planned_for(plan),
            unknown=note("gate_no_memory_model"),
        ).checks(table.predicted)
    if table.measured is not None:
        yield from _measured("memory.measured", evidence).checks(table.measured)


def check_slo(table: SpeedLimits, evidence: Evidence) -> Iterator[Check]:
    """What is predicted of the plan."""
    plan = evidence.need_plan()
    yield from TableValues(
        table="slo",
        values=figure_values(plan.run),
        subject=f"{_planned_for(plan)}, predicted",
        unknown=note("gate_not_simulated"),
    ).checks(table)


def check_speed(table: SpeedLimits, evidence: Evidence) -> Iterator[Check]:
    """What was measured."""
    yield from _measured("speed", evidence).checks(table)


def check_outputs(table: OutputsTable, evidence: Evidence) -> Iterator[Check]:
    """Are answers the same? `verify --check-outputs` compares them."""
    verification = evidence.need_verification()
    run = verification.run(PLAN)
    unknown = note("gate_outputs_not_compared")
    if run and run.outputs and verification.model.dummy:
        unknown = note("gate_random_weights")
    yield from TableValues(
        table="outputs",
        values=output_values(verification, run),
        subject=PLAN,
        unknown=unknown,
    ).checks(table)


def check_doctor(table: DoctorTable, evidence: Evidence) -> Iterator[Check]:
    """What an engine's log says of its run."""
    diagnosis = evidence.need_diagnosis()
    rules = dict.fromkeys(symptom.rule for symptom in diagnosis.symptoms)
    values = TableValues(
        table="doctor",
        values={
            "findings": len(diagnosis.symptoms),
            "refused_prompts": diagnosis.refused_prompts,
        },
        subject="the log",
    )
    for check in values.checks(table):
        if check.name == "doctor.findings" and rules:
            yield replace(check, reason=note("gate_rules", rules=", ".join(rules)))
        else:
            yield check


# -- values ----------------------------------------------------------------------------


def predicted_memory(plan: Plan) -> Values:
    """What a step needs beside the weights, the most that the GPU holds, and how many
    requests the KV cache does."""
    memory = plan.memory
    if memory is None:
        return {}
    # vLLM fills what it may use with KV cache; what it does not profile comes on top.
    outside = memory.unprofiled_gib
    for line in memory.lines:
        if not line.profiled and line.name != "logprobs":
            outside += line.gib
    # Activations, the sampler, and logits of prompt_logprobs, which are not profiled.
    step = memory.line("activation").gib + memory.line("sampler").gib
    return {
        "activation_peak": step + memory.unprofiled_gib,
        "device_peak": memory.requested_gib + outside,
        "kv_requests_of_p95": plan.requests_of(plan.decision.p95),
    }


def figure_values(run: Run | SimulatedRun | None) -> Values:
    """Every figure of a run that may be limited; None without a run."""
    values: dict[str, float | None] = {}
    for key, figure in BY_PROMISE.items():
        values[key] = None
        if run is not None:
            values[key] = figure.value(run if figure.once else run.figures)
    return values


def output_values(verification: Verification, run: Run | None) -> Values:
    """The share of equal answers. Those of random weights, where ties decide, are no
    evidence."""
    if verification.model.dummy or run is None:
        return {"equal": None}
    return {"equal": BY_KEY["outputs.equal"].value(run)}


def _planned_for(plan: Plan) -> str:
    """The plan's model and GPU; its figures may be of one dataset of several."""
    names = [part.name for part in (plan.model, plan.gpu) if part is not None]
    title = " on ".join(names) or "plan"
    if plan.request.dataset:
        return f"{title}, {plan.request.dataset} alone"
    return title


def _measured(table: str, evidence: Evidence) -> TableValues:
    """What was measured with the plan's settings, or why it is not known."""
    verification = evidence.need_verification()
    run = verification.run(PLAN)
    unknown: Note = note("gate_not_measured")
    if run is None:
        names = ", ".join(run.setting for run in verification.runs)
        unknown = note("gate_no_such_run", setting=PLAN, names=names)
    elif not run.ok:
        unknown = run.failure or note("gate_run_failed", status=str(run.status))
        run = None
    return TableValues(
        table=table, values=figure_values(run), subject=PLAN, unknown=unknown
    )
