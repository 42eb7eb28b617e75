"""A plan as blocks: what to set, what it brings, how long it takes, what was tried."""

import shlex

from chunkscope.artefacts.figures import ITL_MAX, TTFT_P95
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
from chunkscope.planning.plan import AdviceKind, Basis, Cost, Plan, Reason, Saving, Work
from chunkscope.planning.rule import Decision
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
    table,
)
from chunkscope.report.footprint import memory_table, predicted_memory
from chunkscope.report.notes import sentence
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
from chunkscope.simulation.outputs import OutputOrigin
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.settings import Settings

HOUR_S = 3_600
SMOOTHER = 2  # times: a longest gap that shrinks by this is worth a sentence
PRICE = 1.5  # times: one that grows by this is the price of a gain
# What has to be known before the answer is used.
WARNINGS = ("prompts_refused", "agent_turns")
# How near predictions came to what was measured.
BACKGROUND = (NOT_VALIDATED, "sliding_window")
# What the time may turn out differently for.
REASONS = {
    "faster_cpu": "CPU overhead",
    "slower_cpu": "CPU overhead",
    "no_cpu_time": "CPU overhead",
    "second_draw": "the sample",
    "longer_prompts": "the prompts' lengths",
    "shorter_prompts": "the prompts' lengths",
    "longer_outputs": "the answers' lengths",
    "shorter_outputs": "the answers' lengths",
    "seen_on_gpus": "prediction error",
}


def plan_blocks(plan: Plan) -> list[Block]:
    blocks: list[Block] = [Headline(headline(plan))]
    for note in plan.notes:
        if note.code in WARNINGS:
            blocks.append(Text(sentence(note)))
    for saving in plan.savings:
        blocks.append(Text(saving_text(saving)))
    blocks += [Text(setup_sentence(plan)), Facts(tuple(facts(plan)))]
    blocks += tried_blocks(plan)
    blocks += [Notes(cautions(plan)), Flags(flags(plan)), *details(plan)]
    if plan.memory is not None:
        picture = predicted_memory(plan.memory)
        blocks.append(Details("Memory", (picture, memory_table(plan.memory))))
    return blocks


def tried_blocks(plan: Plan) -> list[Block]:
    """The settings that were simulated, as a table and as a picture."""
    named = [(tried_name(plan, run), run) for run in plan.tried]
    strong = []
    for place, run in enumerate(plan.tried):
        if run is plan.run and not is_broken(plan):
            strong.append(place)
    blocks: list[Block] = [runs_table(named, strong)]
    if plan.default_run is None:
        return blocks
    settings = []
    for name, run in named:
        is_plan = run is plan.run
        point = drawn_setting(name, run, plan.default_run, strong=is_plan)
        settings.append(point)
    picture = trade_off(settings, is_open=is_open(plan.default_run))
    if picture is not None:
        blocks.insert(0, picture)
    return blocks


def tried_name(plan: Plan, run: SimulatedRun) -> str:
    other = plan.advice.alternative
    if other is not None and run is not plan.run and run is not plan.default_run:
        return settings_text(other)
    if run.setting == "length-rule" and plan.request.mode is not None:
        return f"--mode {plan.request.mode}"
    return RUN_NAMES[run.setting]


def details(plan: Plan) -> list[Block]:
    blocks: list[Block] = []
    if plan.tried:
        notes = [note for note in plan.notes if note.code in BACKGROUND]
        texts = tuple(sentence(note) for note in notes)
        blocks.append(Details("How sure the times are", (Notes(texts),)))
    blocks.append(Details("Each dataset alone", (datasets_table(plan),)))
    if not is_broken(plan):
        blocks.append(Details("Why", (reasons_table(plan),)))
    return blocks


