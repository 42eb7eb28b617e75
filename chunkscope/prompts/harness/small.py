"""The logs of seven harnesses, each a form to recognise and a mapping to requests."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from operator import add
from pathlib import Path
from typing import Any

from chunkscope.prompts.chat import Conversation, conversation
from chunkscope.prompts.harness.log import (
    HarnessLog,
    SentRequest,
    as_count,
    as_dict,
    as_list,
    as_prompt,
    as_text,
    single,
)
from chunkscope.prompts.paths import json_in
from chunkscope.sources.base import DataError
from chunkscope.sources.json_rows import begins_a_chat
from chunkscope.sources.reader import RecordReader


def _measured(
    prompt: str | Conversation, answer: str | None, usage: Any, names: str, **more: Any
) -> SentRequest:
    """With the server's counts where they are logged under two names, else with the texts."""
    counted, output = (as_count(as_dict(usage).get(name)) for name in names.split())
    return SentRequest(
        prompt=counted or prompt, output=output or (None if counted else answer), **more
    )


def _without_answer(messages: Any) -> tuple[Conversation, str | None]:
    """What was sent of a conversation that ends in its answer, and the answer's text."""
    last, answer = as_dict([None, *as_list(messages)][-1]), None
    if last.get("role") == "assistant":
        messages, answer = messages[:-1], as_text(last.get("content"))
    return conversation(messages, {}), answer


HELM_STATE = "scenario_state.json"


def skip_reason(file: Path, _start: bytes) -> str | None:
    """Why a file of a HELM run is no data."""
    if file.name != HELM_STATE and (file.parent / HELM_STATE).is_file():
        return f"written by HELM; what it sent is in {HELM_STATE} next to it"
    return None


class HelmLog(HarnessLog):
    """`scenario_state.json`: every request with its result, under `request_states`."""

    harness = "HELM"
    keys = ({"instance", "request", "result"},)

    def __init__(self, head: Sequence[Any], reader: RecordReader) -> None:
        super().__init__(head, reader)
        # Beside a second list, of annotators, it is no list of rows.
        about = as_dict(reader.metadata or head[0])
        folder = reader.source.file.parent.name if reader.source.file else ""
        self.task = (
            folder if ":" in folder else None
        )  # called `mmlu:subject=...,model=...`
        self.shots = (
            as_count(as_dict(about.get("adapter_spec")).get("max_train_instances"))
            or None
        )

    def requests(self, row: Any) -> Iterator[SentRequest]:
        request, result = (
            as_dict(as_dict(row).get(key)) for key in ("request", "result")
        )
        echoes = request.get("echo_prompt") is True
        sent = (
            request.get("messages")
            or request.get("multimodal_prompt")
            or request.get("prompt")
        )
        answers = (
            as_dict(answer).get("text") for answer in as_list(result.get("completions"))
        )
        yield SentRequest(
            prompt=as_prompt(sent),
            kind="likelihood" if echoes else "generate",
            special_tokens=True,
            output_cap=None if echoes else as_count(request.get("max_tokens")) or None,
            output=None if echoes else single(answers),
        )
        self.add_document(as_dict(row.get("instance")).get("id"))


class OpenCompassLog(HarnessLog):
    """An object of entries "0", "1", ...; a line each while it is written."""

    harness = "OpenCompass"
    is_named_by_task = True
    keys = (
        {"origin_prompt", "prediction"},
        {"testing input", "prompt", "choices"},
        {"labels"},
    )

    def requests(self, row: Any) -> Iterator[SentRequest]:
        by_next_token = as_dict(row).keys() >= self.keys[1]
        labels = [row] if by_next_token else as_list(as_dict(row).get("labels"))
        for label in labels:
            prompt = _compass_prompt(as_dict(label).get("prompt"))
            yield SentRequest(prompt=prompt, kind="likelihood", special_tokens=True)
        if not labels:
            if not as_dict(row).keys() >= self.keys[0]:
                raise DataError(
                    "no_sample", harness=self.harness, fields=sorted(self.keys[0])
                )
            prompt, answers = row["origin_prompt"], row["prediction"]
            is_rounds = bool(as_list(prompt)) and all(
                isinstance(part, list) for part in prompt
            )
            prompts, texts = (
                (prompt, as_list(answers)) if is_rounds else ([prompt], [answers])
            )
            for sent, text in zip_longest(prompts, texts[: len(prompts)]):
                prompt, answer = _compass_prompt(sent), as_text(text)
                yield SentRequest(prompt=prompt, special_tokens=True, output=answer)
        self.add_document()


def _compass_prompt(value: Any) -> str | Conversation:
    """Its messages are {"role": "HUMAN", "prompt": ...}; an empty last one is to be filled."""
    if not isinstance(value, list) or begins_a_chat(value):
        return as_prompt(value)
    messages = [
        {"role": m.get("role"), "content": m.get("prompt")} for m in map(as_dict, value)
    ]
    if messages and messages[-1]["role"] == "BOT" and not messages[-1]["content"]:
        messages.pop()
    return conversation(messages, {})


