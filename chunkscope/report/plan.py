"""A plan as blocks: what to set, what it brings, how long it takes, what was tried."""

import shlex

from chunkscope.artefacts.figures import ITL_MAX, TTFT_P95, Figure
from chunkscope.artefacts.numbers import (
    about,
    as_written,
    by,
    per_second,
    plural,
    price,
    seconds,
    share,
)
from chunkscope.lengths.profile import DEFAULT_OUTPUT
from chunkscope.planning.plan import AdviceKind, Basis, Cost, Plan, Reason, Saving, Work
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
    Written,
    table,
)
from chunkscope.report.concurrency import (
    advice_sentences,
    concurrency_blocks,
    warning_sentences,
)
from chunkscope.report.footprint import memory_table, predicted_memory
from chunkscope.report.notes import sentence, sentences
from chunkscope.report.notes_plan import VARIATIONS
from chunkscope.report.phrases import (
    DEFAULT_NAME,
    DEFAULTS,
    NEWEST_ASSUMED,
    NOT_VALIDATED,
    OUTPUT_ASSUMED,
    RUN_NAMES,
    limit_state,
    listed,
    load_state,
    machine_text,
    settings_text,
    validated_text,
    version_text,
)
from chunkscope.report.pictures import trade_off
from chunkscope.report.simulation import (
    drawn_setting,
    is_open,
    runs_table,
    throughput,
)
from chunkscope.simulation.outputs import DatasetOutput, OutputOrigin
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.settings import Settings

HOUR_S = 3_600
SMOOTHER = 2  # times: a longest gap that shrinks by this is worth a sentence
PRICE = 1.5  # times: one that grows by this is the price of a gain
LONGER_WAIT = 3  # times: an answer that takes as long is worth a sentence
SHORT_WAIT_S = 60  # for which no client gives up
MAIN_PART = 0.5  # of a range, that makes its reason the main one
# What has to be known before the answer is used: in short, the note below it.
WARNINGS = {"prompts_refused": "{count:,} of {of:,} prompts do not fit."}
BACKGROUND = (NOT_VALIDATED, "sliding_window")  # in the details
IN_SETUP = (NEWEST_ASSUMED, OUTPUT_ASSUMED)  # which has its own words for them
REASONS = {  # that the time may turn out differently
    "faster_cpu": "CPU overhead",
    "slower_cpu": "CPU overhead",
    "no_cpu_time": "CPU overhead",
    "second_draw": "the sample",
    "longer_prompts": "prompt lengths",
    "shorter_prompts": "prompt lengths",
    "longer_outputs": "answer lengths",
    "shorter_outputs": "answer lengths",
    "seen_on_gpus": "prediction error",
}
AT_MOST = {OutputOrigin.DATA, OutputOrigin.TASK}  # whose longest answer is known
ORIGINS = {
    OutputOrigin.ASKED: "as asked",
    OutputOrigin.EARLIER: "from the earlier run",
    OutputOrigin.DATA: "from the data",
    OutputOrigin.SCORED: "scored",
    OutputOrigin.TASK: "from the task",
    OutputOrigin.ASSUMED: "assumed; --output",
}


def plan_blocks(plan: Plan) -> list[Block]:
    blocks: list[Block] = [
        Headline(headline(plan)),
        *[Text(text) for text in warnings(plan)],
        *[Text(text) for text in waiting_sentences(plan)],
        *[Text(saving_text(saving)) for saving in plan.savings],
        Facts(tuple(facts(plan))),
        Text(setup_sentence(plan)),
        *tried_blocks(plan),
        Notes(tuple(cautions(plan))),
        Flags(flags(plan)),
        *details(plan),
    ]
    if plan.memory is not None:
        memory = (predicted_memory(plan.memory), memory_table(plan.memory))
        blocks.append(Details("Memory", memory))
    return blocks


def tried_blocks(plan: Plan) -> list[Block]:
    """How many samples at once, and the settings that were simulated."""
    blocks: list[Block] = []
    if plan.concurrency is not None and has_sessions(plan):
        blocks += concurrency_blocks(plan.concurrency)
    if not plan.tried:
        return blocks
    named = [(tried_name(plan, run), run) for run in plan.tried]
    default = plan.default_run or plan.tried[0]
    settings = []
    strong = []
    for place, (name, run) in enumerate(named):
        is_plan = run is plan.run and not is_broken(plan)
        settings.append(drawn_setting(name, run, default, strong=is_plan))
        if is_plan:
            strong.append(place)
    picture = trade_off(settings, is_open=is_open(default))
    if picture is not None:
        blocks.append(picture)
    return [*blocks, runs_table(named, strong)]


