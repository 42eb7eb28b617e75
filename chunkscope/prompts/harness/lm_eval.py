"""lm-eval's samples: a row per document and filter, with the arguments of each of its requests.

A request is counted as lm-eval tokenizes it, and cut where the results of the run, which lie beside
the samples, say how long it may be.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.chat import conversation
from chunkscope.prompts.harness.log import (
    LONGEST_FIRST,
    HarnessLog,
    SentRequest,
    as_count,
    as_dict,
    as_list,
    as_text,
)
from chunkscope.prompts.paths import json_in, wrong_type
from chunkscope.sources.base import DataError, Source
from chunkscope.sources.reader import RecordReader

_NEEDED = ("arguments", "doc_id", "resps")
_CAPS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_RESULTS_KEYS = {"results", "configs", "versions", "config"}
# These tokenize in lm-eval itself, and send what is longest first.
_LOCAL_MODELS = {
    "vllm",
    "vllm-vlm",
    "hf",
    "hf-auto",
    "huggingface",
    "hf-multimodal",
    "sglang",
}
SAMPLES_NAME = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]*\d)(\.json.*)?"
)


def skip_reason(file: Path, start: bytes) -> str | None:
    """Why lm-eval's results file is no data; only one that begins like it is read."""
    if re.match(rb'\s*\{\s*"results":', start) and _results_in(file) is not None:
        return "lm-eval's results; what it sent is in the samples next to it"
    return None


def _results_in(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, RecursionError):
        value = orjson.loads(file.read_bytes())
        return value if as_dict(value).keys() >= _RESULTS_KEYS else None
    return None


def results_file(source: Source) -> Path | None:
    """The results of the run that wrote these samples: those of the same date."""
    file = source.file if source.member is None else None
    match = SAMPLES_NAME.fullmatch(file.name) if file else None
    results = file.parent / f"results_{match['date']}.json" if file and match else None
    return results if results and results.is_file() else None


