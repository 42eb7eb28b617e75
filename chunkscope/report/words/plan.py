"""Sentences about a plan, and about the models, GPUs and memory behind it."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from chunkscope.artefacts.figures import ITL_MAX, TTFT_P95
from chunkscope.artefacts.note import Note
from chunkscope.artefacts.numbers import (
    as_written,
    by,
    per_second,
    plural,
    seconds,
    share,
)
from chunkscope.models.find import MODELS
from chunkscope.planning.plan import AdviceKind, Basis, Cost, Plan, Saving
from chunkscope.report.words import Template, sentence
from chunkscope.simulation.result import SimulatedRun
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.footprint import Footprint
from chunkscope.vllm.settings import Settings

VARIATIONS = {  # code: (the case, what varies)
    "no_cpu_time": (
        "zero CPU overhead",
        "CPU overhead",
    ),  # of plans made before 2026-11
    "faster_cpu": ("a CPU twice as fast", "CPU overhead"),
    "slower_cpu": ("a CPU that takes 1.5 times as long", "CPU overhead"),
    "second_draw": ("another sample", "the sample"),
    "longer_prompts": ("prompts 10 % longer", "lengths"),
    "shorter_prompts": ("prompts 10 % shorter", "lengths"),
    "shorter_outputs": ("outputs half as long", "lengths"),
    "longer_outputs": ("outputs twice as long", "lengths"),
    "seen_on_gpus": ("", "prediction error"),
}
NAMES = {
    "default": "vLLM's default",
    "plan": "the plan",
    "off": "chunking off",
    "asked": "your setting",
    "length-rule": "length rule",
    "best": "best found",
}
ORIGINS = {"asked": "--max-output", "assumed": "assumed; --max-output"}
_TOKENIZER = re.compile(r" (?:-[tm] ?|--(?:tokenizer|model)[= ])('[^']*'|\S+)")
STARTED = {"serve": "vllm serve", "llm": "vLLM's LLM class", "other": "vLLM's engine"}
_SHARED = (
    "[prefix?all prompts are assumed to share {prefix:token}|{share:%} of the prompt tokens repeat"
    " the start of an earlier prompt][compared? (judged by {compared:prompt})]"
)


def _weights(billions: float, kind: str, gpus: int, *, shares_experts: bool) -> str:
    what = "the size of the weight files" if kind == "files" else kind
    how = "experts shared by replicas" if shares_experts else "split"
    over = f", {how} over {gpus} GPUs" if gpus > 1 else ""
    return f"{billions:,.2f} billion parameters, {what}{over}"


def _unlike(
    nearest: str, least: float, most: float, kind: Any, gpu: Any, gpus: Any
) -> str:
    missing = (
        kind and f"a model like this ({kind})",
        gpu,
        f"{gpus} GPUs" if gpus else None,
    )
    ends = dict.fromkeys((least, most))
    off = " to ".join(
        f"{share(abs(e))} too {'short' if e < 0 else 'long'}" for e in ends
    )
    return (
        f"never measured: {', '.join(filter(None, missing))}; on one H200 with {nearest}, "
        f"predicted times were {off}" + ("; communication is assumed" if gpus else "")
    )


ASSUMED = (
    "vllm_not_installed",
    "assumed_output",
    "gpu_unchecked",
)  # joined in one line
ACCURACY = "unlike_measured"  # how far predicted times were off
BACKGROUND = (ACCURACY, "sliding_window")  # only in the details
FIRST = ("prompts_refused", "agent_turns")  # said before the answer
SENTENCES: dict[str, Template] = {
    "vllm_not_installed": "vLLM {version} (newest known)",
    "assumed_output": "{tokens} output tokens each (--max-output)",
    "gpu_unchecked": "the {figure} of {gpu}",
    # savings
    "score_contexts_once": "{dataset}[others? and {others} more]: each context is computed "
    "{reads:.1f} times; {how:words}",
    "generative_scoring": "score all choices in one request (/generative_scoring, vLLM 0.20 on)",
    "next_token": "score all choices in one request that generates one token with logprobs",
    "read_cache": "let the requests read the prefix cache (prompt_logprob_start, vLLM 0.31 on)",
    "early_difference": "{dataset}: about {prompts:prompt} are the same except near the start "
    '("{text}", "{other}"); move that part to the end',
    "few_in_flight": "[harness?{harness}|The client] sends {concurrency:request} at once; send "
    "{enough} (lm-eval: num_concurrent or --batch_size, Inspect: --max-connections)",
    # arguments
    "why_default_is_best": "default; no other value was faster",
    "why_gains": "{gain:+%} throughput, all flags together (simulated)",
    "why_gain_in_doubt": lambda best, gain, least, doubt, **_: (
        f"default; {as_written(best)} would gain {by(gain)}, but {by(least)} with "
        f"{VARIATIONS[doubt][0]} (simulated)"
    ),
    "why_too_little_gain": "default; {best} changes throughput by {gain:+%} (simulated)",
    "why_needed_max_num_batched_tokens": "the default {own} does not fit; {value} does (predicted)",
    "why_keeps_limits": "keeps the limits (simulated)",
    "why_length_rule": "by the length rule",
    "why_threshold_ends_nothing": "the length rule's {threshold} tokens would split nothing",
    "why_needed_long_prefill_token_threshold": "the logits of larger chunks do not fit (predicted)",
    "why_needed_gpu_memory_utilization": "so that the logits of prompt_logprobs fit (predicted)",
    "why_needed_max_model_len": "the model's {own} tokens do not fit the KV cache (predicted)",
    "why_needed_max_num_seqs": "with more, one request of full length would not fit (predicted)",
    "why_asked": "as asked",
    "why_asked_kv_cache": "as asked; it can change the model's answers",
    # notes
    "vllm_newer": "vLLM {version} is newer than {newest}: assuming that it behaves the same",
    "vllm_development": "vLLM {version} is a development build: assuming {newest}",
    "shared_prefixes": f"{_SHARED}; the prefix cache can serve them",
    "shared_but_not_read": f"{_SHARED}, but likelihood requests do not read the prefix cache",
    "longest_first": "requests are sent longest first",
    "other_tokenizer": lambda tokenizer, name, command=(), **_: (
        f"counted with {tokenizer}; exact lengths: "
        f"{_TOKENIZER.sub('', shlex.join(command)) or 'chunkscope analyze data/'} "
        f"--model {shlex.quote(name)}"
    ),
    "measured_in_log": "memory figures of {log} replace the predicted ones",
    "replicas_wait": "replicas are simulated one by one, without waiting for each other",
    "unstretched": "vLLM's default context is {tokens} tokens; --max-model-len takes up to {limit}",
    "unmeasured_kv_cache": "a KV cache of {dtype} was never measured: costs are scaled by bytes",
    "window_hits": "prefix hits are those of full-attention layers: vLLM may find fewer",
    "no_window_hits": "no prefix hits are counted: no layer keeps all tokens",
    "states_not_aligned": "vLLM ends chunks at block borders to keep states: not simulated",
    "prompts_refused": "{count} of {of} prompts do not fit: max_model_len {context} leaves "
    "{room} tokens for a prompt. A server refuses them, lm-eval cuts them, and no time below "
    "counts them",
    "agent_turns": "These are the {requests:request} of {samples:sample}, planned as if none "
    "waited for another. Turns do wait, so the run takes longer than predicted; and more samples "
    "at once than fit the KV cache make it slower, not faster",
    "answers_are_lengths": "answers are as long as the numbers in {field} say",
    "answers_are_texts": "answers are as long as the texts in {field}",
    "media_not_timed": "images, audio and video are not counted: the time is that of the text",
    "no_time": "no time is predicted: the longest request does not run with these settings",
    "other_profile": "the plan was made from another profile",
    "prompts_left_out": "left out: {count:prompt} too long for max_model_len",
    "trace_left_out": "left out: {count} of {of:request}, longer than max_model_len ({context})",
    "setting_left_out": "{setting} is left out: the longest request does not fit",
    # refusals
    "refused_unchunked_budget": "with chunking off, max_num_batched_tokens is below max_model_len",
    "refused_budget_below_seqs": "max_num_batched_tokens is below max_num_seqs ({max_num_seqs})",
    "refused_active_over_seqs": "max_num_active_seqs is over max_num_seqs ({max_num_seqs})",
    "refused_threshold": "long_prefill_token_threshold is negative or over max_model_len",
    "refused_context_over_limit": "max_model_len ({max_model_len}) is over the model's {limit}",
    "refused_utilization": "gpu_memory_utilization must be over 0 and leave the driver some memory",
    "refused_below_one": "a size or a number of GPUs is below 1",
    "refused_replicas_need_serve": "data_parallel_size needs vllm serve",
    "refused_off_with_threshold": "chunked prefill is off, and a threshold would still chunk",
    "refused_unknown": "vLLM {version} does not know this argument",
    "refused_no_memory": lambda missing_gib, tp, full_tp, **_: (
        f"the model does not fit, {missing_gib:,.2f} GiB are missing per GPU: "
        f"{f'--tp {tp} would fit; or ' if tp else ''}take a larger GPU or quantized weights"
        + (
            f". Its whole context needs --tp {full_tp}"
            if full_tp not in (tp, None)
            else ""
        )
    ),
    "refused_kv_cache": "one request of {max_model_len} tokens (max_model_len) does not fit the KV "
    "cache, which holds {tokens}: lower max_model_len[full_tp?, or set --tp {full_tp}]",
    "refused_logprobs": "prompt_logprobs need {taken_gib:,.2f} GiB more; {free_gib:,.2f} are free",
    # emitted forms
    "emit_spelled_out": "planned for --entry {entry}: defaults that differ here are spelled out",
    "emit_breaks_limits": "this does NOT keep the limits: {limits}",
    "emit_in_flight": "send {requests:request} at once: fewer leave the server idle, more only wait",
    "emit_fill_in": "replace {names} with your own",
    "emit_config_blank": "write `--config FILE` with a space: vLLM ignores `--config=FILE`",
    "emit_lm_eval_memory": "gpu_memory_utilization is spelled out: lm-eval has its own default",
    "emit_lm_eval_cuts": "lm-eval cuts prompts to {context} tokens less the task's max_gen_toks",
    "emit_inspect_connections": "add --max-connections: Inspect sends 10 requests at a time",
    "emit_token_variable": "a gated model needs HF_TOKEN in your environment",
    "emit_token_secret": "a gated model needs a token: `kubectl create secret generic hf-token "
    "--from-literal=token=$HF_TOKEN`",
    "emit_node_folder": "the node must have the folder {folder}",
    # Models, GPUs and step times.
    "volta": "vLLM {version} is built for CUDA 13, which leaves the V100 out",
    "second_start": "the first start compiles and refuses this context: then start vLLM again",
    "unknown_model_type": "model_type {name} is not known: its memory may be off",
    "unknown_quantization": "quantization {method} is not known: 16-bit weights assumed",
    "weights_by_formula": "weights are estimated from config.json: no safetensors files are there",
    "vision_tower": "[weighed?activations for images and sound are left out|"
    "weights and activations for images and sound are left out]",
    "sliding_window": "a window of {tokens:token} in {layers:layer}: no older KV is kept",
    "stateful_layers": "{layers:layer} with a state instead of a KV cache[known?| (estimated)]",
    "unlike_measured": _unlike,
    "rough_gaps": "gaps measured on H200: p99 up to {p99:g}x the prediction, longest {longest:g}x",
    # The lines of a memory bill.
    "memory_weights": _weights,
    "memory_activation": "{tokens:token}[expands? in one step, and the context they attend to, "
    "expanded| x {kib:,.0f} KiB in one step]",
    "memory_experts": "{tokens:token} x {kib:,.0f} KiB, which the experts' kernel keeps",
    "memory_sampler": "{requests:request} x {vocab} logits, beyond the activations",
    "memory_compiling": "a first start only: the compiler copies the embedding",
    "memory_overhead": "CUDA context, buffers[several?, communication]",
    "memory_cuda_graphs": "{layers:layer}[counted?|, outside this version's budget]",
    "memory_logprobs": "prompt_logprobs: {tokens:token} x {vocab} entries, outside vLLM's budget",
    "memory_left": "what is left: {tokens:token}",
    "memory_total": "of {gib:.1f} GiB",
    "memory_correction": "{log} shows a KV cache of {tokens} tokens",
}


# -- the answer ----------------------------------------------------------------------------------


def saving(one: Saving) -> str:
    """What to change, and how many tokens and how much time that saves."""
    saved = [f"{one.tokens:,} prompt tokens"] if one.tokens else []
    if one.hours is not None:
        how = "simulated" if one.simulated else "estimated"
        saved.append(f"{seconds(one.hours * 3_600)} ({how})")
    return sentence(one) + (f": saves about {' and '.join(saved)}." if saved else ".")


def listed(settings: Settings, default: Settings | None = None) -> str:
    """
    >>> listed(Settings(max_num_seqs=64, max_model_len=4096), Settings(max_num_seqs=256))
    'max_model_len 4,096, max_num_seqs 64 instead of 256'
    """
    usual = (default or Settings()).given()
    usual = {
        n: f" instead of {as_written(v)}" for n, v in usual.items() if v
    }  # 0 is no limit
    return ", ".join(
        f"{n} {as_written(v)}{usual.get(n, '')}" for n, v in settings.given().items()
    )


def is_broken(plan: Plan) -> bool:
    return plan.advice.kind is AdviceKind.NO_SETTING


def warnings(plan: Plan) -> list[str]:
    """What has to be known before the answer is used."""
    return [f"{sentence(one)}." for one in plan.notes if one.code in FIRST]


def answer(plan: Plan) -> str:
    """What to set, and why: the gain, what it rests on and its price."""
    advice, run, default = plan.advice, plan.run, plan.default_run
    if is_broken(plan):
        return _limits_broken(plan)
    change, gain = _advised(plan), advice.gain
    if advice.basis is Basis.LENGTHS:
        missing = " and ".join(lacking(plan)) or "a known GPU"
        change = f"By prompt lengths alone, {change[0].lower()}{change[1:]}"
        return f"{change}: without {missing} nothing can be simulated."
    if advice.basis is Basis.MODE:
        change += f" (--mode {plan.request.mode})"
        if run is None or default is None or run is default:
            return f"{change}: {'this mode changes nothing here' if run else 'not simulated'}."
        gain = default.figures.makespan_s / run.figures.makespan_s - 1
    return (
        f"{change}: {_within_limits(plan) if plan.request.slo else _gain(plan, gain)}"
    )


def _advised(plan: Plan) -> str:
    advice, given, needed = (
        plan.advice,
        plan.settings.given(),
        plan.advice.needed.given(),
    )
    # Settings that became vLLM's own default are no change.
    changed = {n: v for n, v in advice.settings.given().items() if n in given}
    text, joint = (
        f"Keep vLLM's {'other ' * bool(given.keys() - needed.keys())}defaults",
        "but",
    )
    if advice.kind is AdviceKind.SET and changed:
        text, joint = f"Set {listed(Settings.of(changed), plan.default)}", "and"
    is_needed = f"{'are' if len(needed) > 1 else 'is'} needed"
    is_needed += " for vLLM to start" * (advice.basis is not Basis.MODE)
    return f"{text}, {joint} {listed(advice.needed)} {is_needed}" if needed else text


def _limits_broken(plan: Plan) -> str:
    request, advice = plan.request, plan.advice
    state = limit_state(plan.default_run, at_a_rate=bool(advice.rate))
    gpus = f"; {request.arrivals} needs about {advice.gpus} GPUs" if advice.gpus else ""
    using = f" with {listed(advice.alternative)}" if advice.alternative else ""
    rate = f"A rate of about {per_second(advice.rate)} would do{using}{gpus}"
    needs = (
        f" To start, vLLM needs {listed(advice.needed)}."
        if advice.needed.given()
        else ""
    )
    limits = (
        " and ".join(map(str, request.slo))
        + f" at {request.arrivals}" * request.is_open
    )
    broken = f"No setting that was tried keeps {limits}: with vLLM's default, {state}"
    return f"{broken} (simulated). {rate if advice.rate else 'No lower rate helps'}.{needs}"


def _within_limits(plan: Plan) -> str:
    advice, default = plan.advice, plan.default_run
    if advice.kind is AdviceKind.KEEP:
        return f"{limit_state(default)} (simulated)."
    gain = f"{by(advice.gain)} throughput, and " * bool(
        advice.gain and not plan.request.is_open
    )
    is_certain = not advice.doubt or advice.least_gain
    unless = (
        "" if is_certain else f", though not with {VARIATIONS[advice.doubt or ''][0]}"
    )
    is_kept = default and default.slo and default.slo.is_met
    instead = "" if is_kept else f"; with vLLM's default {limit_state(default)}"
    return f"{gain}{limit_state(plan.run)}{unless}{instead} (simulated).{_price(plan)}"


def _gain(plan: Plan, gain: float | None) -> str:
    advice = plan.advice
    least = (
        f"{by(advice.least_gain)} with {VARIATIONS[advice.doubt][0]}"
        if advice.doubt
        else ""
    )
    if advice.kind is AdviceKind.SET:
        return f"{throughput(gain)}{least and f', at least {least}'} (simulated).{_price(plan)}"
    if not (least and (other := advice.alternative)):
        return (
            f"no other setting is more than 3 % faster (simulated).{_for_nothing(plan)}"
        )
    return (
        f"{listed(other)} gives {by(advice.gain)} throughput, but {least} (simulated)."
    )


def _for_nothing(plan: Plan) -> str:
    """What the best other setting brings to those who stream, where it costs no time:
    ` But max_num_batched_tokens 2,048 cuts the longest gap ...`"""
    default, other = plan.default_run, plan.advice.alternative
    best = next((run for run in plan.tried if run is not default), None)
    if default is None or best is None or other is None:
        return ""
    before, after = ITL_MAX.value(default.figures), ITL_MAX.value(best.figures)
    if before is None or after is None or 2 * after > before:
        return ""
    if best.figures.makespan_s > default.figures.makespan_s:
        return ""
    return (
        f" If you stream answers, set {listed(other)}: at no cost in time, the longest gap "
        f"between tokens is {seconds(after)} instead of {seconds(before)}."
    )


def _price(plan: Plan) -> str:
    """What gets worse by half or more: ` The longest gap between tokens grows from ...`"""
    figure = TTFT_P95 if plan.request.is_open else ITL_MAX
    both = (run.figures if run else None for run in (plan.default_run, plan.run))
    before, after = (
        figure.value(figures) or 0.0 if figures else 0.0 for figures in both
    )
    is_limited = figure.promise in {limit.name for limit in plan.request.slo}
    grows = 0 < 1.5 * before <= after and not is_limited
    return (
        f" The {figure.title} grows from {seconds(before)} to {seconds(after)}."
        if grows
        else ""
    )


def flags(plan: Plan) -> str:
    """The arguments as typed; empty if the limits are broken."""
    given = {} if is_broken(plan) else plan.settings.given()
    if plan.deployment.entry is Entry.LLM:
        return ", ".join(f"{name}={value!r}" for name, value in given.items())
    return shlex.join(plan.cli_args()) if given else ""


def lacking(plan: Plan) -> list[str]:
    return [
        name for name, v in (("--model", plan.model), ("--gpu", plan.gpu)) if v is None
    ]


def throughput(gain: float | None) -> str:
    """`+13 % throughput over vLLM's default`, or against it, or as fast."""
    if not round(gain or 0.0, 3):
        return "as fast as vLLM's default"
    return f"{by(gain)} throughput {'over' if (gain or 0) > 0 else 'against'} vLLM's default"


def limit_state(run: SimulatedRun | None, *, at_a_rate: bool = True) -> str:
    """`itl_p99 is 31.0 ms, within the limit of 50.0 ms`, for the tightest limit."""
    if run is None or run.slo is None:
        return "it does not run"
    limit = run.slo.tightest
    if (value := run.slo.found_of(limit)) is None:  # one token has no gap
        return f"{limit.name} does not apply"
    allowed, value_text = TTFT_P95.unit.write_both(limit.seconds, value)
    if at_a_rate and run.backlog is not None and run.backlog.grows:
        return "requests come faster than they are served"
    side = "within" if run.slo.is_met else "over"
    return f"{limit.name} is {value_text}, {side} the limit of {allowed}"


# -- what it rests on ----------------------------------------------------------------------------


def where(
    model: str, gpu: str | None, gpus: int = 1, notes: Sequence[Note] = ()
) -> str:
    """
    >>> where("Qwen/Qwen3-8B", "NVIDIA H100 80GB HBM3"), where("qwen3-8b", "NVIDIA A100", 2)
    ('Qwen3-8B on one H100 80GB', 'Qwen3-8B on 2 x A100')
    """
    name = (
        (MODELS[model].hub_ids[0] if model in MODELS else model)
        .rstrip("/")
        .rpartition("/")[2]
    )
    if gpu is None:
        return name
    card = gpu.removeprefix("NVIDIA ").removeprefix("a ").partition(" HBM")[0]
    one = "a" if gpu.startswith("a ") else "one"
    never = " (never measured)" * any(one.code == ACCURACY for one in notes)
    return f"{name} on {f'{gpus} x' if gpus > 1 else one} {card}{never}"


def planned_for(plan: Plan) -> str:
    return (
        f"{'Predicted' if plan.memory or plan.cost else 'Planned'} for {setup(plan)}."
    )


def setup(plan: Plan) -> str:
    """Model, machine, version and requests of the plan."""
    outputs = []
    for origin in dict.fromkeys(output.origin for output in plan.outputs):
        tokens = sorted(
            output.tokens for output in plan.outputs if output.origin == origin
        )
        least = f"{tokens[0]:,} to " if tokens[0] < tokens[-1] else ""
        most = "at most " if origin in ("data", "task") else ""
        source = f"from the {origin}" if most else ORIGINS.get(origin, origin)
        outputs.append(
            f"{most}{least}{plural(tokens[-1], 'output token')} each ({source})"
        )
    sent = f" at {plan.request.arrivals}" if plan.request.is_open else ""
    if plan.client_requests:
        sent += f", {plan.client_requests:,} at once"
    prompts = plural(plan.refused.of, "prompt") + sent
    model, gpu = plan.model.load_name if plan.model else "Any model", plan.gpu
    place = where(
        model, gpu.title if gpu else None, plan.effective.parallel.gpus, plan.notes
    )
    return f"{place}, {version(plan.deployment, plan.notes)}, {prompts}, {'; '.join(outputs)}"


def version(deployment: Engine, notes: Sequence[Note]) -> str:
    newest = " (newest known)" * any(one.code == ASSUMED[0] for one in notes)
    started = "" if deployment.entry == "serve" else f", {STARTED[deployment.entry]}"
    return f"vLLM {deployment.release.text}{newest}{started}"


def facts(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Label, figure and explanation of each known key figure."""
    if plan.cost is not None:
        yield "time", *_time(plan, plan.cost)
    if (memory := plan.memory) is not None:
        kv_cache = (
            f"KV cache {memory.kv_cache_gib:.1f} ({memory.kv_cache_tokens:,} tokens)"
        )
        parts = f"of {memory.total_gib:.1f}: weights {memory.line('weights').gib:.1f}, {kv_cache}"
        yield "memory", f"{memory.requested_gib:.1f} GiB", parts
    # The LLM class has all requests at once.
    many = plan.requests_in_flight if plan.deployment.entry is Entry.SERVE else None
    is_free = not (plan.request.is_open or plan.client_requests or is_broken(plan))
    if many and memory and is_free:
        yield "concurrency", f"{many:,}", _concurrency(plan, many)
    if (chunks := plan.chunks).prompts and chunks.size is not None:
        yield (
            "chunked",
            share(chunks.share),
            f"prompts over {plural(chunks.size, 'token')}",
        )
    if plan.refused.prompts and (plan.model or plan.settings.max_model_len):
        which = f"prompts over {plural(plan.refused.room_tokens, 'token')}: a server refuses them"
        yield "too long", f"{plan.refused.prompts:,}", f"{which}, lm-eval cuts them"
    if times_preempted := plan.run.figures.preemptions if plan.run else None:
        yield "preempted", plural(times_preempted, "time"), "KV cache full"


