"""Prompts as the tokenizer is given them: chats as text, texts with their special
tokens.
"""

from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from sys import getsizeof

from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.prompts.chat import Conversation, string_content
from chunkscope.prompts.prompt import Prompt
from chunkscope.sources.base import Problems
from chunkscope.tokenizers.foreign import TemplateRefused, engine_name
from chunkscope.tokenizers.prepare import TokenizerFacts
from chunkscope.tokenizers.reference import ID_BYTES
from chunkscope.tokenizers.tokenizer import Tokenizer

MISTRAL = "mistral-common"


@dataclass(slots=True)
class Rendered:
    """A prompt with its text or, where there is nothing left to tokenize, its length or
    ids.
    """

    prompt: Prompt
    text: str | None = None
    ids: bytes | None = None  # of a chat that its tokenizer encoded itself
    answered: str | None = None  # with its answer, where that is to be counted
    special_tokens: int = 0  # that are put around it
    special_after: int = 0  # those of them that come after it
    shown: str = ""  # what people would read of it
    chars: int = 0
    begins_twice: bool = False  # has the tokenizer's first token in its text, too
    is_chat: bool = False
    has_media: bool = False
    ignores_tools: bool = False


@dataclass(slots=True)
class Batch:
    """Prompts that are counted together, and how much of the file was read by then."""

    prompts: list[Rendered]
    bytes_read: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = 0
        for rendered in self.prompts:
            self.size += getsizeof(rendered.shown)


@dataclass(slots=True)
class Counted:
    """A prompt with its tokens, special ones included in their number."""

    rendered: Rendered
    tokens: int
    ids: bytes | None  # None where only the length is known
    output: int | None  # tokens of the answer


@dataclass(slots=True)
class CountedBatch:
    prompts: list[Counted]
    bytes_read: int


class Renderer:
    """Makes of each prompt of a run what its tokenizer is given."""

    def __init__(self, tokenizer: Tokenizer, options: AnalyzeOptions) -> None:
        self.tokenizer = tokenizer
        self.options = options

    @cached_property
    def facts(self) -> TokenizerFacts:
        """Asked for where there are texts, as it may have to be prepared first."""
        return self.tokenizer.facts

    def render(self, prompts: list[Prompt], problems: Problems) -> list[Rendered]:
        """Chats that the template refuses become problems."""
        rendered = []
        for prompt in prompts:
            try:
                rendered.append(self._render(prompt))
            except TemplateRefused as error:
                problems.bad(prompt.position, error)
        return rendered

    def _render(self, prompt: Prompt) -> Rendered:
        content = prompt.content
        if isinstance(content, int):
            return Rendered(prompt)
        if isinstance(content, Conversation):
            return self._chat(prompt, content)
        if self.options.apply_chat_template and prompt.request is None:
            message = {"role": "user", "content": content}
            return self._chat(prompt, Conversation([message]))
        return self._text(prompt, content)

    def _text(self, prompt: Prompt, text: str) -> Rendered:
        request = prompt.request
        whole = text if request is None else text + request.continuation
        rendered = Rendered(prompt, text=whole, shown=whole, chars=len(whole))
        has_special = request is None or request.special_tokens
        if self.options.special_tokens and has_special:
            facts = self.facts
            rendered.special_tokens = facts.special_added
            rendered.special_after = facts.special_after
            begin = facts.begin_text
            rendered.begins_twice = bool(begin) and text.startswith(begin or "")
        return rendered

    def _chat(self, prompt: Prompt, chat: Conversation) -> Rendered:
        rendered = Rendered(prompt, is_chat=True, has_media=bool(chat.media))
        if self.tokenizer.counts_chats_itself:
            ids = self.tokenizer.mistral_chat.ids(chat)
            rendered.ids = array("I", ids).tobytes()
            rendered.chars = len(self.tokenizer.mistral_chat.plain_text(ids))
            said = [turn["content"] for turn in string_content(chat.messages)]
            rendered.shown = "\n".join(text for text in said if text)
            return rendered
        text = self.tokenizer.chat_text(chat)
        if prompt.request is not None:
            text += prompt.request.continuation
            rendered.answered = self._answered(prompt, chat)
        rendered.text = text
        rendered.shown = text
        rendered.chars = len(text)
        rendered.ignores_tools = self.tokenizer.ignores_tools(chat)
        return rendered

    def _answered(self, prompt: Prompt, chat: Conversation) -> str | None:
        """The chat with its answer, by whose text that is counted.

        None where its length is known, or where the template will not have it.
        """
        request = prompt.request
        if request is None or not request.answer or prompt.output is not None:
            return None
        whole = replace(
            chat,
            messages=[*chat.messages, *request.answer],
            template_kwargs={**chat.template_kwargs, "add_generation_prompt": False},
        )
        with suppress(TemplateRefused):
            return self.tokenizer.chat_text(whole).rstrip()
        return None

    def count(self, batch: Batch) -> CountedBatch:
        """The batch with its tokens; safe to call from several threads."""
        texts: list[str] = []
        for rendered in batch.prompts:
            if rendered.text is not None:
                texts.append(rendered.text)
            if isinstance(rendered.prompt.output, str):
                texts.append(rendered.prompt.output)
            if rendered.answered is not None:
                texts.append(rendered.answered)
        # Where there is nothing to tokenize, no tokenizer has to be loaded.
        text_ids = iter(self.tokenizer.id_bytes(texts) if texts else [])
        counted = []
        for rendered in batch.prompts:
            counted.append(_counted(rendered, text_ids))
        return CountedBatch(counted, batch.bytes_read)

    def engines(self, batch: CountedBatch) -> set[str]:
        """What counted these prompts."""
        by_mistral = False
        by_engine = False
        for counted in batch.prompts:
            if counted.rendered.ids is not None:
                by_mistral = True
            elif counted.ids is not None:
                by_engine = True
            if isinstance(counted.rendered.prompt.output, str):
                by_engine = True
        engines = set(self.tokenizer.engines) if by_engine else set()
        if by_mistral:
            engines.add(engine_name(MISTRAL))
        return engines


def _counted(rendered: Rendered, text_ids: Iterator[bytes]) -> Counted:
    """A prompt with the ids of its texts, which come next."""
    ids = rendered.ids
    if rendered.text is not None:
        ids = next(text_ids)
    output = rendered.prompt.output
    if isinstance(output, str):
        output = len(next(text_ids)) // ID_BYTES
    tokens = _length_of(rendered.prompt) if ids is None else len(ids) // ID_BYTES
    if rendered.answered is not None:
        output = max(0, len(next(text_ids)) // ID_BYTES - tokens)
    tokens += rendered.special_tokens
    return Counted(rendered, tokens, ids, output)


def _length_of(prompt: Prompt) -> int:
    assert isinstance(prompt.content, int)  # noqa: S101  (anything else has ids)
    return prompt.content
