"""Chats for Mistral's own tokenizers: mistral-common encodes them, as in vLLM, without
a template."""

from pathlib import Path
from typing import Any

from chunkscope.prompts.chat import Conversation, Message
from chunkscope.sources.base import first_line
from chunkscope.tokenizers.foreign import TemplateRefused

ID_CHARS = 9  # the last ones of a tool call's id, as vLLM's server hands it over


class MistralChat:
    """Conversations the way mistral-common encodes them."""

    def __init__(self, tekken: Path) -> None:
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

        self._policies = SpecialTokenPolicy
        self._request = ChatCompletionRequest
        self._tokenizer = MistralTokenizer.from_file(str(tekken))
        # A conversation that ends with an answer is counted with it. vLLM refuses one,
        # and continues it where it is asked to.
        validator = self._tokenizer._chat_completion_request_validator
        validator._validate_last_message = lambda _: None
        encoder = self._tokenizer.instruct_tokenizer.tokenizer
        self._has_effort = encoder.version.supports_model_settings

    def encode(self, chat: Conversation) -> tuple[list[int], str]:
        """The token ids, and the text they stand for with its special tokens."""
        ids = self.ids(chat)
        return ids, self._decode(ids, self._policies.KEEP)

    def plain_text(self, ids: list[int]) -> str:
        """The text without special tokens."""
        return self._decode(ids, self._policies.IGNORE)

    def _decode(self, ids: list[int], policy: object) -> str:
        return str(self._tokenizer.decode(ids, special_token_policy=policy))

    def ids(self, chat: Conversation) -> list[int]:
        """The token ids. Raises TemplateRefused where mistral-common does not take
        it."""
        effort = chat.template_kwargs.get("reasoning_effort")
        messages = [_as_sent(message) for message in chat.messages]
        try:
            for message in messages:
                _check_unicode(message)
            request = self._request.from_openai(
                messages,
                tools=chat.tools,
                reasoning_effort=effort if self._has_effort else None,
            )
            return list(self._tokenizer.encode_chat_completion(request).tokens)
        except Exception as error:  # pydantic and mistral-common raise many kinds
            raise TemplateRefused("template_refused", why=first_line(error)) from error


def _check_unicode(message: Message) -> None:
    """UnicodeEncodeError for a lone surrogate, which is no character to a tokenizer."""
    if isinstance(message["content"], str):
        message["content"].encode()


def _as_sent(message: Message) -> Message:
    """As vLLM's server hands it over: the texts alone, and short ids."""
    sent = _with_short_id(message, "tool_call_id")
    if isinstance(sent["content"], list):
        texts = [part for part in sent["content"] if part["type"] == "text"]
        sent = {**sent, "content": texts}
    if "tool_calls" in sent:
        calls = [_with_short_id(call, "id") for call in sent["tool_calls"]]
        sent = {**sent, "tool_calls": calls}
    return sent


def _with_short_id(part: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(part.get(name), str):
        return part
    return {**part, name: part[name][-ID_CHARS:]}
