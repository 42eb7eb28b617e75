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
    from chunkscope.planning.plan import Plan, Saving, TriedRow
    from chunkscope.simulation.result import SimulatedRun
    from chunkscope.vllm.footprint import Footprint
    from chunkscope.vllm.settings import Settings

MEMORY_PARTS = {
    "activation": "activations",
    "experts": "expert buffers",
    "cuda_graphs": "CUDA graphs",
    "logprobs": "prompt logprobs",
}
VARIATIONS = {  # by code: one case, and what it varies
    "no_cpu_time": ("a CPU that takes no time", "CPU overhead"),
    "second_draw": ("another sample", "the sample"),
    "third_draw": ("a third sample", "the sample"),
    "longer_prompts": ("prompts 10 % longer", "prompt length"),
    "shorter_prompts": ("prompts 10 % shorter", "prompt length"),
    "shorter_outputs": ("outputs half as long", "output length"),
    "longer_outputs": ("outputs twice as long", "output length"),
    "seen_on_gpus": ("", "prediction error"),
}
STARTED = {"serve": "vllm serve", "llm": "vLLM's LLM class", "other": "vLLM's engine"}


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
    many = f"all {most:,} requests" if longest >= most else plural(longest, "request")
    return (
        f"{place} fits: {footprint.memory.kv_cache_tokens:,} tokens of KV cache{each}, enough for "
        f"{many} of the full {footprint.context:,} tokens."
    )


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


# -- what would save most ------------------------------------------------------------------------


def saving(one: "Saving") -> str:
    """What to change, and what that saves: tokens and time."""
    tokens = f"{one.tokens:,} prompt tokens" if one.tokens else ""
    if one.hours is None:
        return f"{sentence(one)} ({tokens})." if tokens else f"{sentence(one)}."
    time = (
        f"about {duration(one.hours)} ({'simulated' if one.simulated else 'by the prefill rate'})"
    )
    return f"{sentence(one)}: saves {' and '.join(filter(None, (tokens, time)))}."


_SCORED_BY = {
    "generative_scoring": "score all choices in one request (/generative_scoring, vLLM 0.20 on)",
    "next_token": "score all choices in one request that generates one token with logprobs",
    "read_cache": "let the requests read the prefix cache (prompt_logprob_start, vLLM 0.31 on)",
}


def _contexts_once(dataset: str, others: int, reads: float, how: str, **_: object) -> str:
    more = f" and {others:,} more" if others else ""
    return f"{dataset}{more}: each context is computed {reads:.1f} times; {_SCORED_BY[how]}"


def _early_difference(dataset: str, prompts: int, text: str, other: str, **_: object) -> str:
    where_ = f'"{text}", "{other}"'
    return (
        f"{dataset}: put what differs early in about {plural(prompts, 'prompt')} ({where_}) at the "
        "end"
    )


def _few_in_flight(concurrency: int, enough: int, harness: str | None) -> str:
    names = {"Inspect": "--max-connections", "lm-eval": "num_concurrent or --batch_size"}
    option = f" ({names[harness]})" if harness in names else ""
    who = harness or "the client"
    return f"{who} keeps {concurrency:,} requests in flight; keep {enough:,}{option}"


# -- the advice ----------------------------------------------------------------------------------


def listed(settings: "Settings") -> str:
    """
    >>> from chunkscope.vllm.settings import Settings
    >>> listed(Settings(max_num_seqs=64, max_model_len=4096))
    'max_model_len 4,096, max_num_seqs 64'
    """
    return ", ".join(f"{name} {as_written(value)}" for name, value in settings.given().items())


