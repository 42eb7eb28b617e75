"""Chats for Mistral's own tokenizers: mistral-common encodes them, there is no template.

vLLM does the same for these models. It takes half a second to import, so only a chat dataset does,
and longer to read 130,000 tokens: it is given a file with few, and asks the reference for the rest.
"""

import json
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chunkscope.prompts.chat import Conversation, string_content
from chunkscope.sources.base import first_line
from chunkscope.tokenizers.foreign import TemplateRefused
from chunkscope.tokenizers.reference import TiktokenReference


class MistralChat:
    """Counts conversations the way mistral-common encodes them."""

    def __init__(self, reference: TiktokenReference) -> None:
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        class Tekken(Tekkenizer):  # type: ignore[misc]
            def encode(self, s: str, bos: bool, eos: bool) -> list[int]:
                (ids,) = reference.encode([s], special_tokens=False)
                return [self.bos_id] * bos + ids + [self.eos_id] * eos

            def decode(self, tokens: list[int], *args: Any, **kwargs: Any) -> str:
                text, special = "", super().decode
                for is_text, some in groupby(tokens, lambda token: token >= reference.first_id):
                    run = list(some)
                    text += reference.decode(run) if is_text else special(run, *args, **kwargs)
                return text

        self._request = ChatCompletionRequest
        with TemporaryDirectory() as folder:
            file = Path(folder) / "tekken.json"
            file.write_bytes(reference.few_tokens)
            self._tokenizer = MistralTokenizer.from_file(str(file))
            kind = type(self._tokenizer.instruct_tokenizer)
            self._tokenizer.instruct_tokenizer = kind(Tekken.from_file(file))

    def count(self, chat: Conversation) -> tuple[list[int], int]:
        """The token ids, and how many characters they stand for."""
        # Tools and calls are encoded as JSON.
        data = [chat.tools, *(message.get("tool_calls") for message in chat.messages)]
        as_json = sum(len(json.dumps(part, ensure_ascii=False)) for part in data if part)
        contents = sum(len(message["content"]) for message in string_content(chat.messages))
        return self._tokens(chat), contents + as_json

    def encode(self, chat: Conversation) -> tuple[list[int], str]:
        """The token ids, and the text they stand for with its special tokens spelled out."""
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy

        tokens, keep = self._tokens(chat), SpecialTokenPolicy.KEEP
        return tokens, str(self._tokenizer.decode(tokens, special_token_policy=keep))

    def _tokens(self, chat: Conversation) -> list[int]:
        try:
            messages = string_content(chat.messages)
            request = self._request.from_openai(messages=messages, tools=chat.tools)
            return list(self._tokenizer.encode_chat_completion(request).tokens)
        except Exception as error:  # pydantic and mistral-common raise many kinds
            raise TemplateRefused(f"mistral-common refuses it: {first_line(error)}") from error
