"""A plan, and a model's memory, as sections: what to set, what the run takes, what was tried."""

from collections.abc import Iterator

from chunkscope.artefacts.figures import ITL_MAX
from chunkscope.artefacts.note import Label
from chunkscope.artefacts.numbers import (
    as_written,
    by,
    number,
    plural,
    seconds,
    share,
)
from chunkscope.hardware.memory import Memory
from chunkscope.planning.plan import DEFAULT, AdviceKind, Basis, Cost, Plan, Saving
from chunkscope.report.runs import NAMES, runs_table
from chunkscope.report.section import Section, Table, table_of
from chunkscope.report.words import capital, sentence
from chunkscope.report.words.plan import STARTED, VARIATIONS
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.footprint import Footprint
from chunkscope.vllm.settings import Settings


def sections(plan: Plan) -> list[Section]:
    flags = "" if is_broken(plan) else " ".join(plan.cli_args())
    memory = _memory_table(plan.memory) if plan.memory else None
    figures = table_of(("", "", ""), facts(plan), words=("",))
    return [
        Section(sentences=tuple(map(saving, plan.savings)), top=True),
        Section(sentences=(answer(plan),), top=True),
        Section(sentences=(setup(plan),), top=True),
        Section(table=figures, top=True),
        _tried(plan),
        Section(sentences=(flags,) if flags else (), top=True),
        Section(title="Each dataset alone", table=_alone(plan), details=True),
        Section(title="Why", table=_reasons(plan), details=True),
        Section(title="Memory", table=memory, details=True),
    ]


def is_broken(plan: Plan) -> bool:
    """No setting keeps its limits: there is nothing to use."""
    return plan.advice.kind is AdviceKind.NO_SETTING


# -- the answer ----------------------------------------------------------------------------------


def saving(one: Saving) -> str:
    """What to change, and what that saves: tokens and time."""
    saved = [f"{one.tokens:,} prompt tokens"] if one.tokens else []
    if one.hours is not None:
        how = "simulated" if one.simulated else "by the prefill rate"
        saved.append(f"{seconds(one.hours * 3_600)} ({how})")
    return sentence(one) + (f": saves about {' and '.join(saved)}." if saved else ".")


def listed(settings: Settings) -> str:
    """
    >>> listed(Settings(max_num_seqs=64, max_model_len=4096))
    'max_model_len 4,096, max_num_seqs 64'
    """
    return ", ".join(f"{name} {as_written(value)}" for name, value in settings.given().items())


def answer(plan: Plan) -> str:
    return f"{advice(plan)}: {because(plan)}"


def advice(plan: Plan) -> str:
    """What to set, without a full stop: `because` goes on."""
    choice, needed = plan.advice, listed(plan.advice.needed)
    sets = choice.kind is AdviceKind.SET and bool(choice.settings.given())
    text = f"Set {listed(choice.settings)}" if sets else "Keep vLLM's defaults"
    if is_broken(plan):
        request, few = plan.request, plan.request.concurrency
        sent = f"at {request.arrivals}" if request.is_open else f"with {few or 'all'} in flight"
        text = f"No setting that was tried keeps {' and '.join(map(str, request.slo))} {sent}"
    if needed:
        text += f"{', and' if sets else ', but'} {needed} is needed for vLLM to start"
    if choice.basis is Basis.MODE:
        return f"{text}, as --mode {plan.request.mode} asks"
    alone = "By prompt lengths alone: nothing was simulated. "
    return f"{alone if choice.basis is Basis.LENGTHS else ''}{text}"


