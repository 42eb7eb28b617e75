"""The kinds of counter: prompts in, lengths into the tally. Which one is decided per dataset.

Texts are counted by a pool of threads (the engines release the interpreter lock). Only a few lists
of texts are on their way at any time, so memory does not depend on the size of a file.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from chunkscope.errors import ChunkscopeError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.tally import Tally
from chunkscope.prefixes.scored_contexts import ScoredContexts
from chunkscope.prompts.chat import Conversation, plain_text
from chunkscope.prompts.harness.log import SentRequest
from chunkscope.prompts.selection import Prompts
from chunkscope.sources.base import Problems
from chunkscope.tokenizers.chat_template import TemplateRefused
from chunkscope.tokenizers.counting import TextCounter
from chunkscope.tokenizers.mistral import ChatRefused
from chunkscope.tokenizers.reference import ID_BYTES, engine_name, pack
from chunkscope.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from chunkscope.prefixes.block_hashes import BlockHashes
    from chunkscope.prefixes.near_misses import NearMisses
    from chunkscope.prefixes.trace_blocks import TraceBlocks

_BATCH_CHARS = 1 << 20
_BATCH_ROWS = 2000
_MOST_ON_THEIR_WAY = 4
_MOST_RENDERED = 1  # chunks at a time; each is larger than a batch of texts
# Of a prompt that is compared with others: no model reads a longer one, and its ids would take more
# memory than everything else.
_LONGEST_COMPARED_CHARS = 1 << 25


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedBy:
    """What counts the texts of all datasets."""

    tokenizer: Tokenizer
    options: AnalyzeOptions
    pool: ThreadPoolExecutor


class PromptCounter(Protocol):
    def add(self, prompts: Prompts) -> None: ...
    def finish(self) -> None:
        """Wait for what is on its way."""


def counter_for(kind: str, by: CountedBy, tally: Tally, problems: Problems) -> PromptCounter:
    if kind == "lengths":
        return _Lengths(by, tally)
    if kind == "requests":
        return _Requests(by, tally, problems)
    if kind == "chat":
        return _Chats(by, tally, problems)
    if by.options.apply_chat_template:
        return _WrappedTexts(by, tally, problems)
    return _Texts(by, tally)


class NoTokenizer(Exception):  # noqa: N818  (it carries the error)
    """The tokenizer cannot be loaded: that is not about one dataset, so the scan ends."""

    def __init__(self, error: ChunkscopeError) -> None:
        super().__init__(error.message)
        self.error = error


def _loaded(tokenizer: Tokenizer) -> TextCounter:
    try:
        return tokenizer.counter
    except ChunkscopeError as error:
        raise NoTokenizer(error) from error


class _Lengths:
    """Rows that bring their lengths along."""

    def __init__(self, by: CountedBy, tally: Tally) -> None:
        self.tally = tally
        self.compares = by.options.prefixes
        self.blocks: TraceBlocks | None = None

    def add(self, prompts: Prompts) -> None:
        if prompts.outputs is not None:
            self.tally.add_answers(prompts.positions, prompts.outputs)
        if prompts.blocks is not None and self.compares:
            self.blocks = self.blocks or _trace_blocks(self.tally)
            self.blocks.add(prompts.positions, prompts.items, prompts.blocks)
        self.tally.add(prompts.positions, prompts.items)

    def finish(self) -> None:
        self.tally.compared = self.blocks


class _Texts:
    """Rows of text, counted by an engine in other threads."""

    def __init__(
        self,
        by: CountedBy,
        tally: Tally,
        *,
        special_tokens: bool = True,
        take: Callable[[list[Any], list[int]], None] | None = None,
        share: Callable[[list[Any], list[bytes]], None] | None = None,
    ) -> None:
        self.pool = by.pool
        self.tally = tally
        self.take = take or tally.add  # gets what was given as positions, and the lengths
        self.counter = _loaded(by.tokenizer)
        facts = by.tokenizer.facts
        self.added = facts.special_added if special_tokens and by.options.special_tokens else 0
        self.begin = facts.begin_text
        self.on_their_way: deque[tuple[list[Any], Future[Any]]] = deque()
        self.hashes = _block_hashes(tally) if by.options.prefixes else None
        tally.near_misses = _near_misses() if by.options.prefixes else None
        self.share = share or self._share

    def add(self, prompts: Prompts) -> None:
        if prompts.outputs is not None:
            self.add_outputs(prompts.positions, prompts.outputs)
        self.tally.offer(prompts.positions, prompts.items)
        if self.begin and self.added:
            self.tally.begun_twice += sum(text.startswith(self.begin) for text in prompts.items)
        self.count(prompts.positions, prompts.items)

    def count(self, rows: list[Any], all_texts: list[str]) -> None:
        """Send texts on their way; `take` gets their rows back with the lengths."""
        for start, end in _batches(all_texts):
            texts = all_texts[start:end]
            if self.hashes and max(map(len, texts)) > _LONGEST_COMPARED_CHARS:
                self._compare_no_more()
            self.tally.add_chars(sum(map(len, texts)))
            ids_or_counts = self.counter.id_bytes if self.hashes else self.counter.count
            self.on_their_way.append((rows[start:end], self.pool.submit(ids_or_counts, texts)))
            if len(self.on_their_way) > _MOST_ON_THEIR_WAY:
                self._take()

    def add_outputs(self, positions: Sequence[int], texts: Sequence[str | None]) -> None:
        counts = iter(self.count_outputs([text for text in texts if text is not None]))
        lengths = [None if text is None else next(counts) for text in texts]
        self.tally.add_answers(positions, lengths)

    def count_outputs(self, texts: list[str]) -> list[int]:
        return self.counter.count(texts) if texts else []

    def finish(self) -> None:
        while self.on_their_way:
            self._take()
        self.tally.engines = tuple(sorted(self.counter.engines))
        self.tally.compared = self.hashes

    def _compare_no_more(self) -> None:
        """What is on its way was asked for ids, what follows is only counted."""
        while self.on_their_way:
            self._take()
        self.hashes = None

    def _take(self) -> None:
        positions, future = self.on_their_way.popleft()
        lengths = future.result()
        if self.hashes:
            ids = lengths
            self.share(positions, ids)
            lengths = [len(own) // ID_BYTES for own in ids]
        if self.added:
            lengths = [length + self.added for length in lengths]
        self.take(positions, lengths)

    def _share(self, positions: list[int], ids: list[bytes]) -> None:
        if self.hashes:
            self.hashes.add(positions, ids, special_tokens=self.added)


def _block_hashes(tally: Tally) -> "BlockHashes":
    from chunkscope.prefixes.block_hashes import BlockHashes  # numpy: not for lengths alone

    return BlockHashes(tally.trace)


def _trace_blocks(tally: Tally) -> "TraceBlocks":
    from chunkscope.prefixes.trace_blocks import TraceBlocks

    return TraceBlocks(tally.trace)


def _near_misses() -> "NearMisses":
    from chunkscope.prefixes.near_misses import NearMisses  # likewise

    return NearMisses()


class _Chats:
    """Conversations: made into text by the chat template, or counted by mistral-common."""

    def __init__(self, by: CountedBy, tally: Tally, problems: Problems) -> None:
        self.tokenizer = by.tokenizer
        self.tally = tally
        self.problems = problems
        # The template writes the special tokens itself, as vLLM expects it to.
        self.texts = _Texts(by, tally, special_tokens=False)
        self.direct = self.tokenizer.counts_chats_itself
        self.on_their_way: deque[tuple[Prompts, Future[Any]]] = deque()

    def add(self, prompts: Prompts) -> None:
        """Send them on their way to be rendered, while the next ones are read."""
        make = self.tokenizer.count_chats if self.direct else self.tokenizer.chat_texts
        self.on_their_way.append((prompts, self.texts.pool.submit(make, prompts.items)))
        if len(self.on_their_way) > _MOST_RENDERED:
            self._take()

    def _take(self) -> None:
        prompts, future = self.on_their_way.popleft()
        texts_or_ids: list[Any] = future.result()
        positions: list[int] = []
        made: list[Any] = []
        chats: list[str] = []
        outputs: list[Any] | None = [] if prompts.outputs is not None else None
        for row, (conversation, one) in enumerate(zip(prompts.items, texts_or_ids, strict=True)):
            if isinstance(one, TemplateRefused | ChatRefused):
                self.problems.bad(prompts.positions[row], one.message)
                continue
            made.append(one)
            positions.append(prompts.positions[row])
            if self.direct:
                chats.append(plain_text(conversation.messages))
            if outputs is not None and prompts.outputs is not None:
                outputs.append(prompts.outputs[row])
            self.tally.media_rows += bool(conversation.media)
            self.tally.ignored_tools += self.tokenizer.ignores_tools(conversation)
        if outputs is not None:
            self.texts.add_outputs(positions, outputs)
        if not self.direct:
            return self.texts.add(Prompts(positions, made, None))
        if hashes := self.texts.hashes:
            hashes.add(positions, [pack(ids) for ids, _ in made])
            self.tally.offer(positions, chats)
        self.tally.add_chars(sum(chars for _, chars in made))
        return self.tally.add(positions, [len(ids) for ids, _ in made])

    def finish(self) -> None:
        while self.on_their_way:
            self._take()
        self.texts.finish()
        if self.direct:
            self.tally.engines = (engine_name("mistral-common"),)


class _WrappedTexts(_Chats):
    """Texts that are sent as one user message each."""

    def add(self, prompts: Prompts) -> None:
        chats = [Conversation([{"role": "user", "content": text}]) for text in prompts.items]
        super().add(prompts._replace(items=chats))


class _Sent(NamedTuple):
    """A request on its way: which row it came from, the special tokens of its text, its answer."""

    position: int
    request: SentRequest
    special: int
    answer: int | None = None


def _how_sent(sent: _Sent, length: int) -> tuple[int, bool, int | None] | None:
    """Tokens before its text, whether it reads from the cache, and the most that are sent of it.

    None for a text that was sent in several windows.
    """
    request, special = sent.request, sent.special + sent.request.added
    lengths = request.sent(length + sent.special)
    if len(lengths) != 1:
        return None
    most = lengths[0] if lengths[0] < length + special else None
    return special, request.kind == "generate", most


class _Requests:
    """What a harness sent: texts, chats and lengths, in one log. Lengths need no tokenizer."""

    def __init__(self, by: CountedBy, tally: Tally, problems: Problems) -> None:
        self.by = by
        self.tally = tally
        self.problems = problems
        self._texts: _Texts | None = None
        self.counted_itself = False
        self.is_comparable = True  # whether the tokens of all requests are known
        self.scored = ScoredContexts()

    @property
    def texts(self) -> _Texts:
        """The counter of texts; the tokenizer is loaded when the first one comes."""
        if self._texts is None:
            self._texts = _Texts(
                self.by, self.tally, special_tokens=False, take=self._take, share=self._share
            )
        return self._texts

    def add(self, prompts: Prompts) -> None:
        made: list[tuple[str | int, _Sent]] = []
        chats = [r.prompt for r in prompts.items if isinstance(r.prompt, Conversation)]
        rendered = iter(self._rendered(chats))
        for position, request in zip(prompts.positions, prompts.items, strict=True):
            one = next(rendered) if isinstance(request.prompt, Conversation) else None
            if isinstance(one, TemplateRefused | ChatRefused):
                self.problems.bad(position, one.message)
            else:
                made.append(self._made(position, request, one))
        made = self._with_answers(made)
        for length, sent in made:
            if isinstance(length, int):
                self._take([sent], [length])
        rows = [sent for text, sent in made if isinstance(text, str)]
        if rows:
            texts = [text for text, _ in made if isinstance(text, str)]
            counter = self.texts
            self.tally.offer([sent.position for sent in rows], texts)
            counter.count(rows, texts)

    def _with_answers(self, made: list[tuple[str | int, _Sent]]) -> list[tuple[str | int, _Sent]]:
        """With the lengths of their answers, where the log has those or their texts."""
        answers = [sent.request.output for _, sent in made]
        texts = [answer for answer in answers if isinstance(answer, str)]
        counts = iter(self.texts.count_outputs(texts) if texts else ())
        lengths = [next(counts) if isinstance(answer, str) else answer for answer in answers]
        if known := [length for length in lengths if length is not None]:
            self.tally.add_outputs(known)
        pairs = zip(made, lengths, strict=True)
        return [(text, sent._replace(answer=length)) for (text, sent), length in pairs]

    def _rendered(self, chats: list[Conversation]) -> Sequence[Any]:
        """A text or (ids, characters) of each, or why it was refused."""
        if not chats:
            return ()  # which needs no tokenizer
        tokenizer = self.by.tokenizer
        direct = tokenizer.counts_chats_itself
        return tokenizer.count_chats(chats) if direct else tokenizer.chat_texts(chats)

    def _made(self, position: int, request: SentRequest, chat: Any) -> tuple[str | int, _Sent]:
        """Its text, or its length where that is known without counting one."""
        prompt, tokenizer = request.prompt, self.by.tokenizer
        if isinstance(prompt, int):
            self.is_comparable = False
            return prompt, _Sent(position, request, 0)
        if isinstance(prompt, str):
            adds = request.special_tokens and self.by.options.special_tokens
            special = tokenizer.facts.special_added if adds else 0
            if special and (begin := tokenizer.facts.begin_text):
                self.tally.begun_twice += prompt.startswith(begin)
            return prompt + request.continuation, _Sent(position, request, special)
        self.tally.media_rows += bool(prompt.media)
        self.tally.ignored_tools += tokenizer.ignores_tools(prompt)
        self.tally.rendered_chats = True
        sent = _Sent(position, request, 0)  # a chat template writes the special tokens itself
        if isinstance(chat, str):
            return chat + request.continuation, sent
        ids, chars = chat
        self.counted_itself = True
        self.tally.add_chars(chars)
        self._share([sent], [pack(ids)])
        return len(ids), sent

    def _share(self, rows: list[_Sent], ids: list[bytes]) -> None:
        """Compare them with the requests before, in runs of those that were sent alike."""
        if (hashes := self.texts.hashes) is None:
            return
        start = 0
        lengths = [len(own) // ID_BYTES for own in ids]
        for how, run in groupby(_how_sent(*pair) for pair in zip(rows, lengths, strict=True)):
            end = start + len(list(run))
            self.is_comparable = self.is_comparable and how is not None
            if how is not None:
                special, reads, most = how
                hashes.add(
                    [row.position for row in rows[start:end]],
                    ids[start:end],
                    special_tokens=special,
                    reads=reads,
                    most_tokens=most,
                )
            start = end

    def _take(self, rows: list[_Sent], lengths: list[int]) -> None:
        for (position, request, special, answer), length in zip(rows, lengths, strict=True):
            sent = request.sent(length + special)
            if self.tally.trace is not None:
                scored = 1 if request.kind == "likelihood" else None  # vLLM asks for one token
                for _ in sent:
                    known = answer if answer is not None else scored
                    self.tally.trace.answer(position, known, otherwise=request.output_cap)
            self.tally.add([position] * len(sent), sent)
            self.tally.add_requests(request.kind, request.output_cap, len(sent))
            if request.kind == "likelihood" and not isinstance(request.prompt, int):
                self.scored.add(request, sum(sent))

    def finish(self) -> None:
        if self._texts is not None:
            self._texts.finish()
            self.tally.scoring = self.scored.measured(self._texts.counter.count)
        if not self.is_comparable:
            self.tally.compared = None
        if self.counted_itself:
            self.tally.engines += (engine_name("mistral-common"),)


def _batches(texts: list[str]) -> Iterable[tuple[int, int]]:
    """Slices of at most so many rows and characters, though never less than one row."""
    start = chars = 0
    for index, text in enumerate(texts):
        if index > start and (chars + len(text) > _BATCH_CHARS or index - start >= _BATCH_ROWS):
            yield start, index
            start, chars = index, 0
        chars += len(text)
    if start < len(texts):
        yield start, len(texts)