class OpenAiEvalsLog(HarnessLog):
    """A line per event; the first has the `spec`, the last the `final_report`."""

    harness = "OpenAI Evals"
    keys = (
        {"run_id", "event_id", "sample_id", "type", "data"},
        {"spec"},
        {"final_report"},
    )

    def requests(self, row: Any) -> Iterator[SentRequest]:
        data = as_dict(as_dict(row).get("data"))
        if as_dict(row).get("type") == "sampling":
            self.add_document(row.get("sample_id"))
            prompt, sampled = as_prompt(data.get("prompt")), data.get("sampled")
            answer = single(sampled if isinstance(sampled, list) else [sampled])
            names = "prompt_tokens completion_tokens"
            yield _measured(
                prompt, answer, data.get("usage"), names, special_tokens=True
            )


class SimpleEvalsLog(HarnessLog):
    """`convos`, each a conversation that ends in its answer."""

    harness = "simple-evals"
    keys = ({"convo"},)

    def requests(self, row: Any) -> Iterator[SentRequest]:
        sent, answer = _without_answer(as_dict(row).get("convo"))
        yield SentRequest(prompt=sent, output=answer)
        self.add_document()


class EvalScopeLog(HarnessLog):
    """A line per sample, with its messages and the model's output."""

    harness = "evalscope"
    is_named_by_task = True
    keys = ({"index", "messages", "model_output"},)

    def requests(self, row: Any) -> Iterator[SentRequest]:
        row = as_dict(row)
        if row.get("agent_trace"):
            raise DataError("agent_run")
        usage = as_dict(row.get("model_output")).get("usage")
        yield _measured(
            *_without_answer(row.get("messages")), usage, "input_tokens output_tokens"
        )
        self.add_document()


class PromptfooLog(HarnessLog):
    """One document, or a line per result."""

    harness = "promptfoo"
    keys = ({"prompt", "vars", "provider", "response"},)

    def requests(self, row: Any) -> Iterator[SentRequest]:
        raw = as_dict(as_dict(row).get("prompt")).get("raw")
        if not isinstance(raw, str):
            raise DataError("no_sample", harness=self.harness, fields=["prompt.raw"])
        self.add_document(row.get("testIdx"))
        response = as_dict(row.get("response"))
        if response.get("cached") is True:
            return  # nothing was sent
        name = as_dict(row.get("provider")).get("id", row.get("provider"))
        prompt: str | Conversation = raw
        # Messages as JSON text; a plain text is a user's message, unless it was to be completed.
        if begins_a_chat(messages := json_in(raw)):
            prompt = conversation(messages, {})
        elif "completion" not in str(name):
            prompt = conversation([{"role": "user", "content": raw}], {})
        usage, answer = response.get("tokenUsage"), as_text(response.get("output"))
        yield _measured(prompt, answer, usage, "prompt completion", special_tokens=True)


class LightevalLog(HarnessLog):
    """A row per document, with the token ids that the model got; by version 0.11 or newer."""

    harness = "lighteval"
    keys = ({"doc", "model_response"},)

    def requests(self, row: Any) -> Iterable[SentRequest]:
        doc, response = (
            as_dict(as_dict(row).get(key)) for key in ("doc", "model_response")
        )
        if self.task is None and (name := as_text(doc.get("task_name"))):
            self.task = (
                name  # "lighteval|gsm8k|5", or since 0.12 "gsm8k|5": with 5 shots
            )
            self.shots = as_count(name.rpartition("|")[2])
        outputs = _id_lists(response.get("output_tokens"))
        answers = [sum(token != -1 for token in ids) for ids in outputs]
        contexts = [len(ids) for ids in _id_lists(response.get("input_tokens"))]
        if not as_list(
            response.get("text")
        ):  # logprobs there may be of generated tokens too
            scores = response.get("logprobs")
            if (
                isinstance(scores, float) and len(contexts) == 1
            ):  # the whole of a single one
                answers, scores = [0], [scores]
            elif (
                len(contexts) == 1
            ):  # one for all of the choices, each of which was sent with it
                contexts = contexts * len(answers)
            if not answers or not len(contexts) == len(answers) == len(as_list(scores)):
                names = ["input_tokens", "output_tokens", "logprobs"]
                counts = [len(contexts), len(answers), len(as_list(scores))]
                raise DataError("unequal_lists", names=names, counts=counts)
            self.add_document()
            return [
                SentRequest(prompt=n, kind="likelihood")
                for n in map(add, contexts, answers)
            ]
        cap = as_count(doc.get("generation_size")) or None
        filled = as_count(response.get("padded_tokens_count")) or 0
        output = answers[0] if len(answers) == 1 else None
        prompts: list[Any] = [max(tokens - filled, 0) for tokens in contexts]
        sent = prompts or [as_prompt(response.get("input"))]  # an API has no ids
        self.add_document()
        more: dict[str, Any] = {
            "special_tokens": True,
            "output_cap": cap,
            "output": output,
        }
        return [SentRequest(prompt=prompt, **more) for prompt in sent]


def _id_lists(value: Any) -> list[list[Any]]:
    """Lists of ids; a single one may stand by itself."""
    lists = [ids for ids in as_list(value) if isinstance(ids, list)]
    return lists if lists or not as_list(value) else [value]
