"""Chats for Mistral's own tokenizers: mistral-common encodes them, there is no template.

vLLM does the same for these models. It takes two seconds to load, so only a chat dataset does.
"""

import json
from pathlib import Path

from chunkscope.prompts.chat import Conversation, string_content
from chunkscope.sources.base import first_line
from chunkscope.tokenizers.foreign import TemplateRefused


class MistralChat:
    """Counts conversations the way mistral-common encodes them."""

    def __init__(self, path: Path) -> None:
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

        self._request = ChatCompletionRequest
        self._tokenizer = MistralTokenizer.from_file(str(path))

    def count(self, chat: Conversation) -> tuple[list[int], int]:
        """The token ids, and how many characters they stand for.

        TemplateRefused when this conversation cannot be encoded.
        """
        messages = string_content(chat.messages)
        contents = sum(len(message["content"] or "") for message in messages)
        # Tools and calls are encoded as JSON.
        data = [chat.tools, *(message.get("tool_calls") for message in messages)]
        as_json = sum(len(json.dumps(part, ensure_ascii=False)) for part in data if part)
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
            tokens: list[int] = self._tokenizer.encode_chat_completion(request).tokens
        except Exception as error:  # pydantic and mistral-common raise many kinds
            raise TemplateRefused(f"mistral-common refuses it: {first_line(error)}") from error
        return tokens
