"""lm-eval's samples: a row per document and filter, with the arguments of each of its
requests.

A request is counted as lm-eval tokenizes it, and cut where the results of the run,
which lie beside the samples, say how long it may be.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from chunkscope.artefacts.note import Note, note
from chunkscope.prompts.chat import Conversation, conversation
from chunkscope.prompts.harness.log import (
    AS_LOGGED,
    LONGEST_FIRST,
    HarnessLog,
    LogHeader,
    LogStart,
    SentRequest,
    as_count,
    as_dict,
    as_list,
    as_text,
    first_count,
    most_have,
)
from chunkscope.prompts.paths import json_in, wrong_type
from chunkscope.sources.base import DataError, Source

HARNESS = "lm-eval"
SAMPLE_KEYS = ("arguments", "doc_id", "resps")
RESULTS_KEYS = ("results", "configs", "versions", "config")
CAPS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
USUAL_CAP = 256  # tokens of an answer, where neither task nor model says more
# These tokenize in lm-eval itself, and send what is longest first.
LOCAL_MODELS = (
    "vllm",
    "vllm-vlm",
    "hf",
    "hf-auto",
    "huggingface",
    "hf-multimodal",
    "sglang",
)
# samples_gsm8k_2026-11-15T12-48-36.519903.jsonl
SAMPLES_NAME = re.compile(
    r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]*\d)(\.json.*)?"
)


# --- the results of the run -----------------------------------------------------------


def skip_reason(file: Path, start: bytes) -> str | None:
    """Why lm-eval's results file is no data; only one that begins like it is read."""
    if re.match(rb'\s*\{\s*"results":', start) and read_results(file):
        return "lm-eval's results; what it sent is in the samples next to it"
    return None


