"""lighteval's details, since 0.11: a row per document, with the token ids that the
model got.
"""

from collections.abc import Iterator
from typing import Any

from chunkscope.prompts.harness.log import (
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    as_count,
    as_dict,
    as_list,
    as_prompt,
    as_text,
    first_count,
    most_have,
)
from chunkscope.sources.base import DataError

PADDING = -1  # where an answer in a batch is shorter than the longest


def recognise(start: LogStart) -> HarnessLog | None:
    if most_have(start.records, "full_prompt", "input_tokens", "cont_tokens"):
        raise DataError("old_log", version="lighteval 0.10 or older", oldest="0.11")
    if not most_have(start.records, "doc", "model_response"):
        return None
    # "lighteval|gsm8k|5", or since 0.12 "gsm8k|5": with 5 shots.
    task = None
    for record in start.records:
        task = task or as_text(as_dict(as_dict(record).get("doc")).get("task_name"))
    shots = as_count((task or "").rpartition("|")[2])
    return LightevalLog(LogHeader(harness="lighteval", task=task, shots=shots))


class LightevalLog(HarnessLog):
    def requests(self, row: Any) -> Iterator[SentRequest]:
        response = as_dict(as_dict(row).get("model_response"))
        contexts = [len(ids) for ids in id_lists(response.get("input_tokens"))]
        answers = []
        for ids in id_lists(response.get("output_tokens")):
            answers.append(sum(token != PADDING for token in ids))
        # Generated tokens may have logprobs, too; but they are a text.
        if as_list(response.get("text")):
            doc = as_dict(as_dict(row).get("doc"))
            yield from generations(doc, response, contexts, answers)
        else:
            for tokens in scored_lengths(response.get("logprobs"), contexts, answers):
                yield SentRequest(prompt=tokens, kind="likelihood")
        self.add_document()


def scored_lengths(logprobs: Any, contexts: list[int], answers: list[int]) -> list[int]:
    """The tokens of each likelihood request: context and choice."""
    scores = as_list(logprobs)
    if isinstance(logprobs, float) and len(contexts) == 1:
        return contexts  # a whole text was scored
    if len(contexts) == 1:  # one for all of the choices, each of which was sent with it
        contexts = contexts * len(answers)
    if not answers or not len(contexts) == len(answers) == len(scores):
        names = ["input_tokens", "output_tokens", "logprobs"]
        counts = [len(contexts), len(answers), len(scores)]
        raise DataError("unequal_lists", names=names, counts=counts)
    pairs = zip(contexts, answers, strict=True)
    return [context + answer for context, answer in pairs]


def generations(
    doc: dict[str, Any],
    response: dict[str, Any],
    contexts: list[int],
    answers: list[int],
) -> Iterator[SentRequest]:
    padding = as_count(response.get("padded_tokens_count")) or 0
    prompts: list[Any] = [max(tokens - padding, 0) for tokens in contexts]
    if not prompts:  # an API has no ids
        prompts = [as_prompt(response.get("input"))]
    for prompt in prompts:
        yield SentRequest(
            prompt=prompt,
            special_tokens=True,
            output_cap=first_count(doc.get("generation_size")),
            output=answers[0] if len(answers) == 1 else None,
        )


def id_lists(value: Any) -> list[list[Any]]:
    """Lists of token ids; a single one may stand by itself."""
    values = as_list(value)
    lists = [ids for ids in values if isinstance(ids, list)]
    if lists or not values:
        return lists
    return [values]