def cautions(plan: Plan) -> tuple[str, ...]:
    """The size of the sample if there is one, then the plan's notes."""
    sentences = []
    total = plan.refused.of - plan.refused.prompts
    if plan.tried and plan.tried[0].requests < total:
        sample = plan.tried[0].requests
        sentences.append(f"The table shows a sample: {sample:,} of {total:,} requests.")
    for note in plan.notes:
        if note.code not in (*WARNINGS, *BACKGROUND, *said_in_setup(plan)):
            sentences.append(sentence(note))
    return tuple(sentences)


def said_in_setup(plan: Plan) -> tuple[str, ...]:
    """Codes of notes that the setup sentence has in its own words."""
    if any(output.origin is OutputOrigin.TASK for output in plan.outputs):
        return (NEWEST_ASSUMED,)  # it names the cap, not what is assumed below it
    return (NEWEST_ASSUMED, OUTPUT_ASSUMED)


# -- the answer ------------------------------------------------------------------------


def is_broken(plan: Plan) -> bool:
    """Does no setting keep the limits?"""
    return plan.advice.kind is AdviceKind.NO_SETTING


def headline(plan: Plan) -> str:
    """What to set, what that brings, and its price."""
    return " ".join(answer(plan))


def answer(plan: Plan) -> list[str]:
    """The same as sentences, the first one alone an answer."""
    advice = plan.advice
    if is_broken(plan):
        return limits_broken(plan)
    if advice.basis is Basis.LENGTHS:
        return by_lengths(plan)
    if advice.basis is Basis.MODE:
        return by_mode(plan)
    if advice.kind is AdviceKind.SET:
        return set_arguments(plan)
    return keep_defaults(plan)


def changed_settings(plan: Plan) -> Settings:
    """What is advised and is not vLLM's own value anyway."""
    given = plan.settings.given()
    changed = {}
    for name, value in plan.advice.settings.given().items():
        if name in given:
            changed[name] = value
    return Settings.of(changed)


def change_text(plan: Plan) -> str:
    """`Keep vLLM's defaults`, or `Set max_num_seqs 512 instead of 256`."""
    changed = changed_settings(plan)
    if plan.advice.kind is AdviceKind.KEEP or not changed.given():
        return f"Keep {DEFAULTS}"
    return f"Set {settings_text(changed, plan.default)}"


def needed_sentences(plan: Plan) -> list[str]:
    """What vLLM does not start without; no sentence where its defaults do."""
    if not plan.advice.needed.given():
        return []
    return [f"vLLM needs {settings_text(plan.advice.needed)} to start."]


def by_lengths(plan: Plan) -> list[str]:
    """Nothing was simulated: the length rule answers."""
    change = change_text(plan)
    missing = " and ".join(lacking(plan)) or "a known GPU"
    return [
        f"By the lengths of the prompts alone: {change[0].lower()}{change[1:]}.",
        *needed_sentences(plan),
        f"Nothing was simulated, as {missing} is missing.",
    ]


def by_mode(plan: Plan) -> list[str]:
    """What `--mode` forces, and what that costs or gains."""
    sentences = [f"{change_text(plan)}, as --mode {plan.request.mode} asks."]
    if plan.advice.needed.given():
        sentences.append(f"That needs {settings_text(plan.advice.needed)}.")
    run, default = plan.run, plan.default_run
    if run is None or default is None:
        sentences.append("It was not simulated.")
    elif run is default:
        sentences.append(f"It is the same as {DEFAULT_NAME} here.")
    elif plan.request.slo:
        sentences += limits_kept(plan)
    else:
        gain = default.figures.makespan_s / run.figures.makespan_s - 1
        sentences.append(f"It has {throughput(gain)} (simulated).")
        if abs(gain) < 0.0005:
            sentences[-1] = f"It is {throughput(gain)} (simulated)."
        sentences += price_sentences(plan)
    return sentences


