"""Notes about files, prompts and lengths, as text.

Most of them follow the name of a dataset and a colon, so they are clauses.
"""

from chunkscope.artefacts.numbers import plural
from chunkscope.report.wording import NoteText


def empty_prompts(*, count: int) -> str:
    verb = "has" if count == 1 else "have"
    return f"{plural(count, 'prompt')} {verb} no tokens; vLLM refuses empty prompts"


def begun_twice(*, begin: str, count: int) -> str:
    verb = "starts" if count == 1 else "start"
    return (
        f"{plural(count, 'prompt')} {verb} with {begin} twice; special_tokens = false "
        "in chunkscope.toml adds none"
    )


def rolling_texts_whole(*, count: int) -> str:
    verb = "was" if count == 1 else "were"
    return (
        f"{plural(count, 'text')} of loglikelihood_rolling {verb} counted whole; vLLM "
        "gets windows of it"
    )


def steps_without_counts(*, count: int) -> str:
    verb = "was" if count == 1 else "were"
    return f"{plural(count, 'step')} without the server's counts {verb} left out"


def skipped(*, file: str, reason: str) -> str:
    if not file:
        return f"skipped: {reason}"
    return f"skipped {file}: {reason}"


def skipped_more(*, count: int) -> str:
    return f"skipped {plural(count, 'more file')}"


NOTES: dict[str, NoteText] = {
    # Tokenizers.
    "counted_again": "The fast tokenizer engine differed on a sample, so everything "
    "was counted again with {reference}.",
    "no_tokenizer_config": "The local cache has no tokenizer_config.json for "
    "{tokenizer}, so special tokens and the chat template may be missing. A run with a "
    "network downloads it.",
    # Which text is the prompt.
    "lines_together": "its {count:,} lines were counted as one prompt (per_line = true "
    "in chunkscope.toml counts each)",
    "nothing_to_score": "there are no choices to score, so it was counted as "
    "generation",
    "unused_with_chat": "{what} was ignored: it is for text prompts, and these are "
    "chats",
    "unused_with_log": "{option} was ignored: a log has the prompts and answers",
    "choices_uncounted": "the answer choices were not counted, though an evaluation "
    "sends them; to count them use {use}",
    "first_counted": 'only "{counted}" was counted, not the rest of that list; to '
    "count all of it use {use}",
    "left_out": 'only "{counted}" was counted, not "{beside}", which an evaluation '
    "probably sends too; to count both use {use}",
    "not_counted": 'images, audio or video in "{field}" were not counted, only text',
    "media_rows": "only the text is counted in {count:plural(row)} with images, audio "
    "or video",
    "blocks_unused": "{blocks} was not used: no block size fits it and {field}",
    # Chats.
    "answers_counted": "most chats end with an answer of the assistant, which was "
    "counted with the prompt",
    "tools_ignored": "the chat template ignores the tools of {count:plural(row)}, so "
    "they are not counted",
    "date_in_template": "the chat template prints the date ({day}); chat_date in "
    "chunkscope.toml sets another",
    "empty_prompts": empty_prompts,
    "begun_twice": begun_twice,
    # Logs of harnesses.
    "rolling_texts_whole": rolling_texts_whole,
    "other_models": "requests to other models were not counted: {models}",
    "counted_by_mock": "the lengths are those of Inspect's mock model; with --model "
    "the messages are counted",
    "sharing_not_counted": "the lengths are the server's own counts, and what the "
    "prompts share is not known; with --model the messages are counted",
    "sharing_not_logged": "the lengths are the server's own counts, and the log lacks "
    "what was sent, so what the sessions share is not known",
    "sessions_left_out": "{count:plural(request)} of the sessions after the first ones "
    "were counted, but are not planned as sessions",
    "steps_without_counts": steps_without_counts,
    "first_requests_only": "only the first request of each sample of an agent is known "
    "before a run; a log of a run has all of them",
    # While it is read.
    "preparing": "preparing the tokenizer {tokenizer} (once)",
    "reading_terminal": "reading from the terminal: type or paste the data, then "
    "Ctrl-D",
    "running_tasks": "{tasks}: running the code of its tasks in a separate process "
    "({python})",
    "skipped": skipped,
    "skipped_more": skipped_more,
    "counting_again": "note: {engine} and the reference differ on this data: counting "
    "again",
}
