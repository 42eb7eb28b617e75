"""Sentences for the notes of plans, models, GPUs and vLLM's settings.

Notes are whole sentences. Reasons and lines of a memory bill stand in the cell of a
table, and refusals after a colon, so those are clauses.
"""

import shlex
from collections.abc import Sequence
from typing import Any

from chunkscope.artefacts.numbers import as_written, by, plural
from chunkscope.artefacts.numbers import share as percent
from chunkscope.report.wording import NoteText
from chunkscope.vllm.settings import Value

VARIATIONS = {
    "no_cpu_time": "zero CPU overhead",  # of plans made before 2026-11
    "faster_cpu": "a CPU twice as fast",
    "slower_cpu": "a CPU that takes 1.5 times as long",
    "second_draw": "another sample",
    "longer_prompts": "prompts 10 % longer",
    "shorter_prompts": "prompts 10 % shorter",
    "shorter_outputs": "answers half as long",
    "longer_outputs": "answers twice as long",
}
DENSE = "a dense model"


# -- what vLLM and the GPU are assumed to be -------------------------------------------


def unlike_measured(  # noqa: PLR0913  (the values of the note)
    *,
    nearest: str,
    least: float,
    most: float,
    kind: str | None,
    gpu: str | None,
    gpus: int | None,
) -> str:
    missing = []
    if kind is not None:
        missing.append(models_of(kind))
    if gpu is not None:
        missing.append(gpu)
    if gpus is not None:
        missing.append(f"{gpus} GPUs")
    errors = time_error(least)
    if most != least:
        errors += f" to {time_error(most)}"
    sentences = [
        f"Not validated: {', '.join(missing)}.",
        f"On an H200, predicted times of {models_of(nearest)} were {errors}.",
    ]
    if gpus is not None:
        sentences.append("The time for communication between GPUs is assumed.")
    return " ".join(sentences)


def models_of(kind: str) -> str:
    """
    >>> models_of("a dense model"), models_of("latent attention")
    ('dense models', 'models with latent attention')
    """
    if kind == DENSE:
        return "dense models"
    return f"models with {kind}"


def time_error(error: float) -> str:
    """
    >>> time_error(-0.18), time_error(0.06)
    ('18 % too short', '6 % too long')
    """
    if error < 0:
        return f"{percent(-error)} too short"
    return f"{percent(error)} too long"


def vision_tower(*, weighed: bool) -> str:
    if weighed:
        return "The activations of images and sound are left out."
    return "Weights and activations for images and sound are left out."


def stateful_layers(*, layers: int, known: bool = True) -> str:
    text = f"Layers that keep a state instead of a KV cache: {layers}"
    return f"{text}." if known else f"{text}; its size is estimated."


# -- the data and how it is sent -------------------------------------------------------


def shared_prefixes(
    *,
    share: float,
    prefix: int | None = None,
    compared: int | None = None,
    **_: object,
) -> str:
    """How much of the prompts repeats the start of others."""
    if prefix:
        return f"All prompts are assumed to share {plural(prefix, 'token')}."
    text = (
        f"{percent(share)} of the prompt tokens repeat the start of an earlier prompt"
    )
    if compared:
        text += f" (judged by {plural(compared, 'prompt')})"
    return f"{text}."


def shared_but_not_read(**values: Any) -> str:
    return (
        f"{shared_prefixes(**values)} Likelihood requests do not read the prefix cache."
    )


def other_tokenizer(*, tokenizer: str, name: str, command: Sequence[str] = ()) -> str:
    """With the command that counts the data with the model's own tokenizer."""
    again = [*without_tokenizer(command), "--model", name]
    if not command:
        again = ["chunkscope", "analyze", "data/", "--model", name]
    return f"Counted with {tokenizer}. For exact lengths: {shlex.join(again)}"


