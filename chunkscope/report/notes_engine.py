"""Notes about what limited an engine, as text.

Symptoms and evidence are clauses; remedies follow "Try: ".
"""

from chunkscope.artefacts.numbers import as_written, plural
from chunkscope.report.wording import NoteText
from chunkscope.vllm.flags import spelled

_CONTEXT = spelled("max_model_len")
_BUDGET = spelled("max_num_batched_tokens")
_SEQS = spelled("max_num_seqs")
_SHARE = spelled("gpu_memory_utilization")
_THRESHOLD = spelled("long_prefill_token_threshold")
_EAGER = spelled("enforce_eager")


# -- symptoms --------------------------------------------------------------------------


def ended_killed(*, reason: str | None = None) -> str:
    if not reason:
        return "the engine process was killed"
    return f"the engine process was killed: {reason}"


def ended_died(*, reason: str | None = None) -> str:
    if not reason:
        return "the engine died"
    return f"the engine died: {reason}"


# -- evidence --------------------------------------------------------------------------


def refused_lines(*, lines: int, longest: int | None, limit: int) -> str:
    text = f"{plural(lines, 'line')} of the log; the limit is {limit:,} tokens"
    if longest:
        text += f", the longest prompt had {longest:,}"
    return text


def argument_and_default(*, name: str, value: object, default: object = None) -> str:
    text = f"{name} is {as_written(value)}"
    if default:
        text += f"; vLLM's default is {as_written(default)}"
    return text


def preempted(*, count: int, requests: int | None = None) -> str:
    text = plural(count, "preemption")
    if requests:
        text += f" among {plural(requests, 'request')}"
    return text


# -- remedies --------------------------------------------------------------------------


def change_died(*, reason: str | None = None) -> str:
    if not reason:
        return "read the first error of the traceback in the log"
    return "fix what it names, or read the first error of the traceback in the log"


NOTES: dict[str, NoteText] = {
    "plan_of_another_gpu": "The engine was not compared with the plan, which is for "
    "{gpu}.",
    "plan_of_another_model": "The engine was not compared with the plan, which is not "
    "for {model}.",
    "server_restarted": "{address} was restarted while it was watched.",
    "log_cut": "{log} is cut off or damaged; what came before was read.",
    # Symptoms.
    "ended_no_free_memory": "other programs used the GPU's memory when the engine "
    "started",
    "ended_no_cache_blocks": "no memory was left for the KV cache",
    "ended_context_too_long": "the KV cache is too small for one request of "
    "max_model_len tokens",
    "ended_oom_sampler": "out of memory while the sampler was warmed up",
    "ended_oom_logprobs": "out of memory in prompt_logprobs",
    "ended_oom_loading": "out of memory while the weights were loaded",
    "ended_oom_start": "out of memory at the start",
    "ended_oom_running": "out of memory while serving",
    "ended_oom_host": "the machine's own memory (RAM) ran out",
    "ended_refused_arguments": "vLLM refused its arguments: {reason}",
    "ended_killed": ended_killed,
    "ended_died": ended_died,
    "refused_prompts": "prompts were too long and refused, so their samples are "
    "missing from the scores",
    "bad_requests": "the server refused requests (HTTP 400), so their samples are "
    "missing from the scores",
    "kv_bound": "the KV cache was full while requests waited",
    "max_num_seqs": "max_num_seqs was reached: requests waited while the KV cache had "
    "room",
    "queue_bound": "requests waited for prefill",
    "small_budget": "{names:first} made steps small, so prompts waited",
    "client_bound": "the client sent too few requests: none waited, and the KV cache "
    "had room",
    "preemptions": "requests were preempted and computed again",
    "hit_rate": "the prefix cache had far fewer hits than the prompts allow",
    "eager": "eager mode is on: without CUDA graphs, small steps are slower",
    # Evidence.
    "failure_asked_gib": "{value:,.2f} GiB were asked for",
    "failure_left_gib": "{value:,.2f} GiB were left",
    "failure_needed_gib": "one request needs {value:,.2f} GiB",
    "failure_available_gib": "{value:,.2f} GiB were available to the KV cache",
    "failure_longest": "a context of {value:,.0f} tokens would fit",
    "failure_free_gib": "{value:,.2f} GiB were free at the start",
    "failure_requests": "{value:,.0f} dummy requests",
    "refused_lines": refused_lines,
    "answers_400": "{count:plural(refusal)}",
    "longest_and_limit": "the longest prompt has {longest:,} tokens, the limit is "
    "{limit:,}",
    "held_for": "{seconds:,.0f} s, {part:percent} of the busy time",
    "argument_and_default": argument_and_default,
    "preempted": preempted,
    "hits": "{rate:percent} of the prompt tokens were cache hits; by the profile "
    "{shareable:percent} repeat an earlier prompt",
    # Remedies.
    "change_no_free_memory": "stop what else uses the GPU, or lower "
    f"{_SHARE} to what is free",
    "change_no_cache_blocks": f"raise {_SHARE}, lower {_BUDGET}, add GPUs or quantize "
    "the weights",
    "change_context_too_long": f"lower {_CONTEXT} if the prompts allow it, raise "
    f"{_SHARE} or add GPUs",
    "change_oom_sampler": f"lower {_SEQS} or {_SHARE}",
    "change_oom_logprobs": f"lower {_BUDGET}, as vLLM sets no memory aside for "
    "prompt_logprobs",
    "change_oom_loading": f"use more GPUs ({spelled('tensor_parallel_size')}) or "
    "quantized weights",
    "change_oom_start": f"lower {_BUDGET} or {_SHARE}",
    "change_oom_running": f"lower {_SHARE}, as a step took more memory than vLLM had "
    "set aside",
    "change_refused_arguments": "change the argument that the message, or the line "
    "after it, names",
    "change_killed": "see the system's messages for the reason: usually RAM or the "
    "job's time ran out",
    "change_died": change_died,
    "change_fixed_size": "remove {argument}, which sets the size of the KV cache",
    "change_more_kv": f"give the KV cache more room: {_SHARE}, an fp8 KV cache or more "
    "GPUs",
    "change_oom_host": "free memory of the machine, or give the container or job more",
    "change_oom_cpu": f"lower VLLM_CPU_KVCACHE_SPACE or {_BUDGET}, or free memory of "
    "the machine",
    "change_more_kv_cpu": "give the KV cache more memory with VLLM_CPU_KVCACHE_SPACE, "
    "in GiB",
    "change_refused": f"raise {_CONTEXT} above {{tokens:,}} tokens plus the answer, or "
    "shorten the prompts",
    "change_bad_requests": "read the client's errors: a request may be longer than "
    f"{_CONTEXT}",
    "change_seqs": f"raise {_SEQS} above {{running:,}}; `chunkscope simulate` predicts "
    "the gain",
    "change_queue": "to answer sooner, send fewer requests at once or start another "
    "engine",
    "change_queue_budget_unknown": f"check {_SEQS}, {_BUDGET} and {_THRESHOLD}, which "
    "are not known here",
    "change_small_step": "remove {names:first}, unless set for shorter gaps "
    "between tokens",
    "change_client": "send more requests at once (num_concurrent, --max-connections) "
    "if the load may grow",
    "change_preemptions": f"lower {_SEQS}, or give the KV cache more room",
    "change_caching_on": "switch prefix caching on",
    "change_hit_rate": "send prompts with the same start one after the other; requests "
    "with prompt_logprobs skip the cache",
    "change_eager": f"remove {_EAGER}, unless a short start matters more",
}