def cautions(plan: Plan) -> list[str]:
    """The size of the sample if there is one, then the plan's notes."""
    texts = []
    total = plan.refused.of - plan.refused.prompts
    if plan.tried and plan.tried[0].requests < total and not has_sessions(plan):
        sample = plan.tried[0].requests
        texts.append(f"The table shows a sample: {sample:,} of {total:,} requests.")
    for note in plan.notes:
        if note.code not in (*WARNINGS, *BACKGROUND, *IN_SETUP):
            texts.append(sentence(note))
    return texts


def tried_name(plan: Plan, run: SimulatedRun) -> str:
    other = plan.advice.alternative
    if other is not None and run is not plan.run and run is not plan.default_run:
        return settings_text(other)
    if run.setting == "length-rule" and plan.request.mode is not None:
        return f"--mode {plan.request.mode}"
    return RUN_NAMES[run.setting]


def details(plan: Plan) -> list[Block]:
    background = [note for note in plan.notes if note.code in BACKGROUND]
    blocks: list[Block] = []
    if plan.tried:
        accuracy = Notes(sentences(background))
        blocks.append(Details("How sure the times are", (accuracy,)))
    if plan.concurrency is not None and not has_sessions(plan):
        at_once = tuple(concurrency_blocks(plan.concurrency))
        blocks.append(Details("Requests at once", at_once))
    blocks.append(Details("Each dataset", (datasets_table(plan),)))
    if not is_broken(plan):
        blocks.append(Details("Why", (reasons_table(plan),)))
    return blocks


# -- the answer ------------------------------------------------------------------------


def is_broken(plan: Plan) -> bool:
    """Does no setting keep the limits?"""
    return plan.advice.kind is AdviceKind.NO_SETTING


def has_sessions(plan: Plan) -> bool:
    """Do requests wait for the answer to the one before?"""
    return plan.concurrency is not None and plan.concurrency.unit == "samples"


def headline(plan: Plan) -> str:
    """What to do, what that brings, and its price."""
    texts = []
    for note in plan.notes:
        if note.code in WARNINGS:
            texts.append(WARNINGS[note.code].format(**note.values))
    if has_sessions(plan) and plan.concurrency is not None:
        texts += advice_sentences(plan.concurrency)
    return " ".join([*texts, *answer(plan)])


def answer(plan: Plan) -> list[str]:
    """What to set, as sentences."""
    advice = plan.advice
    if is_broken(plan):
        return limits_broken(plan)
    if advice.basis is Basis.LENGTHS:
        return by_lengths(plan)
    if advice.basis is Basis.MODE:
        return by_mode(plan)
    if advice.kind is AdviceKind.KEEP:
        return keep_defaults(plan)
    if plan.request.slo:
        return keep_limits(plan)
    return gain_speed(plan)


def change_text(plan: Plan) -> str:
    """`Keep vLLM's defaults`, or `Set max_num_seqs 512 instead of 256`."""
    given = plan.settings.given()
    changed = {}
    for name, value in plan.advice.settings.given().items():
        if name in given:  # else it is vLLM's own value anyway
            changed[name] = value
    if plan.advice.kind is AdviceKind.KEEP or not changed:
        return f"Keep {DEFAULTS}"
    return f"Set {settings_text(Settings.of(changed), plan.default)}"


def needed_sentences(plan: Plan) -> list[str]:
    """What vLLM does not start without; no sentence where its defaults do."""
    if not plan.advice.needed.given():
        return []
    return [f"vLLM needs {settings_text(plan.advice.needed)} to start."]


def by_lengths(plan: Plan) -> list[str]:
    """Nothing was simulated: the length rule answers."""
    change = change_text(plan)
    return [
        f"By the lengths of the prompts alone: {change[0].lower()}{change[1:]}.",
        *needed_sentences(plan),
        "To simulate settings takes --model and a --gpu whose speed is known.",
    ]


def by_mode(plan: Plan) -> list[str]:
    """What `--mode` forces, and what that costs or gains."""
    texts = [f"{change_text(plan)}, as --mode {plan.request.mode} asks."]
    if plan.advice.needed.given():
        texts.append(f"That needs {settings_text(plan.advice.needed)}.")
    if plan.run is None or plan.default_run is None:
        return [*texts, "It was not simulated."]
    if plan.run is plan.default_run:
        return [*texts, f"It is the same as {DEFAULT_NAME} here."]
    gain = plan.default_run.figures.makespan_s / plan.run.figures.makespan_s - 1
    return [*texts, gain_sentence(gain), *price_sentences(plan)]