def advice(plan: "Plan") -> str:
    """The answer in one sentence or two: what to set, what it brings, what that rests on."""
    said, needed = plan.advice, listed(plan.advice.needed)
    sets = said.kind == "set" and bool(said.settings.given())
    text = f"Set {listed(said.settings)}" if sets else "Keep vLLM's defaults"
    if said.kind == "no setting":
        text = f"No setting that was tried keeps the limits {_when(plan)}"
    if needed:
        text += f"{', and' if sets else ', but'} {needed} is needed for vLLM to start"
    if said.basis == "mode":
        return f"{text}, as --mode {plan.request.mode} asks. Whether it pays was not simulated."
    if said.basis == "lengths":
        return f"{_lacks(plan)} By prompt lengths alone: {text[0].lower()}{text[1:]}."
    because = _limits_because(plan) if plan.request.slo else _because(plan)
    return f"{text}{'.' if said.kind == 'keep' else ':'} {because}"


def _lacks(plan: "Plan") -> str:
    lacking = [n for n, v in (("--model", plan.model), ("--gpu", plan.gpu)) if v is None]
    if not lacking:
        return "The speed of this GPU is not known, so nothing was simulated."
    return f"Which settings pay cannot be said without {' and '.join(lacking)}."


def _when(plan: "Plan") -> str:
    request = plan.request
    if request.is_open:
        return f"at {request.arrivals}"
    return f"with {request.concurrency:,} in flight" if request.concurrency else "with all at once"


def _because(plan: "Plan") -> str:
    said, doubt = plan.advice, VARIATIONS.get(plan.advice.doubt or "", ("",))[0]
    if said.kind == "set":
        if said.gain is None:
            return "vLLM's default does not fit." if plan.tried else "not simulated."
        worst = f", at least {by(said.least_gain)} with {doubt}" if doubt else ""
        return f"{by(said.gain)} throughput over vLLM's default{worst} (simulated).{_price(plan)}"
    if said.alternative is None or said.gain is None or said.gain < 0.001:
        return "No other setting is faster (simulated)."
    best = f"{listed(said.alternative)}, {by(said.gain)}"
    if doubt:
        return f"The fastest other setting ({best}) has {by(said.least_gain)} with {doubt}."
    return f"No other setting is more than 3 % faster (best: {best}, simulated)."


def _price(plan: "Plan") -> str:
    """What the gain costs: longer gaps between tokens."""
    ours, default = (r.figures.longest_gap_s if r else None for r in (plan.run, plan.default_run))
    if not ours or not default or ours < 1.5 * default:
        return ""
    return f" The longest gap between tokens grows from {seconds(default)} to {seconds(ours)}."


def _limits_because(plan: "Plan") -> str:
    said, ours, default = plan.advice, plan.run, plan.default_run
    if said.kind == "no setting":
        rate = f"About {said.rate:,.3g} requests a second would keep them" if said.rate else ""
        gpus = f"; {plan.request.arrivals} needs about {said.gpus} GPUs" if said.gpus else ""
        nearest = limit_state(plan.nearest_run or default)
        return f"{nearest} (simulated). {rate or 'No rate keeps them'}{gpus}."
    if said.kind == "keep":
        return f"With them {limit_state(default)} (simulated)."
    gain = f"{by(said.gain)} throughput, and " if said.gain and not plan.request.is_open else ""
    unless = ""
    if said.doubt and not said.least_gain:
        unless = f", though not with {VARIATIONS[said.doubt][0]}"
    return (
        f"{gain}{limit_state(ours)}{unless}; with vLLM's default "
        f"{limit_state(default)} (simulated)."
    )


def limit_state(run: "SimulatedRun | None") -> str:
    """`itl_p99 stays 31 % below its 50 ms`, or by how much it is broken."""
    if run is None or run.slo is None:
        return "it does not run"
    limit, allowed = run.slo.tightest, SECONDS.write(run.slo.tightest.seconds)
    if run.backlog is not None and run.backlog.grows:
        return "requests come faster than they are served"
    if run.slo.is_met:
        return f"{limit.name} stays {share(1 - run.slo.use)} below its {allowed}"
    return f"{limit.name} is {seconds(run.slo.found_of(limit))}, limit {allowed}"