def because(plan: Plan) -> str:
    """What the advice brings, and what that rests on."""
    choice, ours, default = plan.advice, plan.run, plan.default_run
    if choice.basis is Basis.MODE:
        return "whether it pays was not simulated."
    if choice.basis is Basis.LENGTHS:
        lacking = [n for n, v in (("--model", plan.model), ("--gpu", plan.gpu)) if v is None]
        if not lacking:
            return "the speed of this GPU is not known."
        return f"which settings pay cannot be said without {' and '.join(lacking)}."
    if is_broken(plan):
        rate = f"About {choice.rate:,.3g} requests a second would keep them" if choice.rate else ""
        gpus = f"; {plan.request.arrivals} needs about {choice.gpus} GPUs" if choice.gpus else ""
        nearest = limit_state(plan.nearest_run or default)
        return f"{nearest} (simulated). {rate or 'No rate keeps them'}{gpus}."
    doubt = VARIATIONS.get(choice.doubt or "", ("",))[0]
    if plan.request.slo and choice.kind is AdviceKind.KEEP:
        return f"with them {limit_state(default)} (simulated)."
    if plan.request.slo:
        gain = f"{by(choice.gain)} throughput, and " if choice.gain else ""
        gain = "" if plan.request.is_open else gain
        unless = f", though not with {doubt}" if doubt and not choice.least_gain else ""
        return (
            f"{gain}{limit_state(ours)}{unless}; with vLLM's default {limit_state(default)} "
            "(simulated)."
        )
    if choice.kind is AdviceKind.KEEP:
        if choice.alternative is None or choice.gain is None or choice.gain < 0.001:
            return "no other setting is faster (simulated)."
        best = f"{listed(choice.alternative)}, {by(choice.gain)}"
        if doubt:
            return f"the fastest other setting ({best}) has {by(choice.least_gain)} with {doubt}."
        return f"no other setting is more than 3 % faster (best: {best}, simulated)."
    worst = f", at least {by(choice.least_gain)} with {doubt}" if doubt else ""
    gaps = [ITL_MAX.value(run.figures) or 0.0 if run else 0.0 for run in (default, ours)]
    price = f" The longest gap between tokens grows from {' to '.join(map(seconds, gaps))}."
    price = price if 0 < 1.5 * gaps[0] <= gaps[1] else ""
    return f"{by(choice.gain)} throughput over vLLM's default{worst} (simulated).{price}"


def limit_state(run: SimulatedRun | None) -> str:
    """`itl_p99 stays 31 % below its 50 ms`, or by how much it is broken."""
    if run is None or run.slo is None:
        return "it does not run"
    limit, allowed = run.slo.tightest, seconds(run.slo.tightest.seconds)
    if run.backlog is not None and run.backlog.grows:
        return "requests come faster than they are served"
    if run.slo.is_met:
        return f"{limit.name} stays {share(1 - run.slo.use)} below its {allowed}"
    return f"{limit.name} is {seconds(run.slo.found_of(limit))}, limit {allowed}"


# -- what it rests on ----------------------------------------------------------------------------


def where(model: str, gpu: str | None, gpus: int = 1) -> str:
    """
    >>> where("Qwen/Qwen3-8B", "NVIDIA H100 80GB HBM3"), where("Qwen3-8B", "NVIDIA A100", 2)
    ('Qwen3-8B on one H100 80GB', 'Qwen3-8B on 2 x A100')
    """
    name = model.rstrip("/").rpartition("/")[2]
    if gpu is None:
        return name
    many = f"{gpus} x" if gpus > 1 else "one"
    return f"{name} on {many} {gpu.removeprefix('NVIDIA ').partition(' HBM')[0]}"


def place(plan: Plan) -> str:
    """The model and its machine."""
    model = plan.model.load_name if plan.model else "any model"
    return where(model, plan.gpu.title if plan.gpu else None, plan.effective.parallel.gpus)


def setup(plan: Plan) -> str:
    """What it was planned for: model, machine, version, requests."""
    started = "" if plan.deployment.entry == "serve" else f", {STARTED[plan.deployment.entry]}"
    outputs = dict.fromkeys(
        f"{'at most ' if o.origin in ('data', 'task') else ''}{plural(o.tokens, 'output token')} "
        f"each ({o.origin})"
        for o in plan.outputs
    )
    prompts = plural(plan.refused.of, "prompt")
    engine = f"{capital(place(plan))}, vLLM {plan.release.text}{started}"
    return f"{engine}, {prompts}, {'; '.join(outputs)}"