def set_arguments(plan: Plan) -> list[str]:
    """What to set, and what it gains."""
    if plan.request.slo:
        return [
            f"{change_text(plan)}: {limit_state(plan.run)} (simulated).",
            *needed_sentences(plan),
            *limits_kept(plan),
        ]
    advice = plan.advice
    sentences = [f"{change_text(plan)}: {throughput(advice.gain)} (simulated)."]
    if advice.doubt is not None:
        least = by(advice.least_gain)
        sentences.append(f"It is at least {least} with {VARIATIONS[advice.doubt]}.")
    return [*sentences, *needed_sentences(plan), *price_sentences(plan)]


def keep_defaults(plan: Plan) -> list[str]:
    """That nothing else is worth it, and why."""
    return [
        f"{change_text(plan)}: {why_kept(plan)} (simulated).",
        *needed_sentences(plan),
        *streaming_sentences(plan),
    ]


def why_kept(plan: Plan) -> str:
    """As a clause."""
    advice = plan.advice
    if plan.request.slo:
        return limit_state(plan.default_run)
    if advice.alternative is None or advice.doubt is None:
        return "no other setting is more than 3 % faster"
    return (
        f"{settings_text(advice.alternative)} gives {by(advice.gain)} throughput, but "
        f"{by(advice.least_gain)} with {VARIATIONS[advice.doubt]}"
    )


def streaming_sentences(plan: Plan) -> list[str]:
    """What the best other setting brings to those who stream, at no cost in time."""
    default, alternative = plan.default_run, plan.advice.alternative
    best = other_run(plan)
    if default is None or best is None or alternative is None or plan.request.slo:
        return []
    before, after = ITL_MAX.value(default.figures), ITL_MAX.value(best.figures)
    if before is None or after is None or SMOOTHER * after > before:
        return []
    if best.figures.makespan_s > default.figures.makespan_s:
        return []
    return [
        f"If you stream answers, set {settings_text(alternative)}: at no cost in time, "
        f"the longest gap between tokens is {about(after)} instead of {about(before)}."
    ]


def other_run(plan: Plan) -> SimulatedRun | None:
    """The best run beside vLLM's default."""
    for run in plan.tried:
        if run is not plan.default_run:
            return run
    return None


def limits_kept(plan: Plan) -> list[str]:
    """What is gained besides keeping the limits, and what became of them by default."""
    advice, default = plan.advice, plan.default_run
    sentences = []
    if advice.gain and not plan.request.is_open:
        sentences.append(f"It has {throughput(advice.gain)}.")
    if advice.doubt is not None and not advice.least_gain:
        sentences.append(
            f"With {VARIATIONS[advice.doubt]} it does not keep the limits."
        )
    is_kept = default is not None and default.slo is not None and default.slo.is_met
    if not is_kept:
        sentences.append(f"With {DEFAULT_NAME}, {load_state(default)}.")
    return [*sentences, *price_sentences(plan)]


def price_sentences(plan: Plan) -> list[str]:
    """What gets worse by half or more; no sentence where it is limited anyway."""
    figure = TTFT_P95 if plan.request.is_open else ITL_MAX
    if plan.run is None or plan.default_run is None:
        return []
    if figure.promise in {limit.name for limit in plan.request.slo}:
        return []
    before = figure.value(plan.default_run.figures)
    after = figure.value(plan.run.figures)
    if not before or after is None or after < PRICE * before:
        return []
    if figure is TTFT_P95:
        return [f"The {figure.title} grows from {seconds(before)} to {seconds(after)}."]
    return [f"The {figure.title} grows from {about(before)} to {about(after)}."]


def limits_broken(plan: Plan) -> list[str]:
    """What breaks, and what would help."""
    request, advice = plan.request, plan.advice
    limits = listed([str(limit) for limit in request.slo])
    if request.is_open:
        limits += f" at {request.arrivals}"
    state = limit_state(plan.default_run)
    if advice.rate:
        state = load_state(plan.default_run)
    sentences = [
        f"No setting that was tried keeps {limits}.",
        f"With {DEFAULT_NAME}, {state} (simulated).",
    ]
    if advice.rate and advice.alternative:
        sentences.append(
            f"About {per_second(advice.rate)} would be served within them, with "
            f"{settings_text(advice.alternative)}."
        )
    elif advice.rate:
        rate = per_second(advice.rate)
        sentences.append(f"About {rate} would be served within them.")
    else:
        sentences.append("No lower rate helps.")
    if advice.gpus:
        sentences.append(f"For {request.arrivals} it takes about {advice.gpus} GPUs.")
    return [*sentences, *needed_sentences(plan)]


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