def _concurrency(plan: Plan, many: int) -> str:
    if plan.in_flight is None:
        return "requests at once fill the KV cache"
    if many == plan.refused.of - plan.refused.prompts:
        return "all of them: send all requests at once"
    return "requests at once are as fast as more (simulated)"


def _time(plan: Plan, cost: Cost) -> tuple[str, str]:
    """The time; its range and price."""
    hours = (cost.hours, cost.least_hours, cost.most_hours)
    usual, least, most = (
        seconds(3_600 * hour, like=3_600 * cost.hours) for hour in hours
    )
    varied = ", ".join(dict.fromkeys(VARIATIONS[code][1] for code in cost.varied))
    text = f"{least.partition(' ')[0]} to {most}, depending on {varied}"
    if (per_gpu := plan.request.price_per_hour) is None:
        return usual, text
    prices = [per_gpu * plan.effective.parallel.gpus * hour for hour in hours]
    price, low, high = ("under 0.01" if one < 0.01 else f"{one:,.2f}" for one in prices)
    return usual, f"{text}; price {price} ({low} to {high})"


def after_plan(plan: Plan, file: str) -> str:
    """The command that usually comes next; `file` is the plan's, as a word if it is not usual."""
    if is_broken(plan):
        find = f"chunkscope simulate{file} --find-rate"
        return find if plan.advice.rate else "another --gpu or --slo"
    if plan.deployment.entry is not Entry.SERVE:
        return f"chunkscope verify{file}, or --emit python or lm-eval"
    if plan.advice.basis is Basis.LENGTHS and (missing := lacking(plan)):
        return " ".join(
            (shlex.join(plan.source.command), *(f"{name} NAME" for name in missing))
        )
    name = shlex.quote(plan.model.load_name if plan.model else "MODEL")
    return f"vllm serve {name} {flags(plan)}".rstrip()


