"""All results of a folder: the answer on top, then a chapter for each result.

What stands on the first screen is not said again in a chapter: each is a list of blocks
that is written out here.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from chunkscope.artefacts.numbers import gib, number, plural
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.findings import Findings
from chunkscope.gating.remedies import stale
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.report import diagnosis as diagnoses
from chunkscope.report import plan as plans
from chunkscope.report import profile as profiles
from chunkscope.report import simulation as simulations
from chunkscope.report import verification as verifications
from chunkscope.report.blocks import (
    Block,
    Details,
    Fact,
    Facts,
    Flags,
    Headline,
    Notes,
    Table,
    Text,
    filled,
    table,
    without_headline,
)
from chunkscope.report.charts import Chart, Mark
from chunkscope.report.footprint import memory_table, predicted_memory
from chunkscope.report.notes import sentence
from chunkscope.simulation.result import Simulation
from chunkscope.verification.result import Run, Verification
from chunkscope.vllm.flags import command_line
from chunkscope.vllm.settings import Settings

GLOSSARY = (
    ("token", "about four characters of text"),
    ("step", "one pass of the model, for many requests"),
    ("chunk", "the part of a long prompt that is read in one step"),
    ("KV cache", "GPU memory for the tokens of running requests"),
    (
        "preemption",
        "when the KV cache is full, a request is stopped and computed again later",
    ),
    ("first token, ttft", "the wait until an answer begins"),
    ("gap, itl", "the time between two tokens of an answer"),
    ("p95", "19 of 20 are at most this long"),
)
# Settings that are shown as lines in the picture of the lengths.
MARKS = {
    "long_prefill_token_threshold": "tokens of one prompt per step",
    "max_num_batched_tokens": "tokens per step",
    "max_model_len": "context",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A part of the page. Its `name` is its place in an address."""

    name: str
    title: str
    blocks: tuple[Block, ...]


def folder_blocks(findings: Findings) -> list[Block]:
    """The first screen and the chapter that it rests on; the others as details."""
    first, *others = chapters(findings)
    blocks = [*first_screen(findings), *first.blocks]
    for chapter in others:
        blocks.append(Details(chapter.title, chapter.blocks))
    return blocks


def folder_pictures(findings: Findings) -> list[Chart]:
    """The pictures of all chapters, without those in details."""
    pictures: list[Chart] = []
    for part in chapters(findings):
        pictures += [block for block in part.blocks if isinstance(block, Chart)]
    return pictures


# -- the first screen ------------------------------------------------------------------


def first_screen(findings: Findings) -> list[Block]:
    """The answer, what it rests on, the figures to remember, and what to doubt."""
    return [
        *opening(findings),
        Facts(tuple(facts(findings))),
        Flags(flags(findings)),
        Notes(tuple(warnings(findings))),
    ]


def measurement_of_plan(findings: Findings) -> Verification | None:
    """None where it is of another plan: it says nothing about this one."""
    if findings.verification_is_of_this_plan is False:
        return None
    return findings.verification


Answering = Verification | Plan | Profile | Simulation | Diagnosis | None


def answering(findings: Findings) -> Answering:
    """The result whose answer stands on top."""
    measured = measurement_of_plan(findings)
    if measured is not None and measured.verdict is not None:
        return measured
    return (
        findings.plan
        or measured
        or findings.profile
        or findings.simulation
        or findings.diagnosis
        or findings.verification  # of a plan that is not here
    )


def opening(findings: Findings) -> list[Block]:
    """The answer, and what it rests on."""
    measured = measurement_of_plan(findings)
    answer = answering(findings)
    match answer:
        case Verification():
            headline = verifications.headline(answer)
            details = verifications.worse_sentences(answer)
        case Plan():
            headline, *details = plans.answer(answer)
        case Profile():
            return profiles.answer(answer)
        case Simulation():
            return [
                Headline(simulations.headline(answer)),
                Text(simulations.setup(answer)),
            ]
        case Diagnosis():
            return [Headline(diagnoses.answer(answer))]
        case None:
            return [Headline("There are no results yet.")]
    return [
        Headline(headline),
        Text(" ".join(details)),
        *machine_texts(findings.plan, measured),
        *saving_texts(findings.plan),
    ]