class LmEvalLog(HarnessLog):
    """A document comes again for each filter, which sends nothing: it is counted once."""

    harness = "lm-eval"
    keys = ({"doc_id", "arguments"}, _RESULTS_KEYS)

    def __init__(self, head: Sequence[Any], reader: RecordReader) -> None:
        super().__init__(head, reader)
        source = reader.source
        if any(as_dict(record).keys() >= _RESULTS_KEYS for record in head):
            raise DataError("only_results", path=source.path)
        self._whole_texts = self._with_media = 0
        file = results_file(source)
        results = (_results_in(file) if file else None) or {}
        config = as_dict(results.get("config"))
        model, given = str(config.get("model")), config.get("model_args")
        if isinstance(given, str):  # up to 0.4.9: "pretrained=x,max_length=4096"
            given = {
                k.strip(): v.strip() for k, v in re.findall("([^,=]+)=([^,]*)", given)
            }
        arguments = as_dict(given)
        self.version = as_text(results.get("lm_eval_version"))
        samples = (
            source.file
            if source.rendered and source.file
            else PurePosixPath(source.path)
        )
        match = SAMPLES_NAME.fullmatch(samples.name)
        self.task = match["task"] if match else None
        self.shots = as_count(as_dict(results.get("n-shot")).get(self.task or ""))
        is_api = "completions" in model
        batch = None if source.rendered else as_count(config.get("batch_size"))
        self._is_local = model in _LOCAL_MODELS
        if self._is_local:
            self.order, self.concurrency = (
                LONGEST_FIRST,
                batch,
            )  # "auto" sends all at once
        elif batch and is_api:
            self.concurrency = batch * (as_count(arguments.get("num_concurrent")) or 1)
        limits = (
            results.get("max_length"),
            *map(arguments.get, ("max_length", "max_model_len")),
        )
        self._max_length = next(filter(None, map(as_count, limits)), None)
        # Likelihood requests are cut: vLLM wants room for one more token, left since 0.4.10.
        numbers = [int(number) for number in re.findall(r"\d+", self.version or "")[:3]]
        left = 0 if numbers and numbers < [0, 4, 10] else 1
        self._most_tokens = (
            None if self._max_length is None else self._max_length - left
        )
        self._output_cap = as_count(arguments.get("max_gen_toks")) or 256
        # Whether <s> and the like were added. Versions that write their number leave it to the
        # tokenizer; older ones and models behind an API add none unless they are told to.
        name = str(arguments.get("pretrained") or arguments.get("model") or "").lower()
        usual = (
            not results or "gemma" in name or (self.version is not None and not is_api)
        )
        option = str(arguments.get("add_bos_token", "")).lower()
        self._special_tokens = {"true": True, "false": False}.get(option, usual)
        # What a text may begin with already: text, or a list of the text and its id.
        bos = results.get("tokenizer_bos_token")
        self._bos = as_text(bos) or as_text(next(iter(as_list(bos)), None))

    def requests(self, row: Any) -> Iterator[SentRequest]:
        if not as_dict(row).keys() >= {*_NEEDED}:
            raise DataError("no_sample", harness=self.harness, fields=[*_NEEDED])
        # Every filter has the same prompt and the same answers; a file of several tasks has others.
        document = str(hash(json.dumps([row[key] for key in _NEEDED])))
        if document in self.ids:
            return
        answers, groups = row["resps"], as_dict(row["arguments"])
        sent = [
            [*as_dict(groups[name]).values()]
            for name in groups
            if name[:9] == "gen_args_"
        ]
        if not sent or not all(sent):
            raise DataError(
                "no_sample", harness=self.harness, fields=["arguments.gen_args_0"]
            )
        if not isinstance(answers, list) or len(answers) != len(sent):
            counts = [len(sent), len(as_list(answers))]
            raise DataError(
                "unequal_lists", names=["arguments", "resps"], counts=counts
            )
        for arguments, repeats in zip(sent, answers, strict=True):
            if not isinstance(repeats, list) or not repeats:
                raise DataError(
                    "no_sample", harness=self.harness, fields=["resps[][0]"]
                )
            request = self._request(arguments)
            for answer in repeats:
                text = (
                    answer
                    if request.kind == "generate" and isinstance(answer, str)
                    else None
                )
                yield replace(request, output=text)
        self.add_document(document)

    def _request(self, arguments: list[Any]) -> SentRequest:
        context: Any = arguments[
            0
        ]  # text, or messages: a chat API's are a list of one JSON text
        if (
            isinstance(context, list)
            and len(context) == 1
            and isinstance(context[0], str)
        ):
            context = conversation(json_in(context[0]), {})
        elif not isinstance(context, str):
            raise wrong_type(context, "arguments[][0]", "text")
        # A rendered chat begins with the first special token already.
        begun = self._bos and isinstance(context, str) and context.startswith(self._bos)
        special_tokens = self._special_tokens and not begun
        if len(arguments) == 1:  # a whole text, in windows
            most = self._most_tokens if self._is_local else None
            self._whole_texts += most is None
            return SentRequest(
                prompt=context,
                kind="likelihood",
                special_tokens=special_tokens,
                added=0
                if most is None
                else 1,  # a window begins with a token that is not scored
                window=most - 1 if most else None,
                most_tokens=most,
            )
        if isinstance(arguments[1], str):
            # Both are one text for the tokenizer: spaces between them belong to either.
            return SentRequest(
                prompt=context,
                continuation=arguments[1],
                kind="likelihood",
                special_tokens=context != "" and special_tokens,
                added=0
                if context
                else 1,  # the prefix token, which stands for an empty context
                most_tokens=self._most_tokens,
            )
        settings = [
            argument for argument in arguments[1:] if isinstance(argument, dict)
        ]
        if not settings:
            raise wrong_type(arguments[1], "arguments[][1]", "object")
        self._with_media += len(settings) > 1 or len(arguments) > 2
        cap = next(
            filter(None, map(as_count, map(settings[0].get, _CAPS))), self._output_cap
        )
        room = self._max_length - cap if self._max_length is not None else 0
        return SentRequest(
            prompt=context,
            special_tokens=special_tokens,
            most_tokens=room if room > 0 and isinstance(context, str) else None,
            output_cap=cap,
        )

    def notes(self) -> Iterator[Note]:
        if self._whole_texts:
            yield note("rolling_texts_whole", count=self._whole_texts)
        if self._with_media:
            yield note("media_rows", count=self._with_media)