def without_tokenizer(command: Sequence[str]) -> list[str]:
    """A command line of `analyze` without the options that choose the tokenizer.

    >>> without_tokenizer(["chunkscope", "analyze", "-t", "gpt2", "--model=x", "data/"])
    ['chunkscope', 'analyze', 'data/']
    """
    words = []
    is_value = False
    for word in command:
        if is_value:
            is_value = False
        elif word in ("-t", "-m", "--tokenizer", "--model"):
            is_value = True
        elif not word.startswith(("-t", "-m", "--tokenizer=", "--model=")):
            words.append(word)
    return words


# -- savings ---------------------------------------------------------------------------

SCORED_ONCE = {
    "generative_scoring": "Score all choices in one request (/generative_scoring, vLLM "
    "0.20 and later).",
    "next_token": "Score all choices in one request that generates one token with "
    "logprobs.",
    "read_cache": "Let the requests read the prefix cache (prompt_logprob_start, vLLM "
    "0.31 and later).",
}


def score_contexts_once(
    *, dataset: str, others: int, reads: float, how: str, **_: object
) -> str:
    datasets = f"{dataset} and {others} more" if others else dataset
    return f"{datasets}: each context is computed {reads:.1f} times. {SCORED_ONCE[how]}"


def few_in_flight(
    *,
    concurrency: int,
    enough: int,
    harness: str | None = None,
    unit: str = "requests",
    **_: object,
) -> str:
    client = harness or "The client"
    if unit == "samples":
        return (
            f"{client} runs {plural(concurrency, 'sample')} at once. Run {enough:,} "
            "(Inspect: --max-samples and --max-connections)."
        )
    return (
        f"{client} sends {plural(concurrency, 'request')} at once. Send {enough:,} "
        "(lm-eval: num_concurrent or --batch_size, Inspect: --max-connections)."
    )


# -- why an argument has its value -----------------------------------------------------


def why_gain_in_doubt(
    *, best: Value, gain: float, least: float, doubt: str, **_: object
) -> str:
    return (
        f"default; {as_written(best)} would gain {by(gain)}, but {by(least)} with "
        f"{VARIATIONS[doubt]} (simulated)"
    )


# -- what vLLM refuses -----------------------------------------------------------------


def refused_no_memory(
    *,
    missing_gib: float,
    tp: int | None = None,
    full_tp: int | None = None,
    **_: object,
) -> str:
    text = f"the model does not fit, {missing_gib:,.2f} GiB are missing per GPU"
    if tp is None:
        return f"{text}; take a larger GPU or quantized weights"
    if full_tp in (None, tp):
        return f"{text}; --tp {tp} would fit"
    return f"{text}; --tp {tp} would fit, with the whole context --tp {full_tp}"


def refused_kv_cache(
    *, max_model_len: int, tokens: int, full_tp: int | None = None, **_: object
) -> str:
    text = (
        f"one request of {max_model_len:,} tokens (max_model_len) does not fit the KV "
        f"cache, which holds {tokens:,}; lower max_model_len"
    )
    if full_tp:
        return f"{text}, or set --tp {full_tp}"
    return text


# -- the lines of a memory bill --------------------------------------------------------


def memory_weights(
    *, billions: float, kind: str, gpus: int, shares_experts: bool
) -> str:
    text = f"{billions:,.2f} billion parameters, {kind}"
    if kind == "files":
        text = f"{billions:,.2f} billion parameters, by the size of the files"
    if gpus == 1:
        return text
    if shares_experts:
        return f"{text}, experts shared by replicas over {gpus} GPUs"
    return f"{text}, split over {gpus} GPUs"


def memory_activation(*, tokens: int, kib: float, expands: bool) -> str:
    if expands:
        return (
            f"{plural(tokens, 'token')} in one step, and the context they attend to, "
            "expanded"
        )
    return f"{plural(tokens, 'token')} x {kib:,.0f} KiB in one step"


def memory_overhead(*, several: bool) -> str:
    text = "CUDA context, buffers"
    return f"{text}, communication" if several else text


def memory_cuda_graphs(*, layers: int, counted: bool) -> str:
    text = plural(layers, "layer")
    return text if counted else f"{text}, outside this version's budget"