def machine_texts(plan: Plan | None, measured: Verification | None) -> list[Block]:
    """What was planned for, unless it was measured just so; what was measured."""
    texts: list[Block] = []
    if plan is not None:
        is_elsewhere = measured is None or any(
            verifications.measured_elsewhere(plan, measured)
        )
        if is_elsewhere:
            texts.append(Text(plans.setup_sentence(plan)))
    if measured is not None:
        texts.append(Text(verifications.measured_on(measured)))
    return texts


def saving_texts(plan: Plan | None) -> list[Block]:
    if plan is None:
        return []
    return [Text(plans.saving_text(saving)) for saving in plan.savings]


def run_in_use(findings: Findings) -> Run | None:
    """The run whose settings measured best; None where that was not judged."""
    measured = measurement_of_plan(findings)
    if measured is None or measured.verdict is None:
        return None
    return measured.run(measured.verdict.use)


def flags(findings: Findings) -> str:
    """The settings to use; empty where nothing is set or the limits are broken."""
    run = run_in_use(findings)
    if findings.plan is None:
        return ""
    if run is None or run.is_called("plan"):
        return plans.flags(findings.plan)
    return shlex.join(command_line(run.settings.given()))


def facts(findings: Findings) -> list[Fact]:
    """The key figures: of the data, of the run that is advised, of the plan."""
    found = []
    if findings.profile is not None:
        lengths = findings.profile.overall
        p95 = f"tokens; p95 {number(lengths.percentile(95))}"
        found.append(
            Fact(label="longest prompt", value=number(lengths.max), remark=p95)
        )
    measured = measurement_of_plan(findings)
    run = run_in_use(findings)
    if run is None and measured is not None:
        run = measured.run("plan")
    if run is not None and run.kv_cache_tokens is not None:
        found.append(kv_cache_fact(run))
    if findings.plan is not None and (run is None or run.is_called("plan")):
        for fact in plans.facts(findings.plan):
            if run is None or fact.label != "memory":  # else it was measured
                found.append(fact)
    return found


def kv_cache_fact(run: Run) -> Fact:
    remark = "tokens; measured"
    if run.activation_peak_gib is not None:
        remark = f"tokens; activations {gib(run.activation_peak_gib)} (measured)"
    return Fact(label="KV cache", value=number(run.kv_cache_tokens), remark=remark)


def warnings(findings: Findings) -> list[str]:
    """Stale results, data that was not read, and the plan's notes."""
    lines = []
    for command, cause in stale(findings).items():
        lines.append(f"{sentence(cause)}: run `chunkscope {command}`.")
    if findings.profile is not None:
        lines += unread(findings.profile)
    if findings.plan is not None:
        lines += plans.cautions(findings.plan)
    return lines


def unread(profile: Profile) -> list[str]:
    """What the lengths leave out."""
    lines = []
    if profile.skipped:
        lines.append(f"{plural(profile.skipped, 'bad row')} skipped.")
    for dataset in profile.datasets:
        if dataset.failure is not None:
            why = sentence(dataset.failure)
            lines.append(f"{dataset.name} was not read to its end: {why}.")
    return lines


# -- chapters --------------------------------------------------------------------------


def chapters(findings: Findings) -> list[Chapter]:
    """In the order of the page; a result that is missing has no chapter."""
    found = []
    measured = measurement_of_plan(findings)
    if measured is not None:
        found.append(measured_chapter(measured, "What was measured"))
    if findings.plan is not None:
        found.append(plan_chapter(findings))
    if findings.profile is not None:
        found.append(lengths_chapter(findings))
    found.append(memory_chapter(findings))
    if findings.verification is not None and measured is None:
        title = "What was measured for another plan"
        found.append(measured_chapter(findings.verification, title))
    if findings.simulation is not None and adds_to_plan(findings):
        found.append(simulation_chapter(findings, findings.simulation))
    if findings.diagnosis is not None:
        blocks = diagnoses.diagnosis_blocks(findings.diagnosis)
        if answering(findings) is findings.diagnosis:
            blocks = without_headline(blocks)
        found.append(chapter("engine", "What limited the engine", blocks))
    found.append(chapter("sources", "Sources", [sources_table(findings)]))
    return [part for part in found if part.blocks]


def chapter(name: str, title: str, blocks: Sequence[Block]) -> Chapter:
    return Chapter(name=name, title=title, blocks=tuple(filled(blocks)))


def measured_chapter(measured: Verification, title: str) -> Chapter:
    return chapter("measured", title, verifications.result_blocks(measured))


