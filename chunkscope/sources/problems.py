"""What can be wrong with rows and datasets: a sentence and a hint for each code.

The sentences are templates of `str.format`; the values are those of the error's note.
`{rows:row}` is "1 row" or "3 rows".
"""

from collections.abc import Mapping

from chunkscope.artefacts.note import Fact, Note
from chunkscope.artefacts.numbers import plural

SENTENCES = {
    # Rows of text and of tables.
    "not_json": "not valid JSON at column {column:,}: {why}",
    "not_json_at": "not valid JSON at line {line:,} column {column:,}: {why}",
    "nested_too_deeply": "nested too deeply",
    "not_utf8": "byte {place:,} (0x{byte:02x}) is not UTF-8 (--encoding NAME "
    "reads another)",
    "open_quote": "a quote is opened here and never closed (truncated?)",
    "cells": "{cells:cell} instead of {width:,}",
    # Prompts.
    "field_missing": 'field "{field}" is missing',
    "no_way_to_field": 'field "{field}" is missing ({found} where {wanted} should be)',
    "wrong_row": "the row is {found}, not {wanted}",
    "wrong_type": 'field "{field}" is {found}, not {wanted}',
    "object_not_text": 'field "{field}" is an object, not text: --template '
    "'{{{{ {field} | tojson }}}}' counts it",
    "choices": 'field "{field}" holds {count:choice} instead of 2 to 26',
    "not_a_length": 'field "{field}" is {given}, not a number of tokens',
    "template_failed": "the template cannot be filled: {why}",
    "not_blocks": 'field "{field}" is not a list of numbers',
    "lone_surrogate": "the prompt holds a lone surrogate (\\ud800 to \\udfff): not "
    "a character",
    # Chats.
    "no_messages": "the list of messages is empty",
    "wrong_message": "message {message} is {found}, not an object",
    "wrong_in_message": 'field "{field}" of message {message} is {found}, not {wanted}',
    "unknown_role": 'message {message} has an unknown role "{role}"',
    "unknown_part": "message {message} has a content part of type {type}",
    "tools_not_read": 'BFCL\'s tools in "{field}" are not read: write OpenAI tools to '
    '"tools"',
    "unnamed_tool": "a tool has no function name",
    "unknown_tool": "a tool is of type {type}, not function",
    "kwarg_refused": '"{name}" is not allowed in chat_template_kwargs',
    "field_refused": "{name} is not supported",
    "template_refused": "the chat template refused it: {why}",
    # Harness logs.
    "no_sample": "not a sample of {harness}, which has {fields}",
    "unequal_lists": "lists are empty or of different length: {names} have {counts}",
    "agent_run": "an agent's run: the log has only the sum of its requests",
    "in_sample": "sample {id} epoch {epoch}: {reason}",
    "no_model_events": "no model events",
    "refs_beyond": "input_refs {refs} are beyond {size:message} of events_data",
    "points_nowhere": "{name} points nowhere",
    "old_log": "logs of {version} are not read",
    "several_models": "its requests went to several models: {models}",
    "no_such_model": "it has no requests to {model}, but to {models}",
    "only_results": "{path} holds lm-eval's results, not what it sent",
    "no_samples": "{path} is an Inspect log without samples",
    # Sessions.
    "no_usage": "no message has the server's counts (`usage`), and {harness} does not "
    "log all that it sends",
    "sum_of_calls": "step {step} has only the sum of {calls:,} requests",
    "session_twice": 'a session with the id "{id}" came before',
    "unequal_field": 'field "{field}" is {given:,}, and {earlier:,} in the sessions '
    "before it",
    "only_in_some": 'field "{field}" is missing, or should be missing everywhere: '
    "either all turns have it, or none",
    "not_seconds": 'field "{field}" is {given}, not a number of seconds',
    "no_answer_text": "turns[{turn}].messages has to begin with the assistant's "
    "message, as turns[{before}].output is only a number",
    "answered_twice": 'field "{field}" is given, but the messages of the turn end with '
    "its answer",
    "keeps_too_much": 'field "{field}" is {given:,}, but the prompt and the answer '
    "before it have {most:,} tokens",
    # Datasets.
    "cannot_read": "cannot read {path}: {why}",
    "not_there": "there is no {path}",
    "bomb": "cannot read {path}: it unpacks to more than {times:,} times its size",
    "too_long": "{path} is longer than {most:,} MB",
    "not_a_document": "{path} is not a JSON document: {reason}",
    "not_a_table": "{path} is not a table from line {line:,} on: {why}",
    "lfs_pointer": "{path} is a Git LFS pointer, not the data",
    "other_data": "{path} is {kind} data, not {format}",
    "unknown_data": "cannot tell what {path} is ({kind}?)",
    "no_field": 'no record has a field "{field}"',
    "unknown_prompt": "cannot tell which field is the prompt",
    "no_fields": "the records hold no fields",
    "all_bad": "no row of {path} could be used ({rows:bad row}); {unit} "
    "{position}: {reason}",
    "no_chat_template": "{tokenizer} has no chat template, and this dataset is chat",
    "template_not_jinja": "the chat template is not valid Jinja: {why} (line {line})",
    "template_not_text": "the chat template is neither text nor a list of named "
    "templates",
    "no_default_template": "several chat templates, none called default: {names}",
    "worker_died": "its worker died {times:time} ({why})",
}

