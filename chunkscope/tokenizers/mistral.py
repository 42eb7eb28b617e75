"""Chats for Mistral's own tokenizers: mistral-common encodes them, there is no template.

vLLM does the same for these models. It takes half a second to import, so only a chat dataset does,
and longer to read 130,000 tokens: it is given a file with few, and asks the reference for the rest.
"""

import json
from collections.abc import Callable
from copy import copy
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chunkscope.prompts.chat import Conversation, string_content
from chunkscope.sources.base import first_line
from chunkscope.tokenizers.foreign import TemplateRefused
from chunkscope.tokenizers.resolve import read_json


class MistralChat:
    """Counts conversations the way mistral-common encodes them."""

    def __init__(self, tekken: Path, reference: Callable[[], Any]) -> None:
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

        self._request, self._reference = ChatCompletionRequest, reference
        document = read_json(tekken)
        few, config = document["vocab"][:256], document["config"]
        config["default_vocab_size"] = len(few) + config["default_num_special_tokens"]
        with TemporaryDirectory() as folder:
            file = Path(folder) / "tekken.json"
            file.write_text(json.dumps({**document, "vocab": few}))
            self._tokenizer = MistralTokenizer.from_file(str(file))
        self._few = self._tokenizer.instruct_tokenizer
        asking = copy(self._few.tokenizer)

        def encode(s: str, bos: bool, eos: bool) -> list[int]:
            ids = map(asking.num_special_tokens.__add__, reference().ids([s])[0])
            return [*[asking.bos_id] * bos, *ids, *[asking.eos_id] * eos]

        asking.encode, asking.decode = encode, lambda *_, **__: ""  # nobody reads its texts
        self._tokenizer.instruct_tokenizer = type(self._few)(asking)

    def count(self, chat: Conversation) -> tuple[list[int], int]:
        """The token ids, and how many characters they stand for."""
        data = [chat.tools, *(message.get("tool_calls") for message in chat.messages)]  # as JSON
        as_json = sum(len(json.dumps(part, ensure_ascii=False)) for part in data if part)
        contents = sum(len(message["content"]) for message in string_content(chat.messages))
        return self._tokens(chat), contents + as_json

    def encode(self, chat: Conversation) -> tuple[list[int], str]:
        """The token ids, and the text they stand for with its special tokens spelled out."""
        tokens, text, few = self._tokens(chat), "", self._few.tokenizer
        for is_special, run in groupby(tokens, few.is_special):
            ids = list(run)
            spelled = map(few.id_to_piece, ids) if is_special else self._reference().decode(ids)
            text += "".join(spelled)
        return tokens, text

    def _tokens(self, chat: Conversation) -> list[int]:
        try:
            messages = string_content(chat.messages)
            request = self._request.from_openai(messages=messages, tools=chat.tools)
            return list(self._tokenizer.encode_chat_completion(request).tokens)
        except Exception as error:  # pydantic and mistral-common raise many kinds
            raise TemplateRefused("template_refused", why=first_line(error)) from error
