"""Sentences about engines: what limited one according to its log, and what helps."""

from collections.abc import Iterator
from pathlib import Path

from chunkscope.artefacts.numbers import as_written, plural, share
from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.report.words import Template, capital, sentence
from chunkscope.vllm.flags import spelled
from chunkscope.vllm.log.start import EngineStart, Symptom

_CONTEXT, _BUDGET = spelled("max_model_len"), spelled("max_num_batched_tokens")
_SEQS, _SHARE = spelled("max_num_seqs"), spelled("gpu_memory_utilization")
_THRESHOLD, _EAGER = spelled("long_prefill_token_threshold"), spelled("enforce_eager")

SENTENCES: dict[str, Template] = {
    "plan_of_another_gpu": "not compared with the plan, which is for {gpu}",
    "plan_of_another_model": "not compared with the plan, which is not for {model}",
    "not_as_planned": "the plan says {name} {planned}, the engine has {actual}",
    "server_restarted": "{address} was restarted meanwhile",
    "log_cut": "{log} is cut off or damaged; what came before was read",
    # symptoms
    "ended_no_free_memory": "other programs used the memory when the engine started",
    "ended_no_cache_blocks": "no memory was left for the KV cache",
    "ended_context_too_long": "the KV cache is smaller than one request of max_model_len",
    "ended_oom_sampler": "out of memory while the sampler was warmed up",
    "ended_oom_logprobs": "out of memory in prompt_logprobs",
    "ended_oom_loading": "out of memory while the weights were loaded",
    "ended_oom_start": "out of memory at the start",
    "ended_oom_running": "out of memory while serving",
    "ended_oom_host": "the machine's memory ran out (RAM)",
    "ended_refused_arguments": "vLLM refused its arguments: {reason}",
    "ended_killed": "the engine process was killed[reason?: {reason}]",
    "ended_died": "the engine died[reason?: {reason}]",
    "refused_prompts": "prompts were too long and refused: their samples are missing from scores",
    "bad_requests": "the server refused requests (HTTP 400): their samples are missing from scores",
    "kv_bound": "the KV cache was full while requests waited",
    "max_num_seqs": "max_num_seqs was reached: requests waited while the KV cache had room",
    "queue_bound": "requests waited for prefill",
    "small_budget": "{names:and} made steps small, and prompts waited",
    "client_bound": "the client sent too few requests: none waited, and the KV cache had room",
    "preemptions": "requests were preempted and recomputed",
    "hit_rate": "the prefix cache had far fewer hits than the prompts allow",
    "eager": "eager mode is on: without CUDA graphs small steps are slower",
    # evidence
    "failure_asked_gib": "{value:,.2f} GiB asked for",
    "failure_left_gib": "{value:,.2f} GiB left",
    "failure_needed_gib": "{value:,.2f} GiB needed for one request",
    "failure_available_gib": "{value:,.2f} GiB available to the KV cache",
    "failure_longest": "a context of {value:,.0f} tokens would fit",
    "failure_free_gib": "{value:,.2f} GiB free at the start",
    "failure_requests": "{value:,.0f} dummy requests",
    "refused_lines": "{lines:line} of the log; limit {limit}[longest?, longest {longest}] tokens",
    "answers_400": "{count:refusal}",
    "longest_and_limit": "the longest prompt has {longest} tokens, the limit is {limit}",
    "held_for": "{seconds:,.0f} s, {part:%} of the busy time",
    "argument_and_default": "{name} is {value}[default?; vLLM's default is {default}]",
    "preempted": "{count:preemption}[requests?, {requests:request}]",
    "hits": "{rate:%} hits; in the profile {shareable:%} of the tokens repeat an earlier prompt",
    # remedies
    "change_no_free_memory": f"stop what else uses the GPU, or lower {_SHARE} to what is free",
    "change_no_cache_blocks": f"raise {_SHARE}, lower {_BUDGET}, add GPUs or quantize the weights",
    "change_context_too_long": f"lower {_CONTEXT} if prompts allow, raise {_SHARE} or add GPUs",
    "change_oom_sampler": f"lower {_SEQS} or {_SHARE}",
    "change_oom_logprobs": f"lower {_BUDGET}: vLLM sets no memory aside for prompt_logprobs",
    "change_oom_loading": f"use more GPUs ({spelled('tensor_parallel_size')}) or quantized weights",
    "change_oom_start": f"lower {_BUDGET} or {_SHARE}",
    "change_oom_running": f"lower {_SHARE}: a step took more memory than vLLM had set aside",
    "change_refused_arguments": "change the argument that the message, or the line after it, names",
    "change_killed": "see the system's messages for why: most often RAM or the job's time ran out",
    "change_died": "[reason?mend what it names, or ]read the first error of the traceback there",
    "change_fixed_size": "leave {argument} out: it sets the size of the KV cache",
    "change_more_kv": f"give the KV cache more room: {_SHARE}, an fp8 KV cache or more GPUs",
    "change_oom_host": "free memory of the machine, or give the container or job more",
    "change_oom_cpu": f"lower VLLM_CPU_KVCACHE_SPACE or {_BUDGET}, or free memory of the machine",
    "change_more_kv_cpu": "give the KV cache more memory: VLLM_CPU_KVCACHE_SPACE, in GiB",
    "change_refused": f"raise {_CONTEXT} above {{tokens}} plus the answer, or shorten the prompts",
    "change_bad_requests": f"see the client's errors: a request may be longer than {_CONTEXT}",
    "change_seqs": f"raise {_SEQS} above {{running}}; `chunkscope simulate` predicts the gain",
    "change_queue": "to answer sooner, send fewer requests at once or start another engine",
    "change_queue_budget_unknown": f"check {_SEQS}, {_BUDGET} and {_THRESHOLD}: not known here",
    "change_small_step": "leave {names:and} out, unless set for shorter gaps between tokens",
    "change_client": "send more at once (num_concurrent, --max-connections) if the load may grow",
    "change_preemptions": f"lower {_SEQS}, or give the KV cache more room",
    "change_caching_on": "switch prefix caching on",
    "change_hit_rate": "send prompts with the same start together; prompt_logprobs skip the cache",
    "change_eager": f"leave {_EAGER} out, unless a short start matters more",
}


