"""Prompts -> tokens: chats are rendered, texts counted by a few threads, and all is added up.

Only a few batches of texts are on their way at any time, so memory does not depend on the size of a
file.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from chunkscope.errors import ChunkscopeError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.tally import Tally
from chunkscope.prefixes.comparison import TextComparison, TraceComparison, sent_ids
from chunkscope.prompts.chat import Conversation, plain_text
from chunkscope.prompts.harness.log import SentRequest
from chunkscope.prompts.selection import Prompts
from chunkscope.sources.base import Problems
from chunkscope.tokenizers.counting import TextCounter
from chunkscope.tokenizers.foreign import TemplateRefused
from chunkscope.tokenizers.reference import ID_BYTES, engine_name, pack
from chunkscope.tokenizers.tokenizer import Tokenizer

_BATCH_CHARS = 1 << 20
_BATCH_ROWS = 2000
_SMALL_CHARS = 1 << 15  # are counted at once: a thread would take longer to be asked
_MOST_UNDER_WAY = 4
# Of a prompt that is compared with others: no model reads a longer one, and its ids would take more
# memory than everything else.
_LONGEST_COMPARED_CHARS = 1 << 25

Prompt = str | bytes | int  # its text; its token ids; or its length, where only that is known
R = TypeVar("R")


class NoTokenizer(Exception):  # noqa: N818  (it carries the error)
    """The tokenizer cannot be loaded: that is not about one dataset, so the scan ends."""

    def __init__(self, error: ChunkscopeError) -> None:
        super().__init__(error.message)
        self.error = error


class Batch(NamedTuple):
    """Prompts that are counted together; `requests` is how a harness sent them, if it did."""

    positions: Sequence[int]
    prompts: Sequence[Prompt]
    outputs: Sequence[str | int | None] | None = None
    requests: Sequence[SentRequest] | None = None

    @property
    def chars(self) -> int:
        return sum([len(prompt) for prompt in self.prompts if isinstance(prompt, str)])

    def parts(self) -> Iterator["Batch"]:
        """Slices of at most so many rows and characters, though never less than one row."""
        start = chars = 0
        for place, prompt in enumerate(self.prompts):
            size = len(prompt) if isinstance(prompt, str) else 0
            if place > start and (chars + size > _BATCH_CHARS or place - start >= _BATCH_ROWS):
                yield self._slice(start, place)
                start, chars = place, 0
            chars += size
        if start < len(self.prompts):
            yield self._slice(start, len(self.prompts))

    def _slice(self, start: int, end: int) -> "Batch":
        if (start, end) == (0, len(self.prompts)):
            return self
        return Batch(
            self.positions[start:end],
            self.prompts[start:end],
            self.outputs and self.outputs[start:end],
            self.requests and self.requests[start:end],
        )


class Sent(NamedTuple):
    """Prompts as they reached the model; `ids` has None for those that are not known."""

    positions: Sequence[int]
    lengths: Sequence[int]
    ids: Sequence[bytes | None]
    outputs: Sequence[int | None] | None = None
    reads: Sequence[bool] | None = None  # from vLLM's prefix cache; None: all of them
    output_caps: Sequence[int | None] | None = None


class PromptCounter:
    """Counts the prompts of one dataset, of one kind, into its tally."""

    def __init__(
        self,
        kind: str,
        tokenizer: Tokenizer,
        options: AnalyzeOptions,
        pool: ThreadPoolExecutor,
        tally: Tally,
        problems: Problems,
    ) -> None:
        self.kind = kind
        self.tokenizer = tokenizer
        self.options = options
        self.pool = pool
        self.tally = tally
        self.problems = problems
        self.counter: TextCounter | None = None
        self.special = 0  # tokens that are put before a text
        if options.prefixes and kind != "lengths":
            tally.comparison = TextComparison()

    def count(self, all_prompts: Iterable[Prompts]) -> None:
        """All of them; what was read before an error counts too."""
        if self.kind == "lengths":
            for prompts in all_prompts:
                self._add_lengths(prompts)
            return
        try:
            for batch, tokens in in_order(self.pool, self._tokenized, self._batches(all_prompts)):
                self._add(batch, *tokens)
        finally:
            if self.counter is not None:
                self.tally.engines |= self.counter.engines
                self.tally.scoring = self.tally.contexts.measured(self.counter.count)

    # -- prompts -> batches ----------------------------------------------------------------------

    def _batches(self, all_prompts: Iterable[Prompts]) -> Iterator[Batch]:
        make = {"text": self._texts, "chat": self._chats, "requests": self._requests}[self.kind]
        for prompts in all_prompts:
            batch = make(prompts)
            rows = zip(batch.positions, batch.prompts, strict=True)
            if texts := [(at, prompt) for at, prompt in rows if isinstance(prompt, str)]:
                self._load()
                self.tally.add_chars(batch.chars)
                if self.options.prefixes:
                    self.tally.near_misses.offer(*zip(*texts, strict=True))
            yield from batch.parts()

    def _load(self) -> TextCounter:
        """The tokenizer, loaded when the first text comes."""
        if self.counter is None:
            try:
                self.counter = self.tokenizer.counter
            except ChunkscopeError as error:
                raise NoTokenizer(error) from error
            if self.options.special_tokens:
                self.special = self.tokenizer.facts.special_added
        return self.counter

    def _texts(self, prompts: Prompts) -> Batch:
        """Texts as they are, or each as one user message."""
        if self.options.apply_chat_template:
            chats = [Conversation([{"role": "user", "content": text}]) for text in prompts.items]
            return self._chats(prompts._replace(items=chats))
        self._load()
        if self.special and (begin := self.tokenizer.facts.begin_text):
            self.tally.begun_twice += sum([text.startswith(begin) for text in prompts.items])
        return Batch(prompts.positions, prompts.items, prompts.outputs)

    def _chats(self, prompts: Prompts) -> Batch:
        rendered = self._rendered(prompts.positions, prompts.items)
        rows = [place for place, prompt in enumerate(rendered) if prompt is not None]
        outputs = prompts.outputs
        return Batch(
            [prompts.positions[row] for row in rows],
            [prompt for prompt in rendered if prompt is not None],
            None if outputs is None else [outputs[row] for row in rows],
        )

    def _requests(self, prompts: Prompts) -> Batch:
        """What a harness sent: texts, chats and lengths, in one log."""
        requests: list[SentRequest] = prompts.items
        pairs = list(zip(prompts.positions, requests, strict=True))
        chats = [(at, r.prompt) for at, r in pairs if isinstance(r.prompt, Conversation)]
        rendered = iter(self._rendered([at for at, _ in chats], [chat for _, chat in chats]))
        rows: list[tuple[int, Prompt, SentRequest]] = []
        for position, request in pairs:
            prompt = request.prompt
            one = next(rendered) if isinstance(prompt, Conversation) else prompt
            if isinstance(one, str):
                self._load()
                if prompt is one and request.special_tokens and self.special:
                    begin = self.tokenizer.facts.begin_text
                    self.tally.begun_twice += bool(begin) and one.startswith(begin)
                one += request.continuation
            if one is not None:
                rows.append((position, one, request))
        return Batch(
            [position for position, _, _ in rows],
            [prompt for _, prompt, _ in rows],
            [request.output for _, _, request in rows],
            [request for _, _, request in rows],
        )

    def _rendered(
        self, positions: Sequence[int], chats: Sequence[Conversation]
    ) -> list[str | bytes | None]:
        """Each chat as text by the template, or as ids by mistral-common; None if refused."""
        if not chats:
            return []  # which needs no tokenizer
        tokenizer, tally = self.tokenizer, self.tally
        direct = tokenizer.counts_chats_itself
        results = tokenizer.count_chats(chats) if direct else tokenizer.chat_texts(chats)
        tally.rendered_chats = True
        if direct:
            tally.engines.add(engine_name("mistral-common"))
        rendered: list[str | bytes | None] = []
        for position, chat, result in zip(positions, chats, results, strict=True):
            if isinstance(result, TemplateRefused):
                self.problems.bad(position, result.message)
                rendered.append(None)
                continue
            tally.media_rows += bool(chat.media)
            tally.ignored_tools += tokenizer.ignores_tools(chat)
            if isinstance(result, str):
                rendered.append(result)
                continue
            ids, chars = result
            tally.add_chars(chars)
            rendered.append(pack(ids))
            if self.options.prefixes:
                tally.near_misses.offer([position], [plain_text(chat.messages)])
        return rendered

    # -- batches -> tokens, in other threads -----------------------------------------------------

    def _tokenized(self, batch: Batch) -> tuple[Sequence[bytes | int], Sequence[int | None] | None]:
        """Ids of each prompt where they are compared, else its length; lengths of the answers."""
        texts = [prompt for prompt in batch.prompts if isinstance(prompt, str)]
        tokens = iter(self._ids(texts) if texts else ())
        prompts = [next(tokens) if isinstance(p, str) else p for p in batch.prompts]
        if batch.outputs is None:
            return prompts, None
        answers = [output for output in batch.outputs if isinstance(output, str)]
        lengths = iter(self._load().count(answers) if answers else ())
        outputs = [next(lengths) if isinstance(o, str) else o for o in batch.outputs]
        return prompts, outputs

    def _ids(self, texts: list[str]) -> Sequence[bytes | int]:
        comparison, counter = self.tally.comparison, self._load()
        compares = isinstance(comparison, TextComparison) and not comparison.is_full
        if compares and max(map(len, texts)) > _LONGEST_COMPARED_CHARS:
            return counter.count(texts)
        return counter.id_bytes(texts) if compares or self.tally.trace else counter.count(texts)

    # -- tokens -> tally -------------------------------------------------------------------------

    def _add(
        self,
        batch: Batch,
        tokens: Sequence[bytes | int],
        outputs: Sequence[int | None] | None,
    ) -> None:
        known = outputs is not None and any(output is not None for output in outputs)
        if outputs is not None and (known or batch.requests is None):
            self.tally.add_outputs(outputs)
        if batch.requests is not None:
            self._take(self._as_sent(batch.positions, batch.requests, tokens, outputs or ()))
            return
        special = (
            self.special if self.kind == "text" and not self.options.apply_chat_template else 0
        )
        lengths = [_length(one) + special for one in tokens]
        ids = [sent_ids(one, special) if isinstance(one, bytes) else None for one in tokens]
        self._take(Sent(batch.positions, lengths, ids, outputs))

    def _as_sent(
        self,
        positions: Sequence[int],
        requests: Sequence[SentRequest],
        tokens: Sequence[bytes | int],
        outputs: Sequence[int | None],
    ) -> Sent:
        """A request may have been cut, or sent in several windows."""
        rows: list[tuple[int, int, bytes | None, int | None, bool, int | None]] = []
        for position, request, one, output in zip(
            positions, requests, tokens, outputs, strict=True
        ):
            is_text = isinstance(request.prompt, str) and request.special_tokens
            special = self.special if is_text else 0
            length = _length(one) + special
            windows = request.sent(length)
            ids = None
            if isinstance(one, bytes) and len(windows) == 1:
                is_cut = windows[0] < length + request.added
                ids = sent_ids(one, special + request.added, windows[0] if is_cut else None)
            generates = request.kind == "generate"
            if output is None and not generates:
                output = 1  # which vLLM asks for
            row = (position, windows[0], ids, output, generates, request.output_cap)
            rows += [row] * len(windows)
            self.tally.add_requests(request.kind, request.output_cap, len(windows))
            if not generates and not isinstance(request.prompt, int):
                self.tally.contexts.add(request, sum(windows))
        return Sent(*zip(*rows, strict=True)) if rows else Sent((), (), ())

    def _take(self, sent: Sent) -> None:
        tally, comparison = self.tally, self.tally.comparison
        tally.add(sent.positions, sent.lengths)
        if isinstance(comparison, TextComparison) and not comparison.is_full:
            ids = [one for one in sent.ids if one is not None]
            if len(ids) == len(sent.ids):
                comparison.add(sent.positions, ids, sent.reads)
            else:
                tally.comparison = None  # what some of them are made of is not known
        if tally.trace is not None:
            tally.trace.add(sent.lengths, sent.outputs, sent.output_caps, sent.ids)

    def _add_lengths(self, prompts: Prompts) -> None:
        """Rows of a trace, which bring their lengths along."""
        tally, positions, lengths = self.tally, prompts.positions, prompts.items
        if prompts.outputs is not None:
            tally.add_outputs(prompts.outputs)
        if prompts.blocks is not None and self.options.prefixes:
            comparison = tally.comparison or TraceComparison()
            if isinstance(comparison, TraceComparison):
                comparison.add(positions, lengths, prompts.blocks)
            tally.comparison = comparison
        tally.add(positions, lengths)
        if tally.trace is not None:
            tally.trace.add(lengths, prompts.outputs, None, [None] * len(lengths))


def _length(tokens: bytes | int) -> int:
    return tokens if isinstance(tokens, int) else len(tokens) // ID_BYTES


def in_order(
    pool: ThreadPoolExecutor, job: Callable[[Batch], R], batches: Iterator[Batch]
) -> Iterator[tuple[Batch, R]]:
    """Each batch with what the job makes of it; a few are under way at a time.

    An error while batches are read comes after what was read before it.
    """
    waiting: deque[tuple[Batch, Future[R]]] = deque()
    error: ChunkscopeError | None = None
    while error is None:
        try:
            batch = next(batches, None)
        except ChunkscopeError as caught:
            error = caught
            break
        if batch is None:
            break
        if not waiting and batch.chars < _SMALL_CHARS:
            yield batch, job(batch)
            continue
        waiting.append((batch, pool.submit(job, batch)))
        if len(waiting) > _MOST_UNDER_WAY:
            first, future = waiting.popleft()
            yield first, future.result()
    for batch, future in waiting:
        yield batch, future.result()
    if error is not None:
        raise error
