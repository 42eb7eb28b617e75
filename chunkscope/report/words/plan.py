"""What is said of a plan, of simulated runs, and of the models, GPUs and memory they rest on."""

from chunkscope.artefacts.numbers import as_written, by, share
from chunkscope.report.words import Template

VARIATIONS = {  # by code: one case, and what it varies
    "no_cpu_time": ("a CPU that takes no time", "CPU overhead"),
    "second_draw": ("another sample", "the sample"),
    "longer_prompts": ("prompts 10 % longer", "prompt length"),
    "shorter_prompts": ("prompts 10 % shorter", "prompt length"),
    "shorter_outputs": ("outputs half as long", "output length"),
    "longer_outputs": ("outputs twice as long", "output length"),
    "seen_on_gpus": ("", "prediction error"),
}
STARTED = {"serve": "vllm serve", "llm": "vLLM's LLM class", "other": "vLLM's engine"}


_SCORED_BY = {
    "generative_scoring": "score all choices in one request (/generative_scoring, vLLM 0.20 on)",
    "next_token": "score all choices in one request that generates one token with logprobs",
    "read_cache": "let the requests read the prefix cache (prompt_logprob_start, vLLM 0.31 on)",
}


def _contexts_once(dataset: str, others: int, reads: float, how: str, **_: object) -> str:
    more = f" and {others:,} more" if others else ""
    return f"{dataset}{more}: each context is computed {reads:.1f} times; {_SCORED_BY[how]}"


def _shared(prefix: int | None, compared: int | None = None, **values: float) -> str:
    what = f"{share(values['share'])} of the prompt tokens repeat the start of an earlier prompt"
    if prefix is not None:
        return f"all prompts are taken to begin with the same {prefix:,} tokens"
    return what if compared is None else f"{what} (judged by {compared:,} prompts)"


def _weights(billions: float, kind: str, gpus: int, *, shares_experts: bool) -> str:
    what = "the size of the weight files" if kind == "files" else kind
    how = "experts shared by replicas" if shares_experts else "split"
    return f"{billions:,.2f} billion parameters, {what}" + (
        f", {how} over {gpus} GPUs" if gpus > 1 else ""
    )


def _activation(tokens: int, kib: float, *, expands: bool) -> str:
    if expands:
        return f"{tokens:,} tokens in one step, and the context they attend to, expanded"
    return f"{tokens:,} tokens x {kib:,.0f} KiB in one step"


def _scaled(**differing: list[str]) -> str:
    pairs = ", ".join(f"{there}, not {here}" for there, here in differing.values())
    taken = "only its CPU times are used" if "model" in differing else "step times are scaled"
    return f"the calibration is of {pairs}: {taken}"


def _unlike(
    nearest: str,
    least: float,
    most: float,
    kind: str | None,
    gpu: str | None,
    gpus: int | None,
) -> str:
    missing = (kind and f"a model like this ({kind})", gpu, f"{gpus} GPUs" if gpus else None)
    off = f"{100 * least:+.0f} %" + (f" to {100 * most:+.0f} %" if most > least else "")
    return (
        f"never measured: {', '.join(filter(None, missing))}. On one H200 with {nearest}, "
        f"predicted times were {off} off" + ("; communication is assumed" if gpus else "")
    )


