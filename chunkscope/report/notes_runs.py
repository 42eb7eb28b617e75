"""Sentences for the notes of measured runs; failures follow a colon, as clauses."""

from chunkscope.report.wording import NoteText

NOTES: dict[str, NoteText] = {
    "engine_silent": "no answer and no line in its log for {seconds:,.0f} s while "
    "{phase}",
    "engine_out_of_memory": "out of memory while {phase}: {detail}",
    "engine_refused": "refused while {phase}: {detail}",
    "engine_died": "died while {phase}: {detail}",
    "engine_killed": "killed by {signal} while {phase} (SIGKILL is often a lack of "
    "memory)",
    "engine_ended": "ended with code {code} and no message while {phase}",
    "server_failed": "the server {detail} (while {phase}, {answered:,} of {sent:,} "
    "answered)",
    "server_timeout": "no end after {seconds:g} s (while {phase}, {answered:,} of "
    "{sent:,} answered)",
    "requests_trickled_in": "The first steps ran while requests were still being sent.",
    "prefix_cache_not_emptied": "The prefix cache was not emptied, so repeats may find "
    "the prompts of earlier ones.",
    "kv_tokens_are_blocks": "The KV cache is counted as blocks x block size, which is "
    "too many for a hybrid model.",
    "answers_not_counted": "{answers:,} answers lack a token count: each piece of a "
    "stream counts as one token.",
    "answers_ended_early": "{answers:,} of {of:,} answers ended before the length "
    "asked for.",
    "texts_sent_again": "Every repeat sends the same texts, which a prefix cache may "
    "have.",
    "server_is_shared": "Others use the server, so its preemptions and cache hits are "
    "left out.",
    "prompts_counted_otherwise": "The server counts {counted:,} prompt tokens, the "
    "workload {sent:,}: another tokenizer, or special tokens.",
}