def gain_sentence(gain: float) -> str:
    verb = "has" if round(gain, 3) else "is"
    return f"It {verb} {throughput(gain)} (simulated)."


def gain_speed(plan: Plan) -> list[str]:
    """What to set for the sake of time."""
    advice = plan.advice
    texts = [f"{change_text(plan)}: {throughput(advice.gain)} (simulated)."]
    if advice.doubt is not None:
        doubt = VARIATIONS[advice.doubt]
        texts.append(f"With {doubt} it is {by(advice.least_gain)}.")
    return [*texts, *needed_sentences(plan), *price_sentences(plan)]


def keep_limits(plan: Plan) -> list[str]:
    """What to set for the sake of limits."""
    advice, default = plan.advice, plan.default_run
    texts = [f"{change_text(plan)}: {limit_state(plan.run)} (simulated)."]
    if advice.gain and not plan.request.is_open:
        texts.append(f"It has {throughput(advice.gain)}.")
    if advice.doubt is not None and not advice.least_gain:
        texts.append(f"With {VARIATIONS[advice.doubt]} the limits are broken.")
    if default is None or default.slo is None or not default.slo.is_met:
        texts.append(f"With {DEFAULT_NAME}, {load_state(default)}.")
    return [*texts, *needed_sentences(plan), *price_sentences(plan)]


def keep_defaults(plan: Plan) -> list[str]:
    """That nothing else is worth it, and why."""
    advice = plan.advice
    why = "no other setting is more than 3 % faster"
    if plan.request.slo:
        why = limit_state(plan.default_run)
    elif advice.alternative is not None and advice.doubt is not None:
        why = (
            f"{settings_text(advice.alternative)} gives {by(advice.gain)} throughput, "
            f"but {by(advice.least_gain)} with {VARIATIONS[advice.doubt]}"
        )
    return [
        f"{change_text(plan)}: {why} (simulated).",
        *needed_sentences(plan),
        *streaming_sentences(plan),
    ]


def streaming_sentences(plan: Plan) -> list[str]:
    """What the best other setting brings to those who stream, at no cost in time."""
    default, alternative = plan.default_run, plan.advice.alternative
    others = [run for run in plan.tried if run is not default]
    if default is None or alternative is None or not others or plan.request.slo:
        return []
    before = ITL_MAX.value(default.figures) or 0.0
    after = ITL_MAX.value(others[0].figures) or 0.0
    is_slower = others[0].figures.makespan_s > default.figures.makespan_s
    if is_slower or SMOOTHER * after > before:
        return []
    return [
        f"If you stream answers, set {settings_text(alternative)}: at no cost in time, "
        f"the longest gap between tokens is {about(after)} instead of {about(before)}."
    ]


def price_sentences(plan: Plan) -> list[str]:
    """What grows by half or more, unless it is limited anyway."""
    figure = TTFT_P95 if plan.request.is_open else ITL_MAX
    limited = {limit.name for limit in plan.request.slo}
    if plan.run is None or plan.default_run is None or figure.promise in limited:
        return []
    before = figure.value(plan.default_run.figures) or 0.0
    after = figure.value(plan.run.figures) or 0.0
    if not before or after < PRICE * before:
        return []
    times = [gap_text(figure, before), gap_text(figure, after)]
    return [f"The {figure.title} grows from {' to '.join(times)}."]


def gap_text(figure: Figure, value_s: float) -> str:
    """The longest gap only roughly, as it may be ten times off."""
    return about(value_s) if figure is ITL_MAX else seconds(value_s)


def limits_broken(plan: Plan) -> list[str]:
    """What breaks, and what would help."""
    request, advice = plan.request, plan.advice
    limits = listed([str(limit) for limit in request.slo])
    if request.is_open:
        limits += f" at {request.arrivals}"
    texts = [f"No setting that was tried keeps {limits}."]
    if not advice.rate:
        state = limit_state(plan.default_run)
        texts.append(f"With {DEFAULT_NAME}, {state} (simulated).")
        texts.append("No lower rate helps.")
        return [*texts, *needed_sentences(plan)]
    texts.append(f"With {DEFAULT_NAME}, {load_state(plan.default_run)} (simulated).")
    within = f"A rate of about {per_second(advice.rate)} would keep them"
    if advice.alternative is not None:
        within += f", with {settings_text(advice.alternative)}"
    texts.append(f"{within}.")
    if advice.gpus:
        texts.append(f"{request.arrivals} needs about {advice.gpus} GPUs.")
    return [*texts, *needed_sentences(plan)]