SENTENCES: dict[str, Template] = {
    # savings
    "score_contexts_once": _contexts_once,
    "early_difference": '{dataset}: about {prompts:prompt} differ early ("{text}", "{other}") and '
    "agree after that; put the difference at the end",
    "better_order": "{dataset}: send prompts that begin alike one after the other",
    "repeated_rows": "{dataset}: {rows:,} rows occur more than once; send them once",
    "few_in_flight": lambda concurrency, enough, harness: (
        f"{harness or 'the client'} keeps {concurrency:,} requests in flight; keep {enough:,} "
        "(lm-eval: num_concurrent or --batch_size, Inspect: --max-connections)"
    ),
    # arguments
    "why_default_is_best": "default; no other value was faster",
    "why_gains": "{gain:+%} throughput over the default {own} (simulated)",
    "why_gain_in_doubt": lambda best, gain, least, doubt, **_: (
        f"default; {as_written(best)} would gain {by(gain)}, but {by(least)} with "
        f"{VARIATIONS[doubt][0]} (simulated)"
    ),
    "why_too_little_gain": "default; {best} would gain {gain:+%} (simulated)",
    "why_needed_max_num_batched_tokens": "the default {own} does not fit; {value} does (predicted)",
    "why_keeps_limits": "for the limits (simulated); vLLM's default is {own}",
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
    "unmeasured_kv_cache": "a KV cache of {dtype} was never measured: costs are scaled by bytes",
    "window_hits": "prefix hits are those of full-attention layers: vLLM may find fewer",
    "no_window_hits": "no prefix hits are counted: no layer keeps all tokens",
    "states_not_aligned": "vLLM ends chunks at block borders to keep states: not simulated",
    "off_is_lost": "vLLM {version} ignores chunked prefill off: prompts may still be split",
    "other_profile": "the plan was made from another profile",
    "prompts_left_out": "{count:prompt} longer than max_model_len allows, left out",
    "trace_left_out": "{count} of {of} requests are longer than max_model_len ({context}) and left "
    "out",
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
    "refused_kv_cache": "one request of {max_model_len} tokens (max_model_len) needs more KV cache "
    "than the {tokens} tokens that fit",
    "refused_logprobs": "prompt_logprobs take {taken_gib:,.2f} GiB that vLLM does not set aside, "
    "and {free_gib:,.2f} GiB are free",
    "refused_failed": "it did not fit when it was tried: {why} ({log}, line {line})",
    # emitted forms
    "emit_spelled_out": lambda entry: (
        f"planned for {STARTED[entry]}: defaults that differ here are spelled out"
    ),
    "emit_in_flight": "send at least {requests} requests at once to fill the server",
    "emit_fill_in": "replace {names} with your own",
    "emit_config_blank": "write `--config FILE` with a space: vLLM ignores `--config=FILE`",
    "emit_lm_eval_memory": "gpu_memory_utilization is spelled out: lm-eval has its own default",
    "emit_lm_eval_cuts": "lm-eval cuts prompts to {context} tokens less the task's max_gen_toks",
    "emit_inspect_connections": "add --max-connections: Inspect sends 10 requests at a time",
    "emit_token_variable": "a gated model needs HF_TOKEN in your environment",
    "emit_token_secret": "a gated model needs a token: `kubectl create secret generic hf-token "
    "--from-literal=token=$HF_TOKEN`",
    "emit_node_folder": "the node must have the folder {folder}",
    # Models.
    "unknown_model_type": "model_type {name} is not known: its memory may be off",
    "unknown_quantization": "quantization {method} is not known: 16-bit weights assumed",
    "vision_tower": "the vision tower's weights are counted roughly, its activations are not",
    "sliding_window": "{layers} layers attend to the last {tokens} tokens and keep KV for no more",
    "stateful_layers": lambda layers, known, weighed: (
        f"{layers} layers hold a state instead of a KV cache"
        + ("" if known else ", of unknown size")
        + ("" if weighed else ", with weights roughly counted")
    ),
    "encoder_decoder": "an encoder-decoder model: vLLM switches chunked prefill off",
    "unlike_measured": _unlike,
    # GPUs and step times.
    "gpu_unchecked": "the {figure} of {gpu} is assumed",
    "scaled_steps": _scaled,
    # The lines of a memory bill.
    "memory_weights": _weights,
    "memory_activation": _activation,
    "memory_experts": "{tokens} tokens x {kib:,.0f} KiB, which the experts' kernel keeps",
    "memory_sampler": "{requests} requests x {vocab} logits, beyond the activations",
    "memory_overhead": lambda several: (
        "CUDA context and buffers" + (", communication" if several else "")
    ),
    "memory_cuda_graphs": lambda layers, counted: (
        f"of {layers} layers" + ("" if counted else ", outside this version's budget")
    ),
    "memory_logprobs": "prompt_logprobs: {tokens} tokens x {vocab} entries",
    "memory_correction": "{log} shows a KV cache of {tokens} tokens",
}
