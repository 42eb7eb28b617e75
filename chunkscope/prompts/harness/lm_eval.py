"""lm-eval's samples: a row per document and filter, with the arguments of each of its requests.

Version 0.4.2 wrote one array, with lists of arguments; 0.4.3 and later write a row per line, with
`gen_args_0: {arg_0, arg_1}`. A request is counted as lm-eval tokenizes it, and cut where the
results of the run say how long it may be.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from chunkscope.errors import InputError
from chunkscope.prompts.chat import Conversation, conversation
from chunkscope.prompts.fields import UnusableError, describe
from chunkscope.prompts.harness.lm_eval_results import RunSettings, is_results, settings_of
from chunkscope.prompts.harness.request import LONGEST_FIRST, HarnessLog, SentRequest
from chunkscope.prompts.harness.values import has, most_have
from chunkscope.sources.reader import RecordReader

_KEYS = frozenset({"doc_id", "arguments"})
_NEEDED = _KEYS | {"resps"}
_CAPS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


class LmEvalLog(HarnessLog):
    """A document comes again for each filter, which sends nothing: it is counted once."""

    harness = "lm-eval"
    columns = _NEEDED

    def __init__(self, settings: RunSettings) -> None:
        self.version, self.task, self.shots = settings.version, settings.task, settings.shots
        self.order = LONGEST_FIRST if settings.is_local else self.order
        self._settings = settings
        self._seen: dict[str, list[int]] = {}
        self._whole_texts = self._with_media = 0

    @classmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:
        if any(is_results(record) for record in head):
            raise InputError(
                f"{reader.source.path} holds lm-eval's results, not what it sent",
                hint="name the samples_*.jsonl beside it; lm-eval writes them with --log_samples",
            )
        if not most_have(head, *_KEYS):
            return None
        if not any(has(record, "resps") for record in head):
            raise InputError(
                f"{reader.source.path} looks like samples of lm-eval, but has no resps, which "
                "tell how often each request was sent",
                hint="lm-eval 0.4.2 to 0.4.13 write them with --log_samples",
            )
        return cls(settings_of(reader.source))

    def requests(self, record: Any) -> Iterator[SentRequest]:
        if not isinstance(record, dict) or not record.keys() >= _NEEDED:
            held = record if isinstance(record, dict) else ()
            missing = ", ".join(key for key in sorted(_NEEDED) if key not in held)
            raise UnusableError(f"no sample of lm-eval: {missing} missing")
        if not self._is_new(str(record["doc_id"]), record["arguments"], record["resps"]):
            return
        sent = _argument_lists(record["arguments"])
        answers = record["resps"]
        if not isinstance(answers, list) or len(answers) != len(sent):
            raise UnusableError(f"resps are not a list for each of {len(sent)} requests")
        for arguments, answered in zip(sent, answers, strict=True):
            yield from self._repeated(arguments, answered)
        self.documents += 1

    def _is_new(self, document: str, *sent: Any) -> bool:
        """Every filter has the same prompt and the same answers of the model."""
        digests = [hash(json.dumps(each)) for each in sent]
        is_new = document not in self._seen
        for what, digest, before in zip(
            ("another prompt", "other answers"),
            digests,
            self._seen.setdefault(document, digests),
            strict=True,
        ):
            if digest != before:
                raise UnusableError(
                    f"document {document[:40]} comes again with {what}: does the file mix "
                    "tasks, models or runs?"
                )
        return is_new

    def _repeated(self, arguments: list[Any], answers: Any) -> Iterator[SentRequest]:
        """The same request once for each answer there is."""
        if not isinstance(answers, list) or not answers:
            raise UnusableError(f"an answer in resps is {describe(answers)}, not a list")
        settings = [argument for argument in arguments[1:] if isinstance(argument, dict)]
        if len(arguments) == 1:
            request = self._rolling(_context(arguments[0]))
        elif isinstance(arguments[1], str):
            request = self._likelihood(_context(arguments[0]), arguments[1])
        elif settings:
            self._with_media += len(settings) > 1 or len(arguments) > 2
            request = self._generation(_context(arguments[0]), settings[0])
        else:
            raise UnusableError(f"a request's second argument is {describe(arguments[1])}")
        for answer in answers:
            text = answer if request.kind == "generate" and isinstance(answer, str) else None
            yield replace(request, output=text)

    def _generation(self, context: str | Conversation, given: dict[str, Any]) -> SentRequest:
        run = self._settings
        cap = next((given[key] for key in _CAPS if isinstance(given.get(key), int)), run.output_cap)
        room = run.max_length - cap if run.max_length is not None else 0
        return SentRequest(
            prompt=context,
            special_tokens=self._adds_special_tokens(context),
            most_tokens=room if room > 0 and isinstance(context, str) else None,
            output_cap=cap,
        )

    def _likelihood(self, context: str | Conversation, continuation: str) -> SentRequest:
        """Both are one text for the tokenizer: spaces between them belong to either."""
        return SentRequest(
            prompt=context,
            continuation=continuation,
            kind="likelihood",
            special_tokens=context != "" and self._adds_special_tokens(context),
            added=0 if context else 1,  # the prefix token, which stands for an empty context
            most_tokens=self._settings.most_tokens,
        )

    def _rolling(self, context: str | Conversation) -> SentRequest:
        most = self._settings.most_tokens if self._settings.is_local else None
        self._whole_texts += most is None
        return SentRequest(
            prompt=context,
            kind="likelihood",
            special_tokens=self._adds_special_tokens(context),
            added=0 if most is None else 1,  # a window begins with a token that is not scored
            window=most - 1 if most else None,
            most_tokens=most,
        )

    def _adds_special_tokens(self, context: str | Conversation) -> bool:
        """A rendered chat begins with the first of them already."""
        run = self._settings
        begun = run.bos is not None and isinstance(context, str) and context.startswith(run.bos)
        return run.special_tokens and not begun

    def notes(self) -> Iterator[str]:
        if self._whole_texts:
            yield (
                f"{self._whole_texts:,} texts of loglikelihood_rolling are counted whole: the log "
                "does not say in which windows the model got them"
            )
        if self._with_media:
            yield f"{self._with_media:,} requests hold images or audio: only their text is counted"


def _argument_lists(value: Any) -> list[list[Any]]:
    """The arguments of each request, whichever way they are written."""
    if isinstance(value, dict):
        value = [
            list(given.values()) if isinstance(given, dict) and "arg_0" in given else given
            for name, given in value.items()
            if name.startswith("gen_args_")
        ]
    if not isinstance(value, list) or not value:
        raise UnusableError("arguments have neither gen_args_0 nor a list for each request")
    for given in value:
        if not isinstance(given, list) or not given:
            raise UnusableError(f"the arguments of a request are {describe(given)}, not arg_0, ...")
    return value


def _context(value: Any) -> str | Conversation:
    """Text, or messages: a chat API's are a list that holds one JSON text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        try:
            return conversation(json.loads(value[0]), {})
        except (ValueError, RecursionError):
            raise UnusableError("the messages of a request are not valid JSON") from None
    raise UnusableError(f"the context of a request is {describe(value)}, not text or messages")
