"""What is said of a plan and of a simulated run: advice, reasons, warnings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import (
    as_written,
    by,
    duration,
    money,
    number,
    plural,
    seconds,
    share,
)
from chunkscope.artefacts.units import SECONDS
from chunkscope.report.words import Template, sentence

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan, TriedRow
    from chunkscope.simulation.result import SimulatedRun
    from chunkscope.vllm.footprint import Footprint
    from chunkscope.vllm.settings import Settings

MEMORY_PARTS = {
    "activation": "activations",
    "experts": "expert buffers",
    "cuda_graphs": "CUDA graphs",
    "logprobs": "prompt logprobs",
    "correction": "correction",
}


# -- memory --------------------------------------------------------------------------------------


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


def fits(footprint: "Footprint") -> str:
    settings = footprint.settings
    place = where(footprint.shape.load_name, footprint.gpu.title, settings.parallel.gpus)
    if footprint.refusals:
        return f"{place} does not run: {'; '.join(map(sentence, footprint.refusals))}."
    longest, most = footprint.requests_of(footprint.context), settings.max_num_seqs or 0
    each = " per replica" if settings.parallel.data > 1 else ""
    held = f"{footprint.memory.kv_cache_tokens:,} tokens of KV cache{each}"
    if longest >= most:
        return f"{place} fits: {held}, enough for all {most:,} requests at full length."
    full = f"{plural(longest, 'request')} of the full {footprint.context:,} tokens"
    return f"{place} fits: {held}, enough for {full}."


def footprint_setup(footprint: "Footprint") -> str:
    settings = footprint.settings
    return (
        f"Predicted for vLLM {footprint.deployment.release.text} ({footprint.deployment.entry}): "
        f"{number(settings.max_num_batched_tokens)} tokens per step, at most "
        f"{number(settings.max_num_seqs)} requests at once."
    )


def kv_per_token(footprint: "Footprint") -> str:
    memory = footprint.memory
    if not memory.kv_cache_tokens:
        return ""
    kib = memory.kv_cache_bytes / memory.kv_cache_tokens / 1024
    return f"A token takes {kib:,.4g} KiB of KV cache on each GPU."


# -- the advice ----------------------------------------------------------------------------------

VARIATIONS = {
    "no_cpu_time": "a CPU that takes no time",
    "second_draw": "another sample",
    "third_draw": "a third sample",
    "longer_prompts": "prompts 10 % longer",
    "shorter_prompts": "prompts 10 % shorter",
    "shorter_outputs": "outputs half as long",
    "longer_outputs": "outputs twice as long",
}
STARTED = {"serve": "vllm serve", "llm": "vLLM's LLM class", "other": "vLLM's engine"}


def listed(settings: "Settings") -> str:
    """
    >>> from chunkscope.vllm.settings import Settings
    >>> listed(Settings(max_num_seqs=64, max_model_len=4096))
    'max_model_len 4,096, max_num_seqs 64'
    """
    return ", ".join(f"{name} {as_written(value)}" for name, value in settings.given().items())


def advice(plan: "Plan") -> str:
    """The answer in one sentence or two: what to set, what it brings, what that rests on."""
    if plan.advice.basis == "simulated":
        colon = ":" if plan.advice.kind == "set" and not plan.request.slo else "."
        return f"{order(plan)}{_needed(plan)}{colon} {_because(plan)}"
    text = f"{order(plan)}{_needed(plan)}"
    if plan.advice.basis == "mode":
        return f"{text}, as --mode {plan.request.mode} asks. Whether it pays was not simulated."
    return f"{_lacks(plan)} By prompt lengths alone: {text[0].lower()}{text[1:]}."


def order(plan: "Plan") -> str:
    """What to do, without the reason."""
    said = plan.advice
    if said.kind == "no setting":
        return f"No setting that was tried keeps the limits {_when(plan)}"
    if said.kind == "set" and said.settings.given():
        return f"Set {listed(said.settings)}"
    return "Keep vLLM's defaults"


def _needed(plan: "Plan") -> str:
    """The flags without which vLLM does not start."""
    needed = listed(plan.advice.needed)
    if not needed:
        return ""
    sets = plan.advice.kind == "set" and plan.advice.settings.given()
    joint = ", and set" if sets else " but set"
    joint = "; needed" if plan.advice.kind == "no setting" else joint
    return f"{joint} {needed} (vLLM does not start without)"


def _lacks(plan: "Plan") -> str:
    lacking = [n for n, v in (("--model", plan.model), ("--gpu", plan.gpu)) if v is None]
    if not lacking:
        return "The speed of this GPU is not known, so nothing was simulated."
    return f"Without {' and '.join(lacking)} it cannot be said which settings pay."


def _when(plan: "Plan") -> str:
    request = plan.request
    if request.is_open:
        return f"at {request.arrivals}"
    return f"with {request.concurrency:,} in flight" if request.concurrency else "with all at once"


def _because(plan: "Plan") -> str:
    if plan.request.slo:
        return _because_of_limits(plan)
    said = plan.advice
    if said.kind == "set" and said.gain is None:
        return "vLLM's default does not fit this GPU."
    if said.kind == "set":
        worst = f", at least {by(said.least_gain)} with {_doubt(plan)}" if said.doubt else ""
        return f"{by(said.gain)} throughput over vLLM's default{worst} (simulated).{_price(plan)}"
    if said.alternative is None or said.gain is None or said.gain < 0.001:
        return "No other setting is faster (simulated)."
    best = f"{listed(said.alternative)}, {by(said.gain)}"
    if said.doubt:
        return (
            f"The fastest other setting ({best} throughput) gains {by(said.least_gain)} with "
            f"{_doubt(plan)} (simulated)."
        )
    return f"No other setting is more than 3 % faster (best: {best}, simulated)."


def _price(plan: "Plan") -> str:
    """What the gain costs: longer gaps between tokens."""
    gaps = [run.figures.longest_gap_s if run else None for run in (plan.run, plan.default_run)]
    ours, default = gaps
    if not ours or not default or ours < 1.5 * default:
        return ""
    return f" The longest gap between tokens grows from {seconds(default)} to {seconds(ours)}."


def _doubt(plan: "Plan") -> str:
    return VARIATIONS.get(plan.advice.doubt or "", "")


def _because_of_limits(plan: "Plan") -> str:
    said, ours, default = plan.advice, plan.run, plan.default_run
    if said.kind == "no setting":
        rate = "No rate keeps them."
        if said.rate:
            rate = f"About {said.rate:,.3g} requests a second would keep all of them"
            gpus = f"; {plan.request.arrivals} needs about {said.gpus} GPUs" if said.gpus else ""
            rate += f"{gpus}."
        return f"{_limit_state(plan.nearest_run or default)} (simulated). {rate}"
    if said.kind == "set":
        gain = f"{by(said.gain)} throughput, and " if said.gain and not plan.request.is_open else ""
        unless = f", though not with {_doubt(plan)}" if said.doubt and not said.least_gain else ""
        aim = "The aim is room to the limits: " if plan.request.is_open else ""
        return (
            f"{aim}{gain}{_limit_state(ours)} {_when(plan)}{unless}; with vLLM's default: "
            f"{_limit_state(default)} (simulated)."
        )
    return f"With them {_limit_state(default)} {_when(plan)} (simulated)."


def _limit_state(run: "SimulatedRun | None") -> str:
    """
    "itl_p99 50 ms keeps 31 % room", or by how much it is broken.
    """
    if run is None or run.slo is None:
        return "it does not run"
    limit = run.slo.tightest
    if run.backlog is not None and run.backlog.grows:
        return "requests come faster than they are served"
    if run.slo.is_met:
        return f"{limit.name} {SECONDS.write(limit.seconds)} has {share(1 - run.slo.use)} room"
    measured = seconds(run.slo.found_of(limit))
    return f"{limit.name} breaks at {measured}, limit {SECONDS.write(limit.seconds)}"


def setup(plan: "Plan") -> str:
    """What it was planned for: model, machine, version, requests."""
    model = plan.model.load_name if plan.model else "Any model"
    gpu = plan.gpu.title if plan.gpu else None
    place = where(model, gpu, plan.effective.parallel.gpus)
    started = "" if plan.deployment.entry == "serve" else f", {STARTED[plan.deployment.entry]}"
    prompts = plural(plan.refused.of, "prompt")
    return f"{place}, vLLM {plan.release.text}{started}, {prompts}, {_outputs(plan)}"


def _outputs(plan: "Plan") -> str:
    """How long answers are, and where that comes from: each kind once."""
    kinds = {
        "asked": "{} output tokens each",
        "data": "outputs as in the data",
        "scored": "one output token each (scored)",
        "task": "at most {} output tokens each",
        "assumed": "{} output tokens each (assumed)",
    }
    texts = dict.fromkeys(kinds[o.origin].format(f"{o.tokens:,}") for o in plan.outputs)
    if len(texts) == 1:
        return next(iter(texts))
    return f"outputs by dataset: {'; '.join(texts)}"


def facts(plan: "Plan") -> dict[str, str | None]:
    """What the run takes, by label; what is not known is left out."""
    return {
        "time": _time(plan),
        "memory": _memory(plan),
        "requests": _requests(plan),
        "long prompts": _long_prompts(plan),
        "too long": _refused(plan),
        "preempted": _preempted(plan),
    }


def _time(plan: "Plan") -> str | None:
    cost = plan.cost
    if cost is None or plan.request.is_open:
        return None
    varied = [name for name in dict.fromkeys(map(_assumption, cost.varied)) if name]
    why = f", depending on {_and(varied)}" if varied else ""
    text = (
        f"{duration(cost.hours)} ({duration(cost.least_hours)} to {duration(cost.most_hours)}"
        f"{why}), simulated, without loading the model"
    )
    if cost.price_per_hour is None:
        return text
    usual, least, most = (
        money(hours * cost.gpus * cost.price_per_hour)
        for hours in (cost.hours, cost.least_hours, cost.most_hours)
    )
    return f"{text}; price {usual} ({least} to {most})"


def _assumption(code: str) -> str:
    """What a variation varies."""
    return {
        "no_cpu_time": "CPU overhead",
        "longer_prompts": "prompt length",
        "shorter_prompts": "prompt length",
        "longer_outputs": "output length",
        "shorter_outputs": "output length",
        "second_draw": "the sample",
        "third_draw": "the sample",
    }.get(code, "")


def _and(words: list[str]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def _memory(plan: "Plan") -> str | None:
    memory = plan.memory
    if memory is None:
        return None
    weights, activation = (memory.line(name).gib for name in ("weights", "activation"))
    return (
        f"{memory.requested_gib:.1f} of {memory.total_gib:.1f} GiB: weights {weights:.1f}, "
        f"KV cache {memory.kv_cache_gib:.1f} ({memory.kv_cache_tokens:,} tokens), activations "
        f"{activation:.1f}"
    )


def _requests(plan: "Plan") -> str | None:
    many = plan.requests_in_flight
    if many is None or plan.request.is_open or plan.request.concurrency:
        return None
    peak = " (the simulated peak)" if plan.run is not None else ""
    return f"send at least {many:,} at once{peak}"


def _long_prompts(plan: "Plan") -> str | None:
    chunks = plan.chunks
    if not chunks.prompts or chunks.size is None or chunks.longest is None:
        return None
    times = f"2 to {chunks.longest}" if chunks.longest > 2 else "2"
    return (
        f"{share(chunks.share)} are longer than {number(chunks.size)} tokens and are computed in "
        f"{times} chunks"
    )


def _refused(plan: "Plan") -> str | None:
    """What a context that is too short does to scores."""
    refused = plan.refused
    if not refused.prompts or (plan.model is None and plan.settings.max_model_len is None):
        return None
    context = refused.room_tokens + plan.output_tokens
    parts = []
    if refused.too_long:
        parts.append(
            f"{refused.too_long:,} of {refused.of:,} prompts fill the context of {context:,} "
            "tokens: vLLM refuses them"
        )
    if (rest := refused.prompts - refused.too_long) > 0:
        parts.append(
            f"{rest:,} of {refused.of:,} prompts are over {refused.room_tokens:,} tokens and leave "
            f"no room for {plan.output_tokens:,} output tokens: a server refuses them, lm-eval "
            "cuts them, the LLM class cuts their answers"
        )
    return "; ".join(parts)


def _preempted(plan: "Plan") -> str | None:
    times = plan.run.figures.preemptions if plan.run else None
    if not times:
        return None
    return (
        f"{plural(times, 'time')}: the KV cache is full. Fewer requests at once or "
        "--kv-cache-dtype fp8 would help"
    )


def sampled(requests: int, total: int) -> str:
    return f"simulated on a sample of {requests:,} of {total:,} requests"


def capacity(plan: "Plan") -> Iterator[str]:
    fits_now = plan.capacity
    if fits_now is not None:
        yield (
            f"The KV cache holds {fits_now.p50:,} requests of median length at once, "
            f"{fits_now.p95:,} of p95 length or {fits_now.longest:,} of the longest, each with "
            f"{plan.output_tokens:,} output tokens and nothing shared."
        )


def arguments(plan: "Plan") -> Iterator[str]:
    """The flags, on a line of their own; none where no setting keeps the limits."""
    if plan.advice.kind != "no setting" and (words := plan.cli_args()):
        yield " ".join(words)


def length_rule(plan: "Plan") -> str:
    """What the rule by lengths says of the data; it decides only where nothing was simulated."""
    decision = plan.decision
    rule = "switch chunking off"
    if decision.threshold:
        rule = f"cap chunks at {decision.threshold:,} tokens ({decision.mode.value})"
    return (
        f"By lengths alone the rule would {rule}. Benefit by longest prompt: skip under 1K tokens, "
        "optional under 2K, consider under 4K, recommended under 8K, then required."
    )


def row_name(row: "TriedRow") -> str:
    names = {
        "default": "vLLM's default",
        "length-rule": "length rule",
        "best": "best found",
    }
    budget = f"{number(row.settings.max_num_batched_tokens)} tokens per step"
    mark = {"not robust": " (not in every case)", "too little": " (under 3 %)"}
    return names.get(row.role, budget) + ("" if row.run.slo else mark.get(row.standing, ""))


# -- reasons -------------------------------------------------------------------------------------


def _gains(gain: float | None, own: object, **_: object) -> str:
    return f"{by(gain)} throughput over the default {as_written(own)} (simulated)"


def _in_doubt(best: object, gain: float, least: float, doubt: str, **_: object) -> str:
    return (
        f"default; {as_written(best)} would gain {by(gain)}, but {by(least)} with "
        f"{VARIATIONS[doubt]} (simulated)"
    )


def _too_little(best: object, gain: float, **_: object) -> str:
    return f"default; {as_written(best)} would gain {by(gain)} (simulated)"


def _over_threshold(over: int, prompts: int, safe: int | None) -> str:
    memory = "; larger chunks' logits would not fit beside vLLM's memory" if safe else ""
    return f"{over:,} of {prompts:,} prompts are longer{memory}"


def _shared(
    share: float,
    prefix: int | None,
    *,
    read: bool,
    compared: int | None = None,
    prompts: int | None = None,
) -> str:
    from chunkscope.artefacts.numbers import share as percent

    what = f"{percent(share)} of the prompt tokens repeat the start of an earlier prompt"
    if compared is not None:
        what += f" (judged by {compared:,} of {prompts:,} prompts)"
    if prefix is not None:
        what = f"all prompts are taken to begin with the same {prefix:,} tokens"
    if read:
        return f"{what}; the simulation serves them from the prefix cache while it keeps them"
    return f"{what}, but likelihood requests do not read vLLM's prefix cache"


def _measured(log: str, failed: list[str], assumed_share: float | None, **figures: float) -> str:
    names = {
        "kv_cache_tokens": "KV cache {:,} tokens",
        "weights_gib": "weights {:.2f} GiB",
        "activation_gib": "activations {:.2f} GiB",
        "graphs_gib": "CUDA graphs {:.2f} GiB",
        "hit_rate": "prefix hits {:.1%}",
    }
    known = [names[n].format(v) for n, v in figures.items() if v is not None]
    known += [f"did not fit: {one}" for one in failed]
    text = f"measured, in {log}: {', '.join(known)}"
    if assumed_share is None:
        return text
    return (
        f"{text}; it does not name its arguments, so a memory share of {assumed_share} is assumed"
    )


def _started(entry: str, budget: int | None, seqs: int | None, **_: object) -> str:
    text = f"planned for {STARTED[entry]}"
    if budget is None or seqs is None:
        return text
    return f"{text}, whose defaults are {budget:,} tokens per step and {seqs:,} requests at once"


SENTENCES: dict[str, Template] = {
    # arguments
    "why_default": "default",
    "why_default_unknown": "left to vLLM; its default is not known without --model and --gpu",
    "why_default_is_best": "default; no other value was faster",
    "why_gains": _gains,
    "why_gain_in_doubt": _in_doubt,
    "why_too_little_gain": _too_little,
    "why_does_not_fit": "vLLM's default {own:,} does not fit; {value:,} does (predicted)",
    "why_keeps_limits": "for the limits (simulated); vLLM's default is {own}",
    "why_rule_gains": lambda threshold, gain: (
        f"none; the length rule's {threshold:,} would change throughput by {by(gain)} (simulated)"
    ),
    "why_no_longer_prompt": "no prompt is longer than {threshold:,} tokens",
    "why_budget_ends_first": "a step's {budget:,} tokens end a chunk before {threshold:,} would",
    "why_over_threshold": _over_threshold,
    "why_logits_chunk": "larger chunks' logits would not fit beside vLLM's memory (predicted)",
    "why_room_for_logits": "lower, so that the logits of prompt_logprobs fit (predicted)",
    "why_context_that_fits": "the model's {limit:,} tokens do not fit the KV cache (predicted)",
    "why_fewer_to_fit": "with more, one request of full length would not fit (predicted)",
    "why_model_limit": "the model's own",
    "why_likelihoods_skip_cache": "default; likelihood requests do not read the cache",
    "why_asked": "as asked",
    "why_asked_kv_cache": "as asked; it can change what the model answers",
    "why_unchunked_context": "with chunking off, a step has to hold the longest request",
    "why_unchunked_budget": "off needs at least max_model_len ({context:,}) in one step",
    "why_no_prompt_is_split": lambda version, warned: (
        "no prompt is split"
        + (f"; vLLM {version} warns that off is not officially supported" if warned else "")
    ),
    "why_off_is_ignored": lambda version, warned: (  # noqa: ARG005
        f"vLLM {version} ignores chunked prefill off for generative models"
    ),
    # notes
    "vllm_newer": "vLLM {version} is newer than {newest}: assuming that it behaves alike",
    "vllm_not_installed": "no vLLM is installed here: assuming {version} (newest known)",
    "vllm_development": "vLLM {version} is a development build: assuming {newest}",
    "assumed_output": "answers are assumed to have {tokens:,} tokens: give --max-output",
    "short_outputs": "the outputs in the data have at most {tokens:,} tokens; a model that reasons "
    "writes more: see --max-output",
    "sampled_datasets": "{count:,} datasets were only sampled: the longest prompt may be longer",
    "shared_prefixes": lambda **values: _shared(**values, read=True),
    "shared_but_not_read": lambda **values: _shared(**values, read=False),
    "longest_first": lambda asked: (
        "requests are sent longest first, "
        + ("as asked" if asked else "as lm-eval sends its tasks")
    ),
    "other_tokenizer": "lengths were counted with {tokenizer}, not with the tokenizer of {model}; "
    "for exact ones: chunkscope analyze --model {name}",
    "tokenizer_not_known": "lengths were counted with {tokenizer}; whether that of {model} "
    "counts alike is not known here: chunkscope analyze --model {name}",
    "measured_in_log": _measured,
    "unmeasured_gpus": "several GPUs were never measured: memory and times on {gpus} follow from "
    "how vLLM splits a model, and from assumptions on what communication takes",
    "replicas_wait": "the replicas' steps, which wait for each other, are simulated each by itself",
    "unmeasured_kv_cache": "a KV cache of {dtype} was never measured: its cost is taken by bytes",
    "window_hits": "prefix hits are those of full-attention layers: vLLM may find fewer",
    "no_window_hits": "no prefix hits are counted: no layer keeps all tokens",
    "states_not_aligned": "vLLM ends chunks at block borders to keep states: not simulated",
    "off_is_lost": "vLLM {version} ignores chunked prefill off: a prompt may still be split "
    "where a step's budget ends",
    "other_profile": "the profile is not the one that the plan was made from",
    "prompts_left_out": "{count:,} prompts are longer than max_model_len allows and left out",
    "trace_left_out": "{count:,} of {of:,} requests of the trace are longer than max_model_len "
    "({context:,}) and left out",
    "seqs_lowered": "max_num_seqs is lowered to {budget:,}, the budget, as vLLM does",
    "setting_left_out": "{setting} is left out: {why}",
    # refusals
    "refused_unchunked_budget": "max_num_batched_tokens ({max_num_batched_tokens}) is smaller than "
    "max_model_len ({max_model_len}) with chunked prefill off",
    "refused_budget_below_seqs": "max_num_batched_tokens ({max_num_batched_tokens}) must be >= "
    "max_num_seqs ({max_num_seqs})",
    "refused_active_over_seqs": "max_num_active_seqs ({max_num_active_seqs}) is over max_num_seqs "
    "({max_num_seqs})",
    "refused_threshold_over_context": "long_prefill_token_threshold "
    "({long_prefill_token_threshold}) is over max_model_len ({max_model_len})",
    "refused_negative_threshold": "long_prefill_token_threshold ({long_prefill_token_threshold}) "
    "is negative",
    "refused_context_over_limit": "max_model_len ({max_model_len}) is over the model's limit "
    "({limit})",
    "refused_utilization": "gpu_memory_utilization ({gpu_memory_utilization}) is not in (0, 1]",
    "refused_below_one": "max_model_len, max_num_batched_tokens and max_num_seqs must be "
    "at least 1",
    "refused_replicas_need_serve": "data_parallel_size is for vllm serve: vLLM's LLM class starts "
    "one replica",
    "refused_off_with_threshold": "chunked prefill is off, and a threshold would still chunk",
    "refused_off_ignored": "vLLM {version} ignores chunked prefill off",
    "refused_unknown": "vLLM {version} does not know this argument",
    "refused_no_memory": "the model does not fit: {missing_gib:,.2f} GiB are missing per GPU",
    "refused_kv_cache": "one request of {context:,} tokens (max_model_len) needs more than the "
    "{tokens:,} tokens of the KV cache; that many would fit",
    "refused_logprobs": "prompt_logprobs take {taken_gib:,.2f} GiB that vLLM does not set aside, "
    "and {free_gib:,.2f} GiB are free",
    "refused_failed": "it did not fit when it was tried: {why} ({log}, line {line:,})",
    # How prompts are cut into chunks, by the policy that was simulated.
    "policy_vllm": "vLLM's own scheduling",
    "policy_fixed": "a fixed threshold, which vLLM runs with long_prefill_token_threshold",
    "policy_interactive-first": "prompts up to 1,024 tokens first, which vLLM runs with its "
    "priority scheduling and a priority in each request",
    "policy_by-length": "chunks of 512, 1,024 or 2,048 tokens by prompt length: an experiment, "
    "vLLM cannot run it",
    "policy_adaptive": "the chunk halves under decode pressure and doubles while steps take less "
    "than 50 ms: an experiment, vLLM cannot run it",
    # emitted forms
    "emit_planned_for": _started,
    "emit_spelled_out": lambda entry, target, **_: (
        f"planned for {STARTED[entry]}; defaults that differ in {STARTED[target]} are spelled out"
    ),
    "emit_in_flight": "send at least {requests:,} requests at once to fill the server",
    "emit_fill_in": lambda names: f"put your own for {', '.join(names)}",
    "emit_config_blank": "write `--config FILE` with a blank: vLLM ignores `--config=FILE`",
    "emit_lm_eval_memory": "gpu_memory_utilization is spelled out: lm-eval has its own default",
    "emit_lm_eval_cuts": "lm-eval cuts prompts to {context:,} tokens less the task's max_gen_toks "
    "(256 unless it says otherwise), and fails where that leaves none",
    "emit_inspect_connections": "add --max-connections: Inspect sends 10 requests at a time",
    "emit_token_variable": "a gated model needs HF_TOKEN in your environment",
    "emit_token_secret": "a gated model needs a token: `kubectl create secret generic hf-token "
    "--from-literal=token=$HF_TOKEN`",
    "emit_node_folder": "the node must have the folder {folder}",
}