def facts(plan: Plan) -> list[tuple[str, str, str]]:
    """What the run takes: a label, a figure, what it means. What is not known is left out."""
    facts, is_batch = [], not plan.request.is_open
    if (cost := plan.cost) is not None:
        if is_batch:
            facts.append(("time", seconds(cost.hours * 3_600), _time(plan, cost)))
        assumed = " (assumed)" if any(output.is_assumed for output in plan.outputs) else ""
        work = f"in the prompts, {cost.output_tokens:,} in the answers{assumed}"
        facts.append(("tokens", number(cost.input_tokens), work))
    if (memory := plan.memory) is not None:
        weights, activation = (memory.line(name).gib for name in ("weights", "activation"))
        parts = (
            f"of {memory.total_gib:.1f}: weights {weights:.1f}, KV cache {memory.kv_cache_gib:.1f} "
            f"({memory.kv_cache_tokens:,} tokens), activations {activation:.1f}"
        )
        facts.append(("memory", f"{memory.requested_gib:.1f} GiB", parts))
    many = plan.requests_in_flight
    if many is not None and is_batch and not plan.request.concurrency:
        facts.append(("requests", f"{many:,}", "send at least so many at once"))
    if (chunks := plan.chunks).prompts and chunks.size is not None and chunks.longest is not None:
        size = f"longer than {number(chunks.size)} tokens, read in up to {chunks.longest} chunks"
        facts.append(("long prompts", share(chunks.share), size))
    if plan.refused.prompts and (plan.model or plan.settings.max_model_len):
        room = f"prompts over {plan.refused.room_tokens:,} tokens leave no room for the answer"
        room += ": a server refuses them, lm-eval cuts them, the LLM class cuts the answers"
        facts.append(("too long", f"{plan.refused.prompts:,}", room))
    if times_preempted := plan.run.figures.preemptions if plan.run else None:
        help_ = "the KV cache is full; fewer requests at once or --kv-cache-dtype fp8 would help"
        facts.append(("preempted", plural(times_preempted, "time"), help_))
    return facts


def _time(plan: Plan, cost: Cost) -> str:
    """How sure that is, and what it costs."""
    varied = ", ".join(dict.fromkeys(VARIATIONS[code][1] for code in cost.varied))
    hours, price = (cost.hours, cost.least_hours, cost.most_hours), plan.request.price_per_hour
    _, least, most = (seconds(hour * 3_600) for hour in hours)
    text = f"{least} to {most}, depending on {varied}; simulated, without loading the model"
    if price is None:
        return text
    prices = [one * price * plan.effective.parallel.gpus for one in hours]
    usual, least, most = ("under 0.01" if one < 0.01 else f"{one:,.2f}" for one in prices)
    return f"{text}; price {usual} ({least} to {most})"


# -- tables --------------------------------------------------------------------------------------


def _tried(plan: Plan) -> Section:
    """What was simulated, and of how many requests where that is not all of them."""
    runs, total = plan.tried, plan.refused.of
    strong = [at for at, run in enumerate(runs) if run is plan.run and not is_broken(plan)]
    table = runs_table([(_row_name(plan, run), run) for run in runs], strong=strong)
    sent = runs[0].requests if runs else total
    sampled = f"simulated on a sample of {sent:,} of {total:,} requests"
    notes = (*([sampled] if sent < total else []), *map(sentence, plan.notes))
    return Section(table=table, notes=notes)


def _row_name(plan: Plan, run: SimulatedRun) -> str:
    """What it is; of one that is better and not advised, why not."""
    name, gain = NAMES[run.setting], plan.advice.gain or 0
    why_not = "not in every case" if plan.advice.doubt else "gain under 3 %"
    is_better = run.setting != DEFAULT and run is not plan.run and not run.slo and gain > 0
    return f"{name} ({why_not})" if is_better else name


