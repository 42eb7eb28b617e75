"""What is said of data: files, prompts, harness logs."""

import shlex
from collections.abc import Sequence

from chunkscope.report.words import Template


def _options(name: str, fields: Sequence[str]) -> str:
    return " ".join(f"{name} {shlex.quote(field)}" for field in fields)


def _more_to_count(field: str, longer: str | None, more: list[str]) -> str:
    what = f'"{longer}" holds more text' if longer else f'tools are in "{more[0][:-5]}"'
    return f'counted only "{field}"; {what}: use {_options("--field", [*more, field])}'


def _first_of_list_counted(field: str, longer: str | None) -> str:
    text = f'; "{longer}" holds more text' if longer else ""
    fields = f" {_options('--field', [longer, field])}" if longer else ""
    each = f"{_options('--each', [field])}{fields}"
    return f'counted only "{field}[0]", the first of a list{text}: {each} makes a prompt of each'


SENTENCES: dict[str, Template] = {
    "counted_again": "the fast engine differed from {reference} on a sample of these rows: all "
    "were counted again with the reference",
    "no_header": 'the table has no header: counted "{field}", its longest text (--field chooses)',
    "prefix_unused": "the prefix was not used: it goes before text prompts only",
    "nothing_to_score": "counted as generation: there are no choices to score",
    "choices_unused": "the choices were not used: they go after text prompts only",
    "choices_uncounted": lambda fields: (
        "multiple choice, counted without the choices that an evaluation sends too: use "
        + _options("--choices", [fields])
    ),
    "more_to_count": _more_to_count,
    "longer_field_beside_chat": 'counted only "{field}"; "{longer}" holds more text (--template '
    "joins fields)",
    "first_conversation_counted": lambda field, count: (
        f'counted only "{field}[0]", the first of up to {count} conversations '
        f"({_options('--field', [f'{field}[1]'])} counts the second)"
    ),
    "first_of_list_counted": _first_of_list_counted,
    "media_rows": "images, audio or video in {count:row}: only the text is counted",
    "tools_ignored": "the chat template ignores the tools of {count:row}: they are not counted",
    "begun_twice": "{count:prompt} with {begin} twice: in the text, and added by the tokenizer "
    "(special_tokens = false in chunkscope.toml adds none)",
    "date_in_template": "the chat template prints the date ({day}), so lengths can differ on "
    "another day (chat_date in chunkscope.toml sets it)",
    "blocks_unused": "{blocks} were not used: no block size fits them and {field}",
    # Harness logs.
    "unused_with_log": "{option} was not used: a log has what was sent and answered",
    "rolling_texts_whole": "{count:text} of loglikelihood_rolling counted whole: the log does not "
    "show the windows",
    "media_requests": "images or audio in {count:request}: only the text is counted",
    "several_models": "its requests went to several models: {models}",
    "counted_by_mock": "these lengths come from Inspect's mock model, which has no tokenizer "
    "(--field messages counts them with yours)",
}