def lacking(plan: Plan) -> list[str]:
    """Options without which nothing can be simulated."""
    options = []
    if plan.model is None:
        options.append("--model")
    if plan.gpu is None:
        options.append("--gpu")
    return options


def next_command(plan: Plan, file: str) -> str:
    """The command that usually comes next; empty where none helps.

    `file` is the plan's, as a word to be appended, or empty for the usual one.
    """
    if is_broken(plan):
        if plan.advice.rate:
            return f"chunkscope simulate{file} --find-rate"
        return ""
    if plan.model is None:
        return "chunkscope models"
    if plan.gpu is None:
        return "chunkscope gpus"
    if plan.deployment.entry is not Entry.SERVE:
        return f"chunkscope verify{file}"
    model = shlex.quote(plan.model.load_name)
    return f"vllm serve {model} {flags(plan)}".rstrip()


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
    if plan.request.is_open:
        prompts += f" at {plan.request.arrivals}"
    parts = [machine, version_text(plan.deployment, plan.notes), prompts]
    if plan.client_requests:
        parts.append(f"{plan.client_requests:,} at once")
    return f"{', '.join(parts)}, {'; '.join(outputs_texts(plan))}"


def outputs_texts(plan: Plan) -> list[str]:
    """How long answers are, for each place that this is known from."""
    origins: dict[OutputOrigin, list[int]] = {}
    for output in plan.outputs:
        origins.setdefault(output.origin, []).append(output.tokens)
    texts = []
    for origin, tokens in origins.items():
        least, most = min(tokens), max(tokens)
        size = plural(most, "output token")
        if least < most:
            size = f"{least:,} to {size}"
        texts.append(ORIGINS[origin].format(size=size))
    return texts


ORIGINS = {
    OutputOrigin.ASKED: "{size} each (--max-output)",
    OutputOrigin.DATA: "at most {size} each (from the data)",
    OutputOrigin.SCORED: "{size} each (scored)",
    OutputOrigin.TASK: "at most {size} each (from the task)",
    OutputOrigin.ASSUMED: "{size} each (assumed; --max-output)",
}


# -- key figures -----------------------------------------------------------------------


def facts(plan: Plan) -> list[Fact]:
    """The figures to remember, as far as they are known."""
    found = []
    if plan.cost is not None:
        found += cost_facts(plan, plan.cost)
    if plan.memory is not None:
        found.append(memory_fact(plan))
    found += concurrency_facts(plan)
    chunks = plan.chunks
    if chunks.prompts and chunks.size is not None:
        over = f"prompts over {plural(chunks.size, 'token')}"
        found.append(Fact(label="chunked", value=share(chunks.share), remark=over))
    if plan.refused.prompts and (plan.model or plan.settings.max_model_len):
        over = f"prompts over {plural(plan.refused.room_tokens, 'token')}"
        remark = f"{over}: a server refuses them, lm-eval cuts them"
        value = f"{plan.refused.prompts:,}"
        found.append(Fact(label="too long", value=value, remark=remark))
    if plan.run is not None and plan.run.figures.preemptions:
        times = plural(plan.run.figures.preemptions, "time")
        found.append(Fact(label="preempted", value=times, remark="KV cache full"))
    return found