def _alone(plan: Plan) -> Table | None:
    """The datasets in the data's order: time, and the length rule."""
    costs = plan.cost.datasets if plan.cost else {}
    lines = list(plan.decisions.items())
    if len(plan.decisions) > 1 and plan.request.dataset is None:
        lines.append(("all together", plan.decision))
    rows = [
        (
            *(name, seconds(costs[name].hours * 3_600) if name in costs else None),
            *(one.mode.value, one.threshold),
            *(share(one.chunks.share) if one.chunks.prompts else None, one.tier.value),
        )
        for name, one in lines
    ]
    heads = ("dataset", "time", "length rule", "threshold", "over it", "benefit")
    return table_of(heads, rows, words=("length rule", "benefit"), strong=[len(rows) - 1])


def _reasons(plan: Plan) -> Table | None:
    """Of the arguments that are set, or whose default was weighed against something."""
    default, given = plan.default.given(), plan.settings.given()
    rows = [
        (
            *(name, as_written(given.get(name, default.get(name, "-")))),
            *(as_written(default.get(name, "-")), sentence(reason)),
        )
        for name, reason in ((reason.argument, reason) for reason in plan.reasons)
    ]
    return table_of(("argument", "value", "default", "why"), rows, words=("why",))


# -- memory --------------------------------------------------------------------------------------


def footprint_sections(footprint: Footprint) -> list[Section]:
    lengths = footprint.requests
    fitting = table_of(
        ("tokens per request", *(f"{length:,}" for length in lengths)),
        [("requests that fit", *lengths.values())],
    )
    return [
        Section(sentences=tuple(_fits(footprint)), table=_memory_table(footprint.memory)),
        Section(table=fitting, notes=tuple(map(sentence, footprint.notes))),
    ]


def _fits(footprint: Footprint) -> Iterator[str]:
    settings, memory = footprint.settings, footprint.memory
    gpus = where(footprint.shape.load_name, footprint.gpu.title, settings.parallel.gpus)
    if footprint.refusals:
        yield f"{gpus} does not run: {'; '.join(map(sentence, footprint.refusals))}."
    else:
        longest, most = footprint.requests[footprint.context], settings.max_num_seqs or 0
        each = " per replica" if settings.parallel.data > 1 else ""
        many = f"all {most:,} requests" if longest >= most else plural(longest, "request")
        yield (
            f"{gpus} fits: {memory.kv_cache_tokens:,} tokens of KV cache{each}, enough for "
            f"{many} of the full {footprint.context:,} tokens."
        )
    kib = memory.kv_cache_bytes / 1024 / memory.kv_cache_tokens if memory.kv_cache_tokens else None
    per_token = f" A token takes {kib:,.4g} KiB of KV cache on each GPU." if kib else ""
    yield (
        f"Predicted for vLLM {footprint.deployment.release.text} ({footprint.deployment.entry}): "
        f"{number(settings.max_num_batched_tokens)} tokens per step, at most "
        f"{number(settings.max_num_seqs)} requests at once.{per_token}"
    )


def _memory_table(memory: Memory) -> Table | None:
    """What one GPU holds, line by line: GiB, whether it is measured, and from what it is known."""
    rows = [
        (line.name.replace("cuda_", "CUDA "), line.gib, line.label.value, sentence(line.note))
        for line in memory.lines
    ]
    left = f"what is left: {memory.kv_cache_tokens:,} tokens"
    rows.append(("KV cache", memory.kv_cache_gib, memory.kv_cache_label or Label.PREDICTED, left))
    rows.append(("all together", memory.requested_gib, "", f"of {memory.total_gib:.1f} GiB"))
    rows = [row for row in rows if abs(row[1]) >= 0.005]
    return table_of(
        ("per GPU", "GiB", "known", "from"),
        [(part, f"{gib:.2f}", *known) for part, gib, *known in rows],
        words=("known", "from"),
        strong=[len(rows) - 1],
    )
