"""Chats for Mistral's own tokenizers: mistral-common encodes them, there is no template.

vLLM does the same for these models. Its import takes half a second, so it is loaded only when a
chat dataset is counted.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError


class ChatRefused(InputError):  # noqa: N818  (it is what mistral-common did)
    """mistral-common has rules of its own: which roles follow which, how tool ids look."""


@contextmanager
def _not_spelled_out() -> Iterator[None]:
    """Without the text of each of 131,072 tokens, which takes half of the time to load it.

    It is for a list of the vocabulary that nobody asks for here.
    """
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    spell = Tekkenizer.id_to_piece
    Tekkenizer.id_to_piece = lambda *_: ""
    try:
        yield
    finally:
        Tekkenizer.id_to_piece = spell


class MistralChat:
    """Counts conversations the way mistral-common encodes them."""

    def __init__(self, path: Path) -> None:
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

        self._request = ChatCompletionRequest
        with _not_spelled_out():
            self._tokenizer = MistralTokenizer.from_file(str(path))

    def count(
        self, messages: list[dict[str, Any]], tools: list[Any] | None
    ) -> tuple[list[int], int]:
        """The token ids, and how many characters they stand for.

        ChatRefused when this conversation cannot be encoded.
        """
        tokens = self._tokens(messages, tools)
        said = sum(len(message["content"] or "") for message in messages)
        # Tools and calls are encoded as JSON.
        data = [tools, *(message.get("tool_calls") for message in messages)]
        written = sum(len(json.dumps(part, ensure_ascii=False)) for part in data if part)
        return tokens, said + written

    def encode(
        self, messages: list[dict[str, Any]], tools: list[Any] | None
    ) -> tuple[list[int], str]:
        """The token ids, and the text they stand for with its special tokens spelled out."""
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy

        tokens = self._tokens(messages, tools)
        keep = SpecialTokenPolicy.KEEP
        return tokens, str(self._tokenizer.decode(tokens, special_token_policy=keep))

    def _tokens(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
        try:
            request = self._request.from_openai(messages=messages, tools=tools)
            tokens: list[int] = self._tokenizer.encode_chat_completion(request).tokens
        except Exception as error:  # pydantic and mistral-common raise many kinds
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise ChatRefused(f"mistral-common refuses this conversation: {first}") from error
        return tokens