def answer(diagnosis: Diagnosis) -> str:
    """The first line: the worst symptom."""
    if not diagnosis.symptoms:
        if all(engine.busy_s for engine in diagnosis.engines):
            return "Nothing limited the engine."
        return "The engine was never seen at work, so its limit is not known."
    worst = title(diagnosis.symptoms[0])
    count = len(diagnosis.engines)
    if count == 1:
        return worst
    return f"Worst of {count} engines: {worst[0].lower()}{worst[1:]}"


def title(symptom: Symptom) -> str:
    return f"{capital(sentence(symptom.title)).rstrip('.')}."


def heading(engine: EngineStart, place: int, count: int) -> str:
    text = engine.facts.model or "unknown model"
    if count > 1:
        text = f"Engine {place} of {count} in {Path(engine.source).name}: {text}"
    text += f", vLLM {engine.facts.version or '(version unknown)'}"
    if engine.engines > 1:
        text += f", {engine.engines} engines"
    if engine.last_line:
        text += f" (lines {engine.first_line} to {engine.last_line})"
    return text


def remedy(symptom: Symptom) -> str:
    """What to change, the evidence, and its lines in the log."""
    seen = [sentence(note) for note in symptom.evidence]
    if symptom.lines:
        numbers = ", ".join(str(line) for line in symptom.lines)
        seen.append(f"line{'s' if len(symptom.lines) > 1 else ''} {numbers}")
    text = f"Try: {sentence(symptom.change)}."
    if seen:
        text += f" Seen: {'; '.join(seen)}."
    return text


def happened(engine: EngineStart) -> str:
    if not engine.windows:
        return "No throughput was logged."
    busy = engine.busy_s or 1.0
    hits = ""
    if engine.hit_rate is not None:
        hits = f", prefix cache hits {share(engine.hit_rate)}"
    return (
        f"Busy for {engine.busy_s:,.0f} s: {engine.prompt_tokens / busy:,.0f} prompt "
        f"and {engine.output_tokens / busy:,.0f} output tokens/s; at most "
        f"{plural(engine.peak_running, 'request')} running and "
        f"{engine.peak_waiting:,} waiting; "
        f"KV cache up to {share(engine.peak_kv_use)}{hits}."
    )


def cautions(engine: EngineStart) -> Iterator[str]:
    """Arguments that are not defaults, and what the log's figures leave out."""
    if engine.arguments:
        arguments = []
        for name, value in engine.arguments.items():
            arguments.append(f"{name} {as_written(value)}")
        yield f"not vLLM's defaults: {', '.join(arguments)}"
    if not engine.windows or not engine.last_line:
        return
    yield (
        "vLLM does not log preemptions; `chunkscope doctor URL` reads them from "
        "/metrics"
    )
    if engine.hit_rate:
        yield (
            "prompt tokens/s leave out cached tokens; hits are those of the last "
            "1,000 requests"
        )