def read_results(file: Path) -> dict[str, Any]:
    """What is in a results file; nothing if it is none."""
    try:
        results = as_dict(orjson.loads(file.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}
    return results if results.keys() >= set(RESULTS_KEYS) else {}


def results_file(source: Source) -> Path | None:
    """The results of the run that wrote these samples: those of the same date."""
    if source.file is None or source.member is not None:
        return None
    match = SAMPLES_NAME.fullmatch(source.file.name)
    if match is None:
        return None
    results = source.file.parent / f"results_{match['date']}.json"
    return results if results.is_file() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LmEvalRun:
    """How a run tokenized and cut its requests, as far as its results say."""

    is_local: bool  # the model was tokenized for in lm-eval's own process
    max_length: int | None
    likelihood_limit: int | None  # tokens to which a likelihood request was cut
    output_cap: int
    special_tokens: bool
    bos: str | None  # what a text may begin with already


def run_of(results: dict[str, Any]) -> LmEvalRun:
    config = as_dict(results.get("config"))
    arguments = model_arguments(config)
    version = as_text(results.get("lm_eval_version"))
    max_length = first_count(
        results.get("max_length"),
        arguments.get("max_length"),
        arguments.get("max_model_len"),
    )
    likelihood_limit = max_length
    if max_length is not None and not is_before_0_4_10(version):
        likelihood_limit = max_length - 1  # vLLM wants room for one more token
    bos = results.get("tokenizer_bos_token")
    if isinstance(bos, list):  # the text and its id
        bos = bos[0] if bos else None
    return LmEvalRun(
        is_local=config.get("model") in LOCAL_MODELS,
        max_length=max_length,
        likelihood_limit=likelihood_limit,
        output_cap=first_count(arguments.get("max_gen_toks")) or USUAL_CAP,
        special_tokens=adds_special_tokens(results, arguments),
        bos=as_text(bos),
    )


def model_arguments(config: dict[str, Any]) -> dict[str, Any]:
    arguments = config.get("model_args")
    if not isinstance(arguments, str):
        return as_dict(arguments)
    pairs = {}  # up to 0.4.9: "pretrained=x,max_length=4096"
    for pair in arguments.split(","):
        name, _, value = pair.partition("=")
        pairs[name.strip()] = value.strip()
    return pairs


def is_before_0_4_10(version: str | None) -> bool:
    numbers = [int(number) for number in re.findall(r"\d+", version or "")[:3]]
    return bool(numbers) and numbers < [0, 4, 10]


def adds_special_tokens(results: dict[str, Any], arguments: dict[str, Any]) -> bool:
    """Whether <s> and the like were added to texts.

    Versions that write their number leave it to the tokenizer. Older ones, and models
    behind an API, add none unless they are told to.
    """
    option = str(arguments.get("add_bos_token", "")).lower()
    if option in ("true", "false"):
        return option == "true"
    name = str(arguments.get("pretrained") or arguments.get("model") or "").lower()
    if not results or "gemma" in name:
        return True
    has_version = as_text(results.get("lm_eval_version")) is not None
    return has_version and not is_api(as_dict(results.get("config")))


def is_api(config: dict[str, Any]) -> bool:
    return "completions" in str(config.get("model"))


# --- the log --------------------------------------------------------------------------


def recognise(start: LogStart) -> HarnessLog | None:
    if most_have(start.records, *RESULTS_KEYS):
        raise DataError("only_results", path=start.source.path)
    if not most_have(start.records, "doc_id", "arguments"):
        return None
    if all(isinstance(as_dict(row).get("arguments"), list) for row in start.records):
        raise DataError("old_log", version="lm-eval 0.4.2 or older", oldest="0.4.3")
    file = results_file(start.source)
    results = read_results(file) if file else {}
    return LmEvalLog(header_of(start.source, results), run_of(results))


def header_of(source: Source, results: dict[str, Any]) -> LogHeader:
    samples = PurePosixPath(source.path)
    if source.rendered and source.file:  # its path is the name of the task
        samples = PurePosixPath(source.file)
    match = SAMPLES_NAME.fullmatch(samples.name)
    task = match["task"] if match else None
    config = as_dict(results.get("config"))
    batch = None if source.rendered else as_count(config.get("batch_size"))
    order, concurrency = AS_LOGGED, None
    if config.get("model") in LOCAL_MODELS:
        order = LONGEST_FIRST
        concurrency = batch  # "auto" sends all at once
    elif batch and is_api(config):
        workers = first_count(model_arguments(config).get("num_concurrent")) or 1
        concurrency = batch * workers
    return LogHeader(
        harness=HARNESS,
        version=as_text(results.get("lm_eval_version")),
        task=task,
        shots=as_count(as_dict(results.get("n-shot")).get(task or "")),
        order=order,
        concurrency=concurrency,
    )


class LmEvalLog(HarnessLog):
    """A document comes again for each filter, which sends nothing: it is counted
    once.
    """

    def __init__(self, header: LogHeader, run: LmEvalRun) -> None:
        super().__init__(header)
        self.run = run
        self.whole_texts = 0
        self.with_media = 0

    def requests(self, row: Any) -> Iterator[SentRequest]:
        sample = as_dict(row)
        if not sample.keys() >= set(SAMPLE_KEYS):
            raise _no_sample(*SAMPLE_KEYS)
        # Every filter has the same prompt and the same answers; a file of several tasks
        # has others under the same number.
        document = str(hash(json.dumps([sample[key] for key in SAMPLE_KEYS])))
        if document in self.documents:
            return
        groups = argument_groups(sample["arguments"])
        answers = as_list(sample["resps"])
        if len(answers) != len(groups):
            names = ["arguments", "resps"]
            counts = [len(groups), len(answers)]
            raise DataError("unequal_lists", names=names, counts=counts)
        for arguments, repeats in zip(groups, answers, strict=True):
            if not as_list(repeats):
                raise _no_sample("resps[][0]")
            request = self._request(arguments)
            for answer in repeats:  # each is a request of its own
                is_text = request.kind == "generate" and isinstance(answer, str)
                yield replace(request, output=answer if is_text else None)
        self.add_document(document)

    def _request(self, arguments: list[Any]) -> SentRequest:
        context = _context(arguments[0])
        if len(arguments) == 1:
            return self._rolling(context)
        if isinstance(arguments[1], str):
            return self._likelihood(context, arguments[1])
        return self._generation(context, arguments[1:])

    def _rolling(self, context: str | Conversation) -> SentRequest:
        """A whole text, which is sent in windows."""
        special_tokens = self._adds_special_tokens(context)
        limit = self.run.likelihood_limit if self.run.is_local else None
        if limit is None:
            self.whole_texts += 1
            return SentRequest(
                prompt=context, kind="likelihood", special_tokens=special_tokens
            )
        return SentRequest(
            prompt=context,
            kind="likelihood",
            special_tokens=special_tokens,
            added=1,  # a window begins with a token that is not scored
            window=limit - 1,
            most_tokens=limit,
        )

    def _likelihood(
        self, context: str | Conversation, continuation: str
    ) -> SentRequest:
        is_empty = context == ""
        special_tokens = not is_empty and self._adds_special_tokens(context)
        return SentRequest(
            prompt=context,
            continuation=continuation,
            kind="likelihood",
            special_tokens=special_tokens,
            added=1 if is_empty else 0,  # the prefix token stands for no context
            most_tokens=self.run.likelihood_limit,
        )

    def _generation(
        self, context: str | Conversation, others: Sequence[Any]
    ) -> SentRequest:
        settings = [argument for argument in others if isinstance(argument, dict)]
        if not settings:
            raise wrong_type(others[0], "arguments[][1]", "object")
        if len(others) > 1:  # pictures or sounds come last
            self.with_media += 1
        cap = first_count(*map(settings[0].get, CAPS)) or self.run.output_cap
        most_tokens = None
        if self.run.max_length is not None and isinstance(context, str):
            room = self.run.max_length - cap  # the answer has to fit, too
            most_tokens = room if room > 0 else None
        return SentRequest(
            prompt=context,
            special_tokens=self._adds_special_tokens(context),
            most_tokens=most_tokens,
            output_cap=cap,
        )

    def _adds_special_tokens(self, context: str | Conversation) -> bool:
        """A rendered chat begins with the first special token already."""
        bos = self.run.bos
        if bos is not None and isinstance(context, str) and context.startswith(bos):
            return False
        return self.run.special_tokens

    def notes(self) -> Iterator[Note]:
        if self.whole_texts:
            yield note("rolling_texts_whole", count=self.whole_texts)
        if self.with_media:
            yield note("media_rows", count=self.with_media)


def argument_groups(arguments: Any) -> list[list[Any]]:
    """The arguments of each request: the values of gen_args_0, gen_args_1 and so on."""
    groups = []
    for name, group in as_dict(arguments).items():
        if name.startswith("gen_args_"):
            groups.append(list(as_dict(group).values()))
    if not groups or not all(groups):
        raise _no_sample("arguments.gen_args_0")
    return groups


def _context(context: Any) -> str | Conversation:
    """A text; or messages, which for a chat API are a list of one text in JSON."""
    if isinstance(context, str):
        return context
    if len(as_list(context)) == 1 and isinstance(context[0], str):
        return conversation(json_in(context[0]), {})
    raise wrong_type(context, "arguments[][0]", "text")


def _no_sample(*fields: str) -> DataError:
    return DataError("no_sample", harness=HARNESS, fields=list(fields))