def tried_name(plan: Plan, run: SimulatedRun) -> str:
    other = None if run in (plan.run, plan.default_run) else plan.advice.alternative
    return listed(other) if other else NAMES[run.setting]


def cautions(plan: Plan) -> Iterator[str]:
    """The size of the sample if there is one, then the plan's notes."""
    total = plan.refused.of - plan.refused.prompts
    if plan.tried and (sent := plan.tried[0].requests) < total:
        yield f"the table shows a sample: {sent:,} of {total:,} requests"
    shown = ASSUMED[
        : 1 + all(o.origin != "task" for o in plan.outputs)
    ]  # `setup` says these
    yield from phrases(plan.notes, *shown, *BACKGROUND, *FIRST)


def phrases(notes: Sequence[Note], *left_out: str) -> list[str]:
    """A sentence for each note that is not left out; one for all assumptions."""
    notes = [one for one in notes if one.code not in left_out]
    assumed = ", ".join(sentence(one) for one in notes if one.code in ASSUMED)
    others = [sentence(one) for one in notes if one.code not in ASSUMED]
    return [f"assuming {assumed}", *others] if assumed else others


def fits(footprint: Footprint) -> Iterator[str]:
    settings, memory = footprint.settings, footprint.memory
    gpus = where(footprint.shape.load_name, footprint.gpu.title, settings.parallel.gpus)
    if footprint.refusals:
        yield f"{gpus} does not run: {'; '.join(map(sentence, footprint.refusals))}."
    else:
        longest, most = (
            footprint.requests[footprint.context],
            settings.max_num_seqs or 0,
        )
        each = " per replica" if settings.parallel.data > 1 else ""
        many = "all " * (longest >= most > 1) + plural(min(longest, most), "request")
        yield (
            f"{gpus} fits: {memory.kv_cache_tokens:,} tokens of KV cache{each}, enough for "
            f"{many} of the full {plural(footprint.context, 'token')}."
        )
    kib = (
        memory.kv_cache_bytes / 1024 / memory.kv_cache_tokens
        if memory.kv_cache_tokens
        else None
    )
    per_token = f" {kib:,.4g} KiB of KV cache per token and GPU." if kib else ""
    yield (
        f"Predicted for {version(footprint.deployment, footprint.notes)}: "
        f"{plural(settings.max_num_batched_tokens or 0, 'token')} per step, at most "
        f"{plural(settings.max_num_seqs or 0, 'request')} at once.{per_token}"
    )