def plan_chapter(findings: Findings) -> Chapter:
    plan = findings.plan
    blocks: list[Block] = []
    if plan is not None:
        if answering(findings) is not plan:
            blocks.append(Text(plans.headline(plan)))
        blocks += [*plans.tried_blocks(plan), *plans.details(plan)]
    return chapter("predicted", "Predicted times", blocks)


def settings_in_use(findings: Findings) -> Settings:
    """What the engine ends up with, by the plan and what was measured."""
    run = run_in_use(findings)
    if findings.plan is None:
        return Settings()
    if run is None:
        return findings.plan.effective
    return findings.plan.deployment.complete(run.settings)


def lengths_chapter(findings: Findings) -> Chapter:
    """The lengths, with the engine's limits marked in the picture."""
    profile = findings.profile
    blocks: list[Block] = []
    if profile is None:
        return chapter("lengths", "Prompt lengths", blocks)
    settings = settings_in_use(findings)
    marks = []
    for name, label in MARKS.items():
        tokens = getattr(settings, name)
        if tokens:
            marks.append(Mark(label=label, tokens=tokens))
    if answering(findings) is not profile:
        blocks += [Text(profiles.lengths_sentence(profile))]
        blocks += [Text(profiles.meaning(profile))]
    blocks += [
        *profiles.length_histogram("Prompts by length", profile.overall, marks),
        profiles.lengths_table(profile.datasets),
        *profiles.session_texts(profile),
        Text(profiles.counted_with(profile)),
        Notes(tuple(profiles.cautions(profile))),
        Details("The lengths of each dataset", dataset_pictures(profile)),
        Details("By dataset", (profiles.dataset_table(profile),)),
        Details("Longest prompts", (profiles.longest_table(profile),)),
    ]
    return chapter("lengths", "Prompt lengths", blocks)


def dataset_pictures(profile: Profile) -> tuple[Block, ...]:
    return tuple(profiles.dataset_histograms(profile))


def memory_chapter(findings: Findings) -> Chapter:
    """A GPU's memory as measured, else as predicted."""
    blocks: list[Block] = []
    measured = measurement_of_plan(findings)
    plan = findings.plan
    ran = [run for run in measured.runs if run.ok] if measured is not None else []
    picture = verifications.memory_picture(ran)
    if picture.bars:
        blocks += [picture, verifications.memory_table(ran)]
    elif plan is not None and plan.memory is not None:
        blocks += [predicted_memory(plan.memory), memory_table(plan.memory)]
    return chapter("memory", "Memory of a GPU", blocks)


def adds_to_plan(findings: Findings) -> bool:
    """Does the simulation show more than the plan's own runs?"""
    tried = [run.figures for run in findings.plan.tried] if findings.plan else []
    runs = findings.simulation.runs if findings.simulation else ()
    return any(run.timeline or run.figures not in tried for run in runs)


def simulation_chapter(findings: Findings, simulation: Simulation) -> Chapter:
    blocks: list[Block] = []
    if answering(findings) is not simulation:
        blocks.append(Text(simulations.headline(simulation)))
        blocks.append(Text(simulations.setup(simulation)))
    named = simulations.named_runs(simulation)
    blocks += [
        *simulations.pictures(simulation),
        simulations.runs_table(named),
        *simulations.remarks(simulation),
        Details("First steps", tuple(simulations.steps_blocks(simulation))),
        Details("Every figure", simulations.every_figure(simulation)),
    ]
    return chapter("simulated", "Simulated settings", blocks)


def sources_table(findings: Findings) -> Table:
    """When and by which command each result was made."""
    rows = []
    if findings.profile is not None:
        profile = findings.profile
        rows.append(source_row("profile.json", profile.created, profile.command))
    if findings.plan is not None:
        plan = findings.plan
        rows.append(source_row("plan.json", plan.created, plan.source.command))
    if findings.simulation is not None:
        rows.append(source_row("simulation.json", "", findings.simulation.command))
    if findings.verification is not None:
        measured = findings.verification
        rows.append(source_row("verify.json", measured.created, measured.command))
    if findings.diagnosis is not None:
        rows.append(source_row("doctor.json", findings.diagnosis.created, ()))
    return table(("file", "made on", "by"), rows, words=["made on", "by"])


def source_row(file: str, created: str, command: Sequence[str]) -> tuple[str, str, str]:
    return file, created[:10], shlex.join(command)
