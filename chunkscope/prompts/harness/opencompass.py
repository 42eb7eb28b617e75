"""OpenCompass's predictions: an object of entries "0", "1", ...; a line each while it
is written.
"""

from collections.abc import Iterator
from typing import Any

from chunkscope.prompts.chat import Conversation, conversation
from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    as_dict,
    as_list,
    as_prompt,
    as_text,
)
from chunkscope.sources.base import DataError
from chunkscope.sources.json_document import begins_a_chat

HARNESS = "OpenCompass"
GENERATED = {"origin_prompt", "prediction"}
CHOSEN = {"testing input", "prompt", "choices"}  # by the likelihood of the next token
LABEL = "label: "  # of an answer for which a likelihood was asked


def entries_in(record: Any) -> list[Any]:
    document = as_dict(record)
    if document and all(key.isdecimal() for key in document):
        return list(document.values())
    return [record]


def labels_in(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [as_dict(row[key]) for key in row if key.startswith(LABEL)]


def recognise(start: LogStart) -> HarnessLog | None:
    entries = [entry for record in start.records for entry in entries_in(record)]
    rows = [as_dict(entry) for entry in entries]
    fitting = [row for row in rows if _is_entry(row)]
    if 2 * len(fitting) <= len(rows):
        return None
    return OpenCompassLog(LogHeader(harness=HARNESS, task=start.file_stem))


def _is_entry(row: dict[str, Any]) -> bool:
    keys = row.keys()
    return keys >= GENERATED or keys >= CHOSEN or bool(labels_in(row))


class OpenCompassLog(HarnessLog):
    def rows(self, record: Any) -> list[Any]:
        return entries_in(record)

    def requests(self, row: Any) -> Iterator[SentRequest]:
        entry = as_dict(row)
        scored = [entry] if entry.keys() >= CHOSEN else labels_in(entry)
        if scored:
            for label in scored:
                prompt = compass_prompt(label.get("prompt"))
                yield SentRequest(prompt=prompt, kind="likelihood", special_tokens=True)
        elif entry.keys() >= GENERATED:
            yield from generations(entry["origin_prompt"], entry["prediction"])
        else:
            raise DataError("no_sample", harness=HARNESS, fields=sorted(GENERATED))
        self.add_document()


def generations(prompt: Any, answer: Any) -> Iterator[SentRequest]:
    prompts, answers = [prompt], [answer]
    if as_list(prompt) and all(isinstance(part, list) for part in prompt):
        prompts, answers = prompt, as_list(answer)  # a request for each round
    for number, messages in enumerate(prompts):
        text = as_text(answers[number]) if number < len(answers) else None
        prompt = compass_prompt(messages)
        yield SentRequest(prompt=prompt, special_tokens=True, output=text)


def compass_prompt(value: Any) -> str | Conversation:
    """Its messages are {"role": "HUMAN", "prompt": ...}; an empty last one is to be
    filled.
    """
    if not isinstance(value, list) or begins_a_chat(value):
        return as_prompt(value)
    messages = []
    for turn in map(as_dict, value):
        messages.append({"role": turn.get("role"), "content": turn.get("prompt")})
    if messages and messages[-1]["role"] == "BOT" and not messages[-1]["content"]:
        messages.pop()
    return conversation(messages, {})