def cost_facts(plan: Plan, cost: Cost) -> list[Fact]:
    """The time and its range; what it costs, if the price of a GPU is known."""
    usual_s = cost.hours * HOUR_S
    least = seconds(cost.least_hours * HOUR_S, like=usual_s)
    most = seconds(cost.most_hours * HOUR_S, like=usual_s)
    span = f"{least.partition(' ')[0]} to {most}, depending on {varied(cost)}"
    found = [Fact(label="time", value=seconds(usual_s), remark=span)]
    if plan.request.price_per_hour is not None:
        per_hour = plan.request.price_per_hour * plan.effective.parallel.gpus
        low, high = (
            price(per_hour * cost.least_hours),
            price(per_hour * cost.most_hours),
        )
        value = price(per_hour * cost.hours)
        found.append(Fact(label="price", value=value, remark=f"{low} to {high}"))
    return found


def varied(cost: Cost) -> str:
    """What the time may turn out differently for."""
    return listed(list(dict.fromkeys(REASONS[code] for code in cost.varied)))


def memory_fact(plan: Plan) -> Fact:
    memory = plan.memory
    if memory is None:
        raise AssertionError("asked for only where the memory is known")
    remark = (
        f"of {memory.total_gib:.1f}: weights {memory.line('weights').gib:.1f}, "
        f"KV cache {memory.kv_cache_gib:.1f} ({memory.kv_cache_tokens:,} tokens)"
    )
    value = f"{memory.requested_gib:.1f} GiB"
    return Fact(label="memory", value=value, remark=remark)


def concurrency_facts(plan: Plan) -> list[Fact]:
    """How many requests a client does best to send at once, where nobody said."""
    requests = plan.requests_in_flight
    is_asked = plan.request.is_open or plan.client_requests
    if requests is None or plan.memory is None or is_asked or is_broken(plan):
        return []
    if plan.deployment.entry is not Entry.SERVE:  # the LLM class has all at once
        return []
    remark = "requests at once are as fast as more (simulated)"
    if plan.in_flight is None:
        remark = "requests at once fill the KV cache"
    elif requests == plan.refused.of - plan.refused.prompts:
        remark = "all of them: send all requests at once"
    return [Fact(label="concurrency", value=f"{requests:,}", remark=remark)]


# -- details ---------------------------------------------------------------------------


def datasets_table(plan: Plan) -> Table:
    """The datasets in the data's order: time, and the length rule."""
    decisions = dict(plan.decisions)
    works: dict[str, Work] = {}
    if plan.cost is not None:
        works.update(plan.cost.datasets)
        works["all together"] = plan.cost
    if len(decisions) > 1 and plan.request.dataset is None:
        decisions["all together"] = plan.decision
    rule = "length rule"
    if plan.request.mode is not None:
        rule = "mode"
    headings = ["dataset", rule, "threshold", "over it"]
    if works:
        headings.insert(1, "time")
    rows = []
    for name, decision in decisions.items():
        row = [name, *rule_cells(decision)]
        if works:
            row.insert(1, time_text(works.get(name)))
        rows.append(row)
    return table(headings, rows, words=[rule], strong=[len(rows) - 1])


def rule_cells(decision: Decision) -> list[str | int | None]:
    over = share(decision.chunks.share) if decision.chunks.prompts else None
    return [decision.mode.value, decision.threshold, over]


def time_text(work: Work | None) -> str | None:
    if work is None:
        return None
    return seconds(work.hours * HOUR_S)


def reasons_table(plan: Plan) -> Table:
    """Arguments that are set, or whose default was compared with another value."""
    rows = []
    for reason in plan.reasons:
        value, own = reason.values.get("value"), reason.values.get("own")
        rows.append(
            (
                reason.argument,
                None if value is None else as_written(value),
                None if own is None else as_written(own),
                reason_text(plan, reason),
            )
        )
    headings = ("argument", "value", "default", "why")
    return table(headings, rows, words=["why"])


def reason_text(plan: Plan, reason: Reason) -> str:
    if reason.code == "why_length_rule" and plan.request.mode is not None:
        return f"as --mode {plan.request.mode} asks"
    return sentence(reason)
