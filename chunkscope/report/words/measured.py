"""What is said of measured runs: failures, notes, and where they were measured."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chunkscope.report.words import Template

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan
    from chunkscope.verification.result import Verification


def _out_of_memory(phase: str, detail: str, max_num_batched_tokens: int | None) -> str:
    budget = f" at {max_num_batched_tokens:,} tokens per step," if max_num_batched_tokens else ""
    return f"out of memory{budget} while {phase}: {detail}"


def _killed(phase: str, signal: str) -> str:
    why = "; the machine may have run out of memory" if signal == "SIGKILL" else ""
    return f"died while {phase}: killed by {signal}{why}"


def _server(failure: str, phase: str, answered: int, sent: int) -> str:
    progress = f", {answered:,} of {sent:,} requests were answered" if sent else ""
    return f"{failure} (while {phase}{progress})"


SENTENCES: dict[str, Template] = {
    "off_is_ignored": "vLLM {vllm} ignores chunked prefill off for generative models",
    "context_too_short": (
        "its max_model_len is {max_model_len:,}, and the longest request has {longest:,} tokens"
    ),
    "engine_silent": "no line in its log and no answer for {seconds:,.0f} s while {phase}",
    "engine_out_of_memory": _out_of_memory,
    "engine_refused": lambda phase, detail, **_: f"refused while {phase}: {detail}",
    "engine_died": lambda phase, detail, **_: f"died while {phase}: {detail}",
    "engine_killed": _killed,
    "engine_ended": "died while {phase}: its process ended with code {code} and no message",
    "server_failed": lambda detail, **rest: _server(f"the server {detail}", **rest),
    "server_timeout": lambda seconds, **rest: _server(f"no end after {seconds:g} s", **rest),
    "demo_memory": "activation memory is all beyond the weights, keys and values included",
    "requests_trickled_in": (
        "this vLLM cannot hold requests back: the first steps ran while others were still being "
        "sent"
    ),
    "prefix_cache_not_emptied": (
        "vLLM did not empty its prefix cache before a repeat: some hits may come from earlier ones"
    ),
    "kv_tokens_are_blocks": (
        "KV cache tokens are blocks x block size: too many for a hybrid model"
    ),
    "answers_not_counted": (
        "the server did not count the tokens of {answers:,} answers: each piece of a stream counts "
        "as one"
    ),
    "answers_ended_early": "{answers:,} of {of:,} answers ended before the length asked for",
    "texts_sent_again": "every repeat sends the same texts: a prefix cache may have them",
    "server_is_shared": (
        "the server finished {finished:,} requests where {sent:,} were sent: others use it, or it "
        "is one of several; its counts of preemptions and prefix-cache hits are left out"
    ),
    "prompts_counted_otherwise": (
        "the server counts {counted:,} prompt tokens, the workload {sent:,}: another tokenizer, or "
        "special tokens"
    ),
}


def measured_elsewhere(plan: "Plan", verification: "Verification") -> Iterator[str]:
    """Where the plan was made for another vLLM or GPU than it was measured on."""
    machine = verification.machine
    if machine is None:
        return
    planned = plan.release.text
    if machine.vllm and planned.split(".")[:2] != machine.vllm.split(".")[:2]:
        yield (
            f"the plan was made for vLLM {planned}, this is {machine.vllm}: plan again with "
            f"`chunkscope recommend --vllm-version {machine.vllm}`"
        )
    if machine.gpu and plan.gpu and plan.gpu.title != machine.gpu:
        yield f"the plan was made for {plan.gpu.title}, this is {machine.gpu}"