# By cause, if there is one, else by code.
HINTS = {
    "old_log": "run the evaluation again with {oldest} or newer",
    "several_models": "name the one to count: --log-model NAME",
    "no_such_model": "--log-model takes one of these",
    "only_results": "name the samples_*.jsonl next to it; lm-eval writes them with "
    "--log_samples",
    "no_samples": "was it run with --no-log-samples?",
    "system": "see `ls -l {path}`",
    "damage": "is it cut off, damaged or a Git LFS pointer? Fetch or write it again",
    "remote": "did the server fail, or is the address wrong? Credentials come from "
    "where the library for it looks (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL; "
    "a public bucket: FSSPEC_S3_ANON=true)",
    "hub": "check the name, config and split (hf:org/name:config@split); a gated or "
    "private one needs HF_TOKEN; without a network load it beforehand "
    "(`datasets.load_dataset`)",
    "not_there": "check the name; empty folders do not count",
    "bomb": "it may be a decompression bomb: check where it comes from",
    "room": "set TMPDIR to a folder with more room",
    "too_long": "write its rows as JSON Lines (`jq -c '.[]'`), or name another "
    "--input-format",
    "not_a_document": "is it cut off? Check it with `python -m json.tool`",
    "not_a_table": "is a quote opened there and never closed?",
    "lfs_pointer": "fetch the data with `git lfs pull`",
    "other_data": "--input-format and --encoding say how to read it",
    "unknown_data": "name its format with --input-format (csv, text, ...), or give it "
    "the suffix of its format; see `chunkscope help formats`",
    "no_field": "name another field; [datasets] in chunkscope.toml has fields of "
    "single datasets",
    "no_fields": "expected objects with text in them",
    "near": "did you mean {option} {near}?",
    "unknown_prompt": "name it with --field, --each or --template '{{{{ a }}}} "
    "{{{{ b }}}}'; or --exclude it",
    "likely": "is it --field {likely}? Or put it together with --template '{{{{ a }}}} "
    "{{{{ b }}}}'",
    "all_bad": "is it another field (--field) or format (`chunkscope help config`)?",
    "template_refused": "check the order of its roles, or count with --model or "
    "--chat-template",
    "not_json": "is it cut off, or is it a web page or Python's repr?",
    "no_chat_template": "give --chat-template FILE, or count texts: --field "
    "'messages[].content'",
    "template_not_jinja": "give another one with --chat-template FILE",
    "no_default_template": "give one with --chat-template FILE",
    "worker_died": "was it out of memory? See `ray logs`, and count this file alone",
}


# The types of JSON that take an article.
ARTICLES = {
    "object": "an object",
    "list": "a list",
    "number": "a number",
    "boolean": "a boolean",
}


class Count(int):
    """A number that can be written with its noun."""

    def __format__(self, noun: str) -> str:
        if noun[:1].isalpha():
            return plural(self, noun)
        return super().__format__(noun)


def message_of(problem: Note) -> str:
    """What is wrong, as a sentence; with the fields where one has to be chosen."""
    values = {name: shown(value) for name, value in problem.values.items()}
    for name in ("found", "wanted"):
        if name in values:
            values[name] = ARTICLES.get(str(values[name]), values[name])
    message = SENTENCES[problem.code].format(**values)
    if "field_table" in problem.values:
        message += fields_of(problem.values)
    return message


def fields_of(values: Mapping[str, object]) -> str:
    """The lines that list the fields of a dataset."""
    table = values["field_table"]
    lines = ["", "the fields are:"]
    if isinstance(table, list) and table:
        lines += [f"  {line}" for line in table]
    else:
        lines.append("  none")
    if values["more"]:
        lines.append(f"  ... and {values['more']} more")
    return "\n".join(lines)


def hint_of(problem: Note) -> str | None:
    """What to do about it: by its cause, that of the first bad row, or its code."""
    cause = problem.values.get("cause")
    reason = problem.values.get("reason")
    if cause is None and isinstance(reason, Note):
        cause = reason.code
    hint = HINTS.get(str(cause)) or HINTS.get(problem.code)
    if hint is None:
        return None
    return hint.format(**problem.values)


def shown(value: Fact | list[Fact] | Note) -> Fact:
    """A value as it stands in a sentence."""
    if isinstance(value, Note):
        return message_of(value)
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if value is None:
        return "-"
    return Count(value) if isinstance(value, int) else value