def warnings(plan: Plan) -> list[str]:
    """What has to be known before the answer is used."""
    texts = [sentence(note) for note in plan.notes if note.code in WARNINGS]
    if plan.concurrency is not None:
        texts += warning_sentences(plan.concurrency, plan.request.e2e_timeout_s)
    return texts


def saving_text(saving: Saving) -> str:
    """What to change, and how many tokens and how much time that saves."""
    saved = []
    if saving.tokens:
        saved.append(f"{saving.tokens:,} prompt tokens")
    if saving.hours is not None:
        basis = "simulated" if saving.simulated else "estimated"
        saved.append(f"{seconds(saving.hours * HOUR_S)} ({basis})")
    if not saved:
        return sentence(saving)
    return f"{sentence(saving)} That saves about {listed(saved)}."


# -- what is typed ---------------------------------------------------------------------


def flags(plan: Plan) -> str:
    """The arguments as typed; empty where none are set or the limits are broken."""
    given = plan.settings.given()
    if is_broken(plan) or not given:
        return ""
    if plan.deployment.entry is Entry.LLM:
        return ", ".join(f"{name}={value!r}" for name, value in given.items())
    return shlex.join(plan.cli_args())


# -- what it rests on ------------------------------------------------------------------


def setup_sentence(plan: Plan) -> str:
    if plan.memory is None and plan.cost is None:
        return f"Planned for {setup(plan)}."
    return f"Predicted for {setup(plan)}."


def setup(plan: Plan) -> str:
    """Model, machine, version and requests."""
    machine = "any model"
    if plan.model is not None:
        gpu = plan.gpu.title if plan.gpu else None
        gpus = plan.effective.parallel.gpus
        machine = machine_text(plan.model.load_name, gpu, gpus)
        machine += validated_text(plan.notes)
    prompts = plural(plan.refused.of, "prompt")
    if plan.request.samples > 1:
        prompts += f", each sent {plan.request.samples:,} times"
    if plan.concurrency is not None and has_sessions(plan):
        prompts += f" of {plural(plan.concurrency.samples, 'sample')}"
    if plan.request.is_open:
        prompts += f" at {plan.request.arrivals}"
    parts = [machine, version_text(plan.deployment, plan.notes), prompts]
    if plan.concurrency is not None and plan.cost is not None and plan.cost.client:
        parts.append(f"{plan.cost.client:,} {plan.concurrency.unit} at once")
    return ", ".join([*parts, outputs_text(plan.outputs)])


def outputs_text(outputs: tuple[DatasetOutput, ...]) -> str:
    """How long answers are, and where that is known from."""
    tokens = [output.tokens for output in outputs]
    size = plural(max(tokens), "output token")
    asked = outputs[0].asked
    if min(tokens) < max(tokens):
        size = f"{min(tokens):,} to {size}"
    elif asked is not None and not asked.is_number:
        size = f"p50 {asked.p50:,} and p95 {size}"
    origins = dict.fromkeys(output.origin for output in outputs)
    if not origins.keys().isdisjoint(AT_MOST):
        size = f"at most {size}"
    return f"{size} each ({', '.join(ORIGINS[origin] for origin in origins)})"


# -- key figures -----------------------------------------------------------------------


def facts(plan: Plan) -> list[Fact]:
    """The figures to remember, as far as they are known."""
    found = cost_facts(plan)
    memory, chunks = plan.memory, plan.chunks
    if memory is not None:
        kv_cache = f"{memory.kv_cache_gib:.1f} ({memory.kv_cache_tokens:,} tokens)"
        weights = f"weights {memory.line('weights').gib:.1f}"
        parts = f"of {memory.total_gib:.1f}: {weights}, KV cache {kv_cache}"
        size = f"{memory.requested_gib:.1f} GiB"
        found.append(Fact(label="memory", value=size, remark=parts))
    found += concurrency_facts(plan)
    if chunks.prompts and chunks.size is not None:
        over = f"prompts over {plural(chunks.size, 'token')}"
        found.append(Fact(label="chunked", value=share(chunks.share), remark=over))
    if plan.run is not None and plan.run.figures.preemptions:
        times = plural(plan.run.figures.preemptions, "time")
        found.append(Fact(label="preempted", value=times, remark="KV cache full"))
    return found


