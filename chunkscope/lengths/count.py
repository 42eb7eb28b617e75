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
from chunkscope.tokenizers.foreign import TemplateRefused
from chunkscope.tokenizers.reference import ID_BYTES, engine_name, pack
from chunkscope.tokenizers.tokenizer import Tokenizer

_SMALL_CHARS = 1 << 15  # are counted at once: a thread would take longer to be asked
_MOST_UNDER_WAY = 4

Prompt = str | bytes | int  # its text; its token ids; or its length, where only that is known
Outputs = Sequence[str | int | None]
R = TypeVar("R")


class Batch(NamedTuple):
    """Prompts that are counted together; `requests` is how a harness sent them, if it did."""

    positions: Sequence[int]
    prompts: Sequence[Prompt]
    special: Sequence[int]  # by prompt, tokens that are put before it
    outputs: Outputs | None = None
    requests: Sequence[SentRequest] | None = None


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
        if options.prefixes and kind != "lengths":
            tally.comparison = TextComparison()

    def count(self, all_prompts: Iterable[Prompts]) -> None:
        """All of them; what was read before an error counts too."""
        if self.kind == "lengths":
            for prompts in all_prompts:
                self._add_lengths(prompts)
            return
        try:
            batches = map(self._batch, all_prompts)
            for batch, (tokens, outputs) in in_order(self.pool, self._tokenized, batches):
                if batch.requests is None:
                    self._add(batch, tokens, outputs)
                else:
                    self._add_requests(batch, batch.requests, tokens, outputs or ())
        finally:
            if self.tally.engines:
                self.tally.score(self.tokenizer.count)

    # -- prompts -> batches ----------------------------------------------------------------------

    def _batch(self, prompts: Prompts) -> Batch:
        """Texts as they are; chats as text by the template, or as ids by mistral-common."""
        items, outputs, requests = prompts.items, prompts.outputs, None
        if self.kind == "requests":
            requests = prompts.items
            items, outputs = [r.prompt for r in requests], [r.output for r in requests]
        if self.kind == "text" and self.options.apply_chat_template:
            items = [Conversation([{"role": "user", "content": text}]) for text in items]
        special = self._special(items, requests)
        rendered: list[Prompt | None] = items
        if self.kind != "text" or self.options.apply_chat_template:
            rendered = self._rendered(prompts.positions, items)
        if requests is not None:
            pairs = zip(rendered, requests, strict=True)
            rendered = [p + r.continuation if isinstance(p, str) else p for p, r in pairs]
        columns = (prompts.positions, rendered, special, outputs, requests)
        if None in rendered:
            rows = [row for row, prompt in enumerate(rendered) if prompt is not None]
            columns = tuple(column and [column[row] for row in rows] for column in columns)  # type: ignore[assignment]
        batch = Batch(*columns)  # type: ignore[arg-type]
        if texts := [(n, p) for n, p in zip(*batch[:2], strict=True) if isinstance(p, str)]:
            self.tally.add_chars(sum([len(text) for _, text in texts]))
            if self.options.prefixes:
                self.tally.near_misses.offer(*zip(*texts, strict=True))
        return batch

    def _special(
        self, items: Sequence[object], requests: Sequence[SentRequest] | None
    ) -> list[int]:
        """By prompt, the special tokens before it: of texts only, a chat template has its own."""
        if not self.options.special_tokens or str not in set(map(type, items)):
            return [0] * len(items)
        facts = self.tokenizer.facts
        added, begin = facts.special_added, facts.begin_text
        special = [added] * len(items)
        if requests is not None:
            pairs = zip(items, requests, strict=True)
            special = [added * (isinstance(p, str) and r.special_tokens) for p, r in pairs]
        if begin:
            starts = [isinstance(item, str) and item.startswith(begin) for item in items]
            self.tally.begun_twice += sum(map(min, starts, special))
        return special

    def _rendered(self, positions: Sequence[int], items: Sequence[object]) -> list[Prompt | None]:
        """What is not a chat stays as it is; None for a chat that the template refuses."""
        tokenizer, tally = self.tokenizer, self.tally
        prompts: list[Prompt | None] = []
        for position, item in zip(positions, items, strict=True):
            if not isinstance(item, Conversation):
                prompts.append(item)  # type: ignore[arg-type]
                continue
            tally.rendered_chats = True
            try:
                if not tokenizer.counts_chats_itself:
                    prompts.append(tokenizer.chat_text(item))
                else:
                    ids, chars = tokenizer.count_chat(item)
                    prompts.append(pack(ids))
                    tally.engines.add(engine_name("mistral-common"))
                    tally.add_chars(chars)
                    if self.options.prefixes:
                        tally.near_misses.offer([position], [plain_text(item.messages)])
            except TemplateRefused as error:
                self.problems.bad(position, error.message)
                prompts.append(None)
                continue
            tally.media_rows += bool(item.media)
            tally.ignored_tools += bool(item.tools) and tokenizer.ignores_tools(item)
        return prompts

    # -- batches -> tokens, in other threads -----------------------------------------------------

    def _tokenized(self, batch: Batch) -> tuple[Sequence[bytes | int], Sequence[int | None] | None]:
        """Ids of each prompt where they are compared, else its length; lengths of the answers."""
        tally = self.tally
        texts = [prompt for prompt in batch.prompts if isinstance(prompt, str)]
        answers = [output for output in batch.outputs or () if isinstance(output, str)]
        tokens: Iterator[bytes | int] = iter(())
        lengths: Iterator[int] = iter(())
        if texts or answers:  # else no tokenizer is needed
            counter = self.tokenizer
            needs_ids = tally.comparison or tally.trace
            tokens = iter(counter.id_bytes(texts) if needs_ids else counter.count(texts))
            if answers:
                lengths = iter(counter.count(answers))
            tally.engines |= counter.engines
        prompts = [next(tokens) if isinstance(p, str) else p for p in batch.prompts]
        if batch.outputs is None:
            return prompts, None
        return prompts, [next(lengths) if isinstance(o, str) else o for o in batch.outputs]

    # -- tokens -> tally -------------------------------------------------------------------------

    def _add(
        self,
        batch: Batch,
        tokens: Sequence[bytes | int],
        outputs: Sequence[int | None] | None,
    ) -> None:
        if outputs is not None:
            self.tally.add_outputs(outputs)
        pairs = list(zip(tokens, batch.special, strict=True))
        lengths = [_length(one) + special for one, special in pairs]
        ids = [sent_ids(one, special) for one, special in pairs]
        self.tally.add(batch.positions, lengths, ids, outputs=outputs)

    def _add_requests(
        self,
        batch: Batch,
        requests: Sequence[SentRequest],
        tokens: Sequence[bytes | int],
        outputs: Sequence[int | None],
    ) -> None:
        """A request may have been cut, or sent in several windows."""
        if any(output is not None for output in outputs):
            self.tally.add_outputs(outputs)
        rows: list[tuple[int, int, bytes | None, int | None, bool, int | None]] = []
        for position, request, one, special, output in zip(
            batch.positions, requests, tokens, batch.special, outputs, strict=True
        ):
            length = _length(one) + special
            windows = request.sent(length)
            ids = None
            if len(windows) == 1:
                is_cut = windows[0] < length + request.added
                ids = sent_ids(one, special + request.added, windows[0] if is_cut else None)
            generates = request.kind == "generate"
            answer = 1 if output is None and not generates else output  # which vLLM asks for
            row = (position, windows[0], ids, answer, generates, request.output_cap)
            rows += [row] * len(windows)
            self.tally.add_request(request, windows)
        if rows:
            positions, lengths, all_ids, answers, reads, caps = zip(*rows, strict=True)
            self.tally.add(
                positions, lengths, all_ids, outputs=answers, reads=reads, output_caps=caps
            )

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
        tally.add(positions, lengths, outputs=prompts.outputs)


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
        sizes = (len(prompt) for prompt in batch.prompts if isinstance(prompt, str))
        if not waiting and sum(sizes) < _SMALL_CHARS:
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
