"""Chats for Mistral's own tokenizers: mistral-common encodes them, as in vLLM, without a template.

It takes long to import, and to read 130,000 tokens: it is given few, and leaves texts as they are.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import ModuleType
from typing import Any

import orjson

from chunkscope.prompts.chat import Conversation, Message
from chunkscope.sources.base import first_line
from chunkscope.tokenizers.foreign import TemplateRefused


class MistralChat:
    """Conversations the way mistral-common encodes them."""

    def __init__(self, tekken: Path, reference: Callable[[], Any]) -> None:
        later = ModuleType(
            "requests"
        )  # it would fetch pictures, and takes long to load
        vars(later)["__getattr__"] = lambda name: getattr(
            import_module("requests"), name
        )
        found = sys.modules.setdefault("requests", later)
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

        if found is later:
            del sys.modules["requests"]
        self._request, self._reference, self._lock = (
            ChatCompletionRequest,
            reference,
            Lock(),
        )
        data, key = (
            tekken.read_bytes(),
            b'"token_bytes"',
        )  # most of its vocabulary is left out
        first, last = (
            data.rindex(b"{", 0, data.rindex(key, 0, end)) for end in (1 << 20, None)
        )
        document = orjson.loads(data[:first] + data[last:])
        few, config = document["vocab"][:256], document["config"]
        config["default_vocab_size"] = len(few) + config["default_num_special_tokens"]
        with TemporaryDirectory() as folder:
            file = Path(folder) / "tekken.json"
            file.write_bytes(orjson.dumps({**document, "vocab": few}))
            self._tokenizer = MistralTokenizer.from_file(str(file))
        with suppress(
            AttributeError
        ):  # checking a tool takes longer than all else: once will do
            checks, done = (
                self._tokenizer._chat_completion_request_validator,
                dict[str, None](),
            )
            check = checks._validate_function
            checks._validate_last_message = lambda _: None  # an answer is counted, too
            checks._validate_function = lambda t: (
                str(t) in done or done.update({str(t): check(t)})
            )
        self._encoder, self._texts = (
            self._tokenizer.instruct_tokenizer.tokenizer,
            list[str](),
        )
        self._has_settings = self._encoder.version.supports_model_settings

        def encode(s: str, bos: bool, eos: bool) -> list[int]:
            s.isascii() or s.encode()  # a lone surrogate is no character to a tokenizer
            self._texts.append(s)
            return [
                *[self._encoder.bos_id] * bos,
                -len(self._texts),
                *[self._encoder.eos_id] * eos,
            ]

        self._encoder.encode, self._encoder.decode = (
            encode,
            lambda *_, **__: "",
        )  # not read

    def parts(self, chat: Conversation) -> tuple[Any, ...]:
        """Texts and special tokens."""
        try:
            effort = (
                chat.template_kwargs.get("reasoning_effort")
                if self._has_settings
                else None
            )
            how = {"tools": chat.tools, "reasoning_effort": effort}
            request = self._request.from_openai([*map(_as_sent, chat.messages)], **how)
            with self._lock:
                self._texts.clear()
                tokens = self._tokenizer.encode_chat_completion(request).tokens
                return tuple(self._texts[-n - 1] if n < 0 else n for n in tokens)
        except Exception as error:  # pydantic and mistral-common raise many kinds
            raise TemplateRefused("template_refused", why=first_line(error)) from error

    def encode(self, chat: Conversation) -> tuple[list[int], str]:
        """The token ids, and the text they stand for with its special tokens spelled out."""
        ids, text = list[int](), ""
        for part in self.parts(chat):
            is_text = isinstance(part, str)
            ids += (
                self._reference().encode([part], special_tokens=False)[0]
                if is_text
                else [part]
            )
            text += part if is_text else self._encoder.vocab()[part]
        return ids, text


def _as_sent(message: Message) -> Message:
    """As vLLM's server hands it over: all parts of a text, the last nine characters of an id."""
    sent = _with_short_id(message, "tool_call_id")
    if isinstance(sent["content"], list):
        sent |= {
            "content": [part for part in sent["content"] if part["type"] == "text"]
        }
    if "tool_calls" in sent:
        sent |= {
            "tool_calls": [_with_short_id(call, "id") for call in sent["tool_calls"]]
        }
    return sent


def _with_short_id(given: Message, name: str) -> Message:
    return given | (
        {name: given[name][-9:]} if isinstance(given.get(name), str) else {}
    )