def cost_facts(plan: Plan) -> list[Fact]:
    """The time and its range, and what it costs where a GPU has a price."""
    cost, per_hour = plan.cost, plan.request.price_per_hour
    if cost is None:
        return []
    usual_s = cost.hours * HOUR_S
    least = seconds(cost.least_hours * HOUR_S, like=usual_s)
    most = seconds(cost.most_hours * HOUR_S, like=usual_s)
    span = f"{least.partition(' ')[0]} to {most}, {range_reason(cost)}"
    found = [Fact(label="time", value=seconds(usual_s), remark=span)]
    added = cost.hours_per_1000_output_tokens
    if added is not None:
        longer = f"+ {seconds(added * HOUR_S)}"
        remark = "per 1,000 more tokens an answer"
        found.append(Fact(label="longer answers", value=longer, remark=remark))
    if per_hour is not None:
        prices = []
        for hours in (cost.hours, cost.least_hours, cost.most_hours):
            prices.append(price(per_hour * plan.effective.parallel.gpus * hours))
        usual, low, high = prices
        found.append(Fact(label="price", value=usual, remark=f"{low} to {high}"))
    return found


def range_reason(cost: Cost) -> str:
    """Why the time may be another: the main reason where one stands out."""
    added = cost.hours_per_1000_output_tokens or 0.0
    twice_as_long_hours = added * DEFAULT_OUTPUT / 1_000
    if twice_as_long_hours > MAIN_PART * (cost.most_hours - cost.hours):
        return "mostly because nobody knows how long the answers are"
    reasons = dict.fromkeys(REASONS[code] for code in cost.varied)
    return f"depending on {listed(list(reasons))}"


def concurrency_facts(plan: Plan) -> list[Fact]:
    """How many requests a client does best to send at once, where nobody said."""
    answer = plan.concurrency
    is_served = plan.deployment.entry is Entry.SERVE  # the LLM class has all at once
    if answer is None or answer.client or has_sessions(plan) or not is_served:
        return []
    remark = "requests at once are as fast as more (simulated)"
    return [Fact(label="concurrency", value=f"{answer.advised:,}", remark=remark)]


def waiting_sentences(plan: Plan) -> list[str]:
    """What a client that sends more than it must waits for, where that is long."""
    answer = plan.concurrency
    if answer is None or has_sessions(plan):
        return []
    points = {point.at_once: point for point in answer.points}
    advised = points.get(answer.advised)
    usual = points.get(answer.client or max(points))
    if advised is None or usual is None or usual.e2e_p95_s < SHORT_WAIT_S:
        return []
    if usual.e2e_p95_s < LONGER_WAIT * advised.e2e_p95_s:
        return []
    return [
        f"Send {answer.advised:,} requests at once: the run takes as long, and 95 % of "
        f"the answers are complete within {seconds(advised.e2e_p95_s)}. With "
        f"{usual.at_once:,} at once that takes {seconds(usual.e2e_p95_s)} (simulated)."
    ]


# -- details ---------------------------------------------------------------------------


def datasets_table(plan: Plan) -> Table:
    """The datasets in the data's order: time, and the length rule."""
    decisions = dict(plan.decisions)
    works: dict[str, Work] = {}
    if plan.cost is not None:
        works = {**plan.cost.datasets, "all together": plan.cost}
    if len(decisions) > 1 and plan.request.dataset is None:
        decisions["all together"] = plan.decision
    rows = []
    for name, decision in decisions.items():
        row: list[Written] = [name]
        if plan.cost is not None:
            work = works.get(name)
            row.append(seconds(work.hours * HOUR_S) if work is not None else None)
        over = share(decision.chunks.share) if decision.chunks.prompts else None
        mode = f"--mode {decision.mode}" if decision.forced else decision.mode
        rows.append([*row, mode, decision.threshold, over])
    times = ["time"] if plan.cost is not None else []
    headings = ["dataset", *times, "length rule", "threshold", "over it"]
    return table(headings, rows, words=["length rule"], strong=[len(rows) - 1])


def reasons_table(plan: Plan) -> Table:
    """Arguments that are set, or whose default was compared with another value."""
    rows = []
    for reason in plan.reasons:
        row = [reason.argument]
        for name in ("value", "own"):
            value = reason.values.get(name)
            row.append("-" if value is None else as_written(value))
        rows.append([*row, reason_text(plan, reason)])
    headings = ("argument", "value", "default", "why")
    return table(headings, rows, words=["why"])


def reason_text(plan: Plan, reason: Reason) -> str:
    if reason.code == "why_length_rule" and plan.request.mode is not None:
        return f"as --mode {plan.request.mode} asks"
    return sentence(reason)
