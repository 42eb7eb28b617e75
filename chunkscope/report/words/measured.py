"""What is said of engines and servers that were measured: failures and notes."""

from chunkscope.report.words import Template


def _killed(phase: str, signal: str) -> str:
    why = "; the machine may have run out of memory" if signal == "SIGKILL" else ""
    return f"killed by {signal} while {phase}{why}"


SENTENCES: dict[str, Template] = {
    "off_is_ignored": "vLLM {vllm} ignores chunked prefill off for generative models",
    "context_too_short": "max_model_len is {max_model_len}, the longest request {longest} tokens",
    "engine_silent": "no answer and no line in its log for {seconds:,.0f} s while {phase}",
    "engine_out_of_memory": "out of memory while {phase}: {detail}",
    "engine_refused": "refused while {phase}: {detail}",
    "engine_died": "died while {phase}: {detail}",
    "engine_killed": _killed,
    "engine_ended": "ended with code {code} and no message while {phase}",
    "server_failed": "the server {detail} (while {phase}, {answered} of {sent} answered)",
    "server_timeout": "no end after {seconds:g} s (while {phase}, {answered} of {sent} answered)",
    "requests_trickled_in": "this vLLM cannot hold requests back: the first steps ran while others "
    "were still being sent",
    "prefix_cache_not_emptied": "vLLM did not empty its prefix cache between repeats: hits may "
    "come from an earlier one",
    "kv_tokens_are_blocks": "KV cache tokens are blocks x block size: too many for a hybrid model",
    "answers_not_counted": "the server did not count the tokens of {answers} answers: each piece "
    "of the stream counts as one",
    "answers_ended_early": "{answers} of {of} answers ended before the length asked for",
    "texts_sent_again": "every repeat sends the same texts: a prefix cache may have them",
    "server_is_shared": "the server finished {finished} requests, {sent} were sent: others use it, "
    "so its preemptions and cache hits are left out",
    "prompts_counted_otherwise": "the server counts {counted} prompt tokens, the workload {sent}: "
    "another tokenizer, or special tokens",
}