NOTES: dict[str, NoteText] = {
    # What vLLM and the GPU are assumed to be.
    "vllm_not_installed": "vLLM {version}, the newest known version, is assumed.",
    "vllm_newer": "vLLM {version} is newer than {newest}, the newest known version, "
    "and is assumed to behave like it.",
    "vllm_development": "vLLM {version} is a development build and is assumed to "
    "behave like {newest}.",
    "gpu_unchecked": "The {figure} of {gpu} is taken from its data sheet: no run has "
    "confirmed it.",
    "volta": "vLLM {version} is built for CUDA 13, which does not support the V100.",
    "unknown_model_type": "model_type {name} is not known, so the memory may be off.",
    "unknown_quantization": "Quantization {method} is not known: 16-bit weights are "
    "assumed.",
    "weights_by_formula": "The weights are estimated from config.json, as there are no "
    "safetensors files.",
    "vision_tower": vision_tower,
    "sliding_window": "The KV of the last {tokens:,} tokens alone is kept in "
    "{layers:plural(layer)}.",
    "stateful_layers": stateful_layers,
    "unlike_measured": unlike_measured,
    "rough_gaps": "On an H200, p99 gaps were up to {p99:g}x and the longest gap up to "
    "{longest:g}x the prediction.",
    "unmeasured_kv_cache": "No KV cache of {dtype} was ever measured: costs are scaled "
    "by its bytes.",
    "second_start": "The first start compiles and refuses this context: then start "
    "vLLM again.",
    "unstretched": "vLLM's default context is {tokens:,} tokens; --max-model-len takes "
    "up to {limit:,}.",
    "measured_in_log": "Memory figures of {log} replace the predicted ones.",
    "replicas_wait": "Replicas are simulated one by one, without waiting for each "
    "other.",
    "window_hits": "Prefix hits are those of full-attention layers: vLLM may find "
    "fewer.",
    "no_window_hits": "No prefix hits are counted, as no layer keeps all tokens.",
    "states_not_aligned": "vLLM ends chunks at block borders to keep states, which is "
    "not simulated.",
    # The data and how it is sent.
    "assumed_output": "Answers are assumed to have {tokens:,} tokens (--output).",
    "shared_prefixes": shared_prefixes,
    "shared_but_not_read": shared_but_not_read,
    "longest_first": "Requests are sent longest first.",
    "other_tokenizer": other_tokenizer,
    "prompts_refused": "{count:,} of {of:plural(prompt)} do not fit: max_model_len "
    "{context:,} leaves {room:,} tokens for the prompt. A server refuses them, lm-eval "
    "cuts them, and no time below counts them.",
    "answers_are_lengths": "Answers are as long as the numbers in {field} say.",
    "answers_are_texts": "Answers are as long as the texts in {field}.",
    "media_not_timed": "Images, audio and video are not counted: the time is that of "
    "the text.",
    "no_time": "No time is predicted: the longest request does not run with these "
    "settings.",
    "other_profile": "The plan was made from another profile.",
    "prompts_left_out": "Left out as too long for max_model_len: "
    "{count:plural(prompt)}.",
    "trace_left_out": "{count:,} of {of:plural(request)} are left out: they are longer "
    "than max_model_len ({context:,}).",
    "setting_left_out": "{setting} is left out: the longest request does not fit.",
    # Savings.
    "score_contexts_once": score_contexts_once,
    "early_difference": "{dataset}: about {prompts:plural(prompt)} are the same except "
    'near the start ("{text}", "{other}"). Move that part to the end.',
    "few_in_flight": few_in_flight,
    # Why an argument has its value.
    "why_default_is_best": "default; no other value was faster",
    "why_gains": "{gain:change} throughput, all flags together (simulated)",
    "why_gain_in_doubt": why_gain_in_doubt,
    "why_too_little_gain": "default; {best} changes throughput by {gain:change} "
    "(simulated)",
    "why_keeps_limits": "keeps the limits (simulated)",
    "why_length_rule": "by the length rule",
    "why_threshold_ends_nothing": "the length rule's {threshold:,} tokens would split "
    "nothing",
    "why_needed_max_num_batched_tokens": "the default {own:,} does not fit; {value:,} "
    "does (predicted)",
    "why_needed_long_prefill_token_threshold": "the logits of larger chunks do not fit "
    "(predicted)",
    "why_needed_gpu_memory_utilization": "so that the logits of prompt_logprobs fit "
    "(predicted)",
    "why_needed_max_model_len": "the model's {own:,} tokens do not fit the KV cache "
    "(predicted)",
    "why_needed_max_num_seqs": "with more, one request of full length would not fit "
    "(predicted)",
    "why_asked": "as asked",
    "why_asked_kv_cache": "as asked; it can change the model's answers",
    # What vLLM refuses.
    "refused_unchunked_budget": "with chunking off, max_num_batched_tokens is below "
    "max_model_len",
    "refused_budget_below_seqs": "max_num_batched_tokens is below max_num_seqs "
    "({max_num_seqs:,})",
    "refused_active_over_seqs": "max_num_active_seqs is over max_num_seqs "
    "({max_num_seqs:,})",
    "refused_threshold": "long_prefill_token_threshold is negative or over "
    "max_model_len",
    "refused_context_over_limit": "max_model_len ({max_model_len:,}) is over the "
    "model's {limit:,}",
    "refused_utilization": "gpu_memory_utilization must be over 0 and leave the driver "
    "some memory",
    "refused_below_one": "a size or a number of GPUs is below 1",
    "refused_replicas_need_serve": "data_parallel_size needs vllm serve",
    "refused_off_with_threshold": "chunked prefill is off, and a threshold would still "
    "chunk",
    "refused_unknown": "vLLM {version} does not know this argument",
    "refused_no_memory": refused_no_memory,
    "refused_kv_cache": refused_kv_cache,
    "refused_logprobs": "prompt_logprobs need {taken_gib:,.2f} GiB more; "
    "{free_gib:,.2f} are free",
    # Emitted forms.
    "emit_spelled_out": "Planned for --entry {entry}: defaults that differ here are "
    "spelled out.",
    "emit_breaks_limits": "This does NOT keep the limits: {limits}.",
    "emit_in_flight": "Send {requests:plural(request)} at once: fewer leave the server "
    "idle, more only wait.",
    "emit_fill_in": "Replace {names:first} with your own.",
    "emit_config_blank": "Write `--config FILE` with a space: vLLM ignores "
    "`--config=FILE`.",
    "emit_lm_eval_memory": "gpu_memory_utilization is spelled out, as lm-eval has its "
    "own default.",
    "emit_lm_eval_cuts": "lm-eval cuts prompts to {context:,} tokens less the task's "
    "max_gen_toks.",
    "emit_inspect_connections": "Add --max-connections: Inspect sends 10 requests at a "
    "time.",
    "emit_token_variable": "A gated model needs HF_TOKEN in your environment.",
    "emit_token_secret": "A gated model needs a token: `kubectl create secret generic "
    "hf-token --from-literal=token=$HF_TOKEN`.",
    "emit_node_folder": "The node must have the folder {folder}.",
    # The lines of a memory bill.
    "memory_weights": memory_weights,
    "memory_activation": memory_activation,
    "memory_experts": "{tokens:,} tokens x {kib:,.0f} KiB, which the experts' kernel "
    "keeps",
    "memory_sampler": "{requests:plural(request)} x {vocab:,} logits, beyond the "
    "activations",
    "memory_compiling": "a first start only: the compiler copies the embedding",
    "memory_overhead": memory_overhead,
    "memory_cuda_graphs": memory_cuda_graphs,
    "memory_logprobs": "prompt_logprobs: {tokens:,} tokens x {vocab:,} entries, "
    "outside vLLM's budget",
    "memory_correction": "{log} shows a KV cache of {tokens:,} tokens",
}