def setup(plan: "Plan") -> str:
    """What it was planned for: model, machine, version, requests."""
    model = plan.model.load_name if plan.model else "Any model"
    place = where(model, plan.gpu.title if plan.gpu else None, plan.effective.parallel.gpus)
    started = "" if plan.deployment.entry == "serve" else f", {STARTED[plan.deployment.entry]}"
    prompts = plural(plan.refused.of, "prompt")
    return f"{place}, vLLM {plan.release.text}{started}, {prompts}, {_outputs(plan)}"


def _outputs(plan: "Plan") -> str:
    """How long answers are, and where that comes from: each kind once."""
    texts = dict.fromkeys(
        f"{'at most ' if o.origin in ('data', 'task') else ''}{plural(o.tokens, 'output token')} "
        f"each ({OUTPUTS[o.origin]})"
        for o in plan.outputs
    )
    return "; ".join(texts)


OUTPUTS = {
    "asked": "asked for",
    "data": "from the data",
    "scored": "scored",
    "task": "limit of the task",
    "assumed": "assumed",
}


def facts(plan: "Plan") -> dict[str, str | None]:
    """What the run takes, by label; what is not known is left out."""
    return {
        "time": _time(plan),
        "tokens": _tokens(plan),
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
    *others, last = dict.fromkeys(VARIATIONS[code][1] for code in cost.varied) or ("",)
    varied = f"{', '.join(others)} and {last}" if others else last
    hours = (cost.hours, cost.least_hours, cost.most_hours)
    usual, least, most = map(duration, hours)
    text = f"{usual} ({least} to {most}{f', depending on {varied}' if varied else ''}), simulated"
    if cost.price_per_hour is None:
        return text
    usual, least, most = (money(one * cost.gpus * cost.price_per_hour) for one in hours)
    return f"{text}; price {usual} ({least} to {most})"


def _tokens(plan: "Plan") -> str | None:
    """What the time rests on."""
    cost = plan.cost
    if cost is None:
        return None
    assumed = " (assumed)" if any(output.is_assumed for output in plan.outputs) else ""
    work = f"{cost.input_tokens:,} in, {cost.output_tokens:,} out{assumed}"
    return f"{work}; loading the model not included"


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
    size = number(chunks.size)
    return f"{share(chunks.share)} are longer than {size} tokens and are read in {times} chunks"


def _refused(plan: "Plan") -> str | None:
    """What a context that is too short does to scores."""
    refused = plan.refused
    if not refused.prompts or (plan.model is None and plan.settings.max_model_len is None):
        return None
    if any(one.code == "prompts_without_room" for one in plan.savings):
        return None
    return (
        f"{refused.prompts:,} of {refused.of:,} prompts are over {refused.room_tokens:,} tokens, "
        f"which leaves no room for {plan.output_tokens:,} output tokens: a server refuses them, "
        "lm-eval cuts them, the LLM class cuts their answers"
    )


def _preempted(plan: "Plan") -> str | None:
    times = plan.run.figures.preemptions if plan.run else None
    if not times:
        return None
    help_ = "Fewer requests at once or --kv-cache-dtype fp8 would help"
    return f"{plural(times, 'time')}: the KV cache is full. {help_}"


def sampled(requests: int, total: int) -> str:
    return f"simulated on a sample of {requests:,} of {total:,} requests"


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
    return f"By lengths alone the rule would {rule}."


def row_name(row: "TriedRow") -> str:
    names = {"default": "vLLM's default", "length-rule": "length rule", "best": "best found"}
    budget = f"{number(row.settings.max_num_batched_tokens)} tokens per step"
    mark = {"not robust": " (not in every case)", "too little": " (under 3 %)"}
    return names.get(row.role, budget) + ("" if row.run.slo else mark.get(row.standing, ""))


# -- reasons -------------------------------------------------------------------------------------


def _shared(prefix: int | None, compared: int | None = None, **values: float) -> str:
    what = f"{share(values['share'])} of the prompt tokens repeat the start of an earlier prompt"
    if prefix is not None:
        return f"all prompts are taken to begin with the same {prefix:,} tokens"
    return what if compared is None else f"{what} (judged by {compared:,} prompts)"


SENTENCES: dict[str, Template] = {
    # savings
    "score_contexts_once": _contexts_once,
    "early_difference": _early_difference,
    "better_order": "{dataset}: send prompts that begin alike one after the other",
    "repeated_rows": "{dataset}: {rows:,} rows occur more than once; send them once",
    "few_in_flight": _few_in_flight,
    "prompts_without_room": "{prompts:,} of {of:,} prompts leave no room for their answer (over "
    "{room:,} tokens) and are cut or refused",
    # arguments
    "why_default": "default",
    "why_default_unknown": "left to vLLM",
    "why_default_is_best": "default; no other value was faster",
    "why_gains": "{gain:+%} throughput over the default {own} (simulated)",
    "why_gain_in_doubt": lambda best, gain, least, doubt, **_: (
        f"default; {as_written(best)} would gain {by(gain)}, but {by(least)} with "
        f"{VARIATIONS[doubt][0]} (simulated)"
    ),
    "why_too_little_gain": "default; {best} would gain {gain:+%} (simulated)",
    "why_does_not_fit": "vLLM's default {own} does not fit; {value} does (predicted)",
    "why_keeps_limits": "for the limits (simulated); vLLM's default is {own}",
    "why_no_longer_prompt": "no prompt is longer than {threshold} tokens",
    "why_budget_ends_first": "a step's {budget} tokens end a chunk before {threshold} would",
    "why_over_threshold": "{over} of {prompts} prompts are longer",
    "why_logits_chunk": "larger chunks' logits would not fit beside vLLM's memory (predicted)",
    "why_room_for_logits": "lower, so that the logits of prompt_logprobs fit (predicted)",
    "why_context_that_fits": "the model's {limit} tokens do not fit the KV cache (predicted)",
    "why_fewer_to_fit": "with more, one request of full length would not fit (predicted)",
    "why_model_limit": "the model's own",
    "why_likelihoods_skip_cache": "default; likelihood requests do not read the cache",
    "why_asked": "as asked",
    "why_asked_kv_cache": "as asked; it can change the model's answers",
    "why_unchunked_context": "with chunking off, a step has to hold the longest request",
    "why_unchunked_budget": "off needs at least max_model_len ({context}) in one step",
    "why_no_prompt_is_split": lambda version, warned: (
        "no prompt is split" + (f"; not officially supported by vLLM {version}" if warned else "")
    ),
    "why_off_is_ignored": "vLLM {version} ignores chunked prefill off for generative models",
    # notes
    "vllm_newer": "vLLM {version} is newer than {newest}: assuming that it behaves alike",
    "vllm_not_installed": "no vLLM is installed here: assuming {version} (newest known)",
    "vllm_development": "vLLM {version} is a development build: assuming {newest}",
    "assumed_output": "answers are assumed to have {tokens} tokens: give --max-output",
    "shared_prefixes": lambda **values: f"{_shared(**values)}; the prefix cache serves them",
    "shared_but_not_read": lambda **values: (
        f"{_shared(**values)}, but likelihood requests do not read the prefix cache"
    ),
    "longest_first": "requests are sent longest first",
    "other_tokenizer": "lengths were counted with {tokenizer}, not with {model}'s tokenizer: "
    "chunkscope analyze --model {name}",
    "tokenizer_not_known": "lengths were counted with {tokenizer}, perhaps not that of {model}; "
    "for exact ones: chunkscope analyze --model {name}",
    "measured_in_log": "memory is as measured in {log}, where it says so",
    "replicas_wait": "replicas are simulated one by one, without waiting for each other",
    "unmeasured_kv_cache": "a KV cache of {dtype} was never measured: its cost is taken by bytes",
    "window_hits": "prefix hits are those of full-attention layers: vLLM may find fewer",
    "no_window_hits": "no prefix hits are counted: no layer keeps all tokens",
    "states_not_aligned": "vLLM ends chunks at block borders to keep states: not simulated",
    "off_is_lost": "vLLM {version} ignores chunked prefill off: prompts may still be split",
    "other_profile": "the plan was made from another profile",
    "prompts_left_out": "{count:prompt} longer than max_model_len allows, left out",
    "trace_left_out": "{count} of {of} requests are longer than max_model_len ({context}) and left "
    "out",
    "seqs_lowered": "max_num_seqs is lowered to {budget}, the budget, as vLLM does",
    "setting_left_out": "{setting} is left out: {why}",
    # refusals
    "refused_unchunked_budget": "max_num_batched_tokens ({max_num_batched_tokens}) is smaller than "
    "max_model_len ({max_model_len}) with chunked prefill off",
    "refused_budget_below_seqs": "max_num_batched_tokens ({max_num_batched_tokens}) is smaller "
    "than max_num_seqs ({max_num_seqs})",
    "refused_active_over_seqs": "max_num_active_seqs ({max_num_active_seqs}) is over max_num_seqs "
    "({max_num_seqs})",
    "refused_threshold_over_context": "long_prefill_token_threshold "
    "({long_prefill_token_threshold}) is over max_model_len ({max_model_len})",
    "refused_negative_threshold": "long_prefill_token_threshold is negative",
    "refused_context_over_limit": "max_model_len ({max_model_len}) is over the model's {limit}",
    "refused_utilization": "gpu_memory_utilization ({gpu_memory_utilization}) is not in (0, 1]",
    "refused_below_one": "max_model_len, max_num_batched_tokens or max_num_seqs is below 1",
    "refused_replicas_need_serve": "data_parallel_size needs vllm serve",
    "refused_off_with_threshold": "chunked prefill is off, and a threshold would still chunk",
    "refused_off_ignored": "vLLM {version} ignores chunked prefill off",
    "refused_unknown": "vLLM {version} does not know this argument",
    "refused_no_memory": "the model does not fit: {missing_gib:,.2f} GiB are missing per GPU",
    "refused_kv_cache": "one request of {context} tokens (max_model_len) needs more KV cache than "
    "the {tokens} tokens that fit",
    "refused_logprobs": "prompt_logprobs take {taken_gib:,.2f} GiB that vLLM does not set aside, "
    "and {free_gib:,.2f} GiB are free",
    "refused_failed": "it did not fit when it was tried: {why} ({log}, line {line})",
    # How prompts are cut into chunks, by the policy that was simulated.
    "policy_vllm": "vLLM's own scheduling",
    "policy_fixed": "a fixed threshold (vLLM: long_prefill_token_threshold)",
    "policy_interactive-first": "prompts up to 1,024 tokens first (vLLM: priority scheduling)",
    "policy_by-length": "chunks of 512, 1,024 or 2,048 tokens by prompt length (not in vLLM)",
    "policy_adaptive": "chunks that halve under decode pressure (not in vLLM)",
    # emitted forms
    "emit_spelled_out": lambda entry: (
        f"planned for {STARTED[entry]}: defaults that differ here are spelled out"
    ),
    "emit_in_flight": "send at least {requests} requests at once to fill the server",
    "emit_fill_in": "put your own for {names}",
    "emit_config_blank": "write `--config FILE` with a blank: vLLM ignores `--config=FILE`",
    "emit_lm_eval_memory": "gpu_memory_utilization is spelled out: lm-eval has its own default",
    "emit_lm_eval_cuts": "lm-eval cuts prompts to {context} tokens less the task's max_gen_toks",
    "emit_inspect_connections": "add --max-connections: Inspect sends 10 requests at a time",
    "emit_token_variable": "a gated model needs HF_TOKEN in your environment",
    "emit_token_secret": "a gated model needs a token: `kubectl create secret generic hf-token "
    "--from-literal=token=$HF_TOKEN`",
    "emit_node_folder": "the node must have the folder {folder}",
}
