"""Prompts -> tokens: chats are rendered, texts counted by a few threads, and all is added up.

Not much is on its way at any time, so memory does not depend on the size of a file; a group of
batches may hold the texts of many small files.
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from heapq import nlargest
from itertools import chain, repeat
from operator import itemgetter
from sys import getsizeof
from typing import Any, NamedTuple

from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.trace_export import SentPrompt, TraceRows
from chunkscope.prefixes.comparison import TextComparison, TraceComparison, sent_ids
from chunkscope.prefixes.near_misses import CHARS, TEXTS, Miss
from chunkscope.prefixes.reuse import Scoring
from chunkscope.prompts.chat import Conversation, string_content
from chunkscope.prompts.harness.log import SentRequest
from chunkscope.prompts.selection import Prompts
from chunkscope.sources.base import Problems
from chunkscope.tokenizers.check import Reservoir
from chunkscope.tokenizers.foreign import TemplateRefused, engine_name
from chunkscope.tokenizers.reference import ID_BYTES
from chunkscope.tokenizers.tokenizer import Tokenizer

_GROUP_BYTES = 1 << 17  # at least, for which it is worth to ask a thread
_MOST_CHOICES = 32  # that are letters or words; more are sentences, and not looked at


class Batch(NamedTuple):
    """Prompts that are counted together; `requests` is how a harness sent them, if it did.

    A prompt is its text; then its token ids, or its length where only that is known.
    """

    positions: Sequence[int]
    prompts: Sequence[Any]
    special: Sequence[int]  # by prompt, tokens that are put before it
    outputs: (
        Sequence[Any] | None
    )  # the text of the answer, then its length; None: not known
    requests: Sequence[SentRequest] | None


class PromptCounter:
    """Counts the prompts of one dataset, and adds up what comes of them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        options: AnalyzeOptions,
        trace: TraceRows | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.options = options
        self.trace = trace  # where each prompt goes besides
        self.lengths: Counter[int] = Counter()
        self.output_lengths: Counter[int] | None = None
        self.selected = 0
        self.rows = 0  # that are counted by now
        self.tokens = 0
        self.chars: int | None = None
        self.media_rows = 0
        self.ignored_tools = (
            0  # conversations with tools that the chat template leaves out
        )
        self.begun_twice = (
            0  # prompts that have the tokenizer's first token in their text too
        )
        self.rendered_chats = False
        self.has_texts = False  # that are to be tokenized
        self.engines: set[str] = set()
        self.request_kinds: Counter[str] = Counter()  # of a harness's log
        self.output_caps: Counter[int] = Counter()
        self.comparison: TextComparison | TraceComparison | None = None
        self.sample: Reservoir[tuple[int, str]] = Reservoir(
            TEXTS
        )  # of the texts, by position
        self.misses: list[Miss] = []  # among these
        self.longest: list[
            tuple[int, int]
        ] = []  # tokens and position of the longest prompts
        self._scored = 0  # likelihood requests
        self._contexts: set[int] = set()  # of those, a hash of each
        self._choices: set[str] = set()

    # -- prompts -> batches ----------------------------------------------------------------------

    def batch(self, kind: str, problems: Problems, prompts: Prompts) -> Batch:
        """Texts as they are; chats as text by the template, or as ids by mistral-common."""
        items, outputs, requests = prompts.items, prompts.outputs, None
        if kind == "requests":
            requests = prompts.items
            items, answers = [r.prompt for r in requests], [r.output for r in requests]
            outputs = answers if any(answer is not None for answer in answers) else None
        elif kind == "text" and self.options.apply_chat_template:
            items = [
                Conversation([{"role": "user", "content": text}]) for text in items
            ]
        # Special tokens before a prompt: of texts only, a chat template has its own.
        special = [0] * len(items)
        if self.options.special_tokens and str in set(map(type, items)):
            facts = self.tokenizer.facts
            begins = [isinstance(item, str) for item in items]
            if requests is not None:
                begins = [
                    b and r.special_tokens
                    for b, r in zip(begins, requests, strict=True)
                ]
            special = [facts.special_added * begin for begin in begins]
            if text := facts.begin_text:
                starts = [
                    isinstance(item, str) and item.startswith(text) for item in items
                ]
                self.begun_twice += sum(map(min, starts, special))
        rendered: list[Any] = items
        if kind != "text" or self.options.apply_chat_template:
            rendered = [
                self._rendered(*row, problems)
                for row in zip(prompts.positions, items, strict=True)
            ]
        if requests is not None:
            pairs = zip(rendered, requests, strict=True)
            rendered = [
                p + r.continuation if isinstance(p, str) else p for p, r in pairs
            ]
        columns: tuple[Any, ...] = (
            prompts.positions,
            rendered,
            special,
            outputs,
            requests,
        )
        if None in rendered:  # what a chat template refuses
            rows = [row for row, prompt in enumerate(rendered) if prompt is not None]
            columns = tuple(
                column and [column[row] for row in rows] for column in columns
            )
        batch = Batch(*columns)
        self.selected += len(batch.positions)
        if texts := [
            (n, p) for n, p in zip(*batch[:2], strict=True) if isinstance(p, str)
        ]:
            self.chars = (self.chars or 0) + sum([len(text) for _, text in texts])
            some = texts[:: max(1, len(texts) // TEXTS)]
            self.sample.add((position, text[:CHARS]) for position, text in some)
        self.has_texts |= bool(texts) or any(
            isinstance(o, str) for o in batch.outputs or ()
        )
        return batch

    def _rendered(self, position: int, item: object, problems: Problems) -> object:
        """What is not a chat stays as it is; None for a chat that the template refuses."""
        if not isinstance(item, Conversation):
            return item
        tokenizer = self.tokenizer
        self.rendered_chats = True
        try:
            if not tokenizer.counts_chats_itself:
                prompt: str | bytes = tokenizer.chat_text(item)
            else:
                ids = tokenizer.mistral_chat.ids(item)
                text = tokenizer.mistral_chat.plain_text(ids)
                prompt = array("I", ids).tobytes()
                self.engines.add(engine_name("mistral-common"))
                self.chars = (self.chars or 0) + len(text)
                said = [turn["content"] for turn in string_content(item.messages)]
                self.sample.add([(position, "\n".join(filter(None, said))[:CHARS])])
        except TemplateRefused as error:
            problems.bad(position, error)
            return None
        self.media_rows += bool(item.media)
        self.ignored_tools += tokenizer.ignores_tools(item)
        return prompt

    def add(self, batch: Batch) -> None:
        """Prompts as they were sent; a harness may have cut a request, or sent several windows."""
        self.engines |= self.tokenizer.engines if self.has_texts else set()
        sent: list[SentPrompt] = []
        appended = self.tokenizer.facts.special_after if any(batch.special) else 0
        outputs, requests = (
            batch.outputs or repeat(None),
            batch.requests or repeat(None),
        )
        columns = (batch.positions, batch.prompts, batch.special, outputs, requests)
        for position, one, special, output, request in zip(*columns, strict=False):
            length = (one if isinstance(one, int) else len(one) // ID_BYTES) + special
            if request is None:
                sent.append(
                    SentPrompt(
                        position,
                        length,
                        sent_ids(one, special, appended=appended),
                        output,
                    )
                )
                continue
            windows, ids = request.sent(length), None
            if len(windows) == 1:
                is_cut = windows[0] < length + request.added
                ids = sent_ids(
                    one,
                    special + request.added,
                    windows[0] if is_cut else None,
                    appended=appended,
                )
            reads, cap = request.kind == "generate", request.output_cap
            sent += [SentPrompt(position, windows[0], ids, output, reads, cap)] * len(
                windows
            )
            self.request_kinds[request.kind] += len(windows)
            if cap is not None:
                self.output_caps[cap] += len(windows)
            if not reads and not isinstance(text := request.prompt, int):
                text = str(text.messages) if isinstance(text, Conversation) else text
                self._contexts.add(hash(text))
                self._scored += 1
                if len(self._choices) <= _MOST_CHOICES:
                    self._choices.add(request.continuation)
        self._add_up(sent, has_outputs=batch.outputs is not None)

    def add_lengths(self, prompts: Prompts) -> None:
        """Rows of a trace, which bring their lengths along."""
        positions, lengths = prompts.positions, prompts.items
        if prompts.blocks is not None and self.options.prefixes:
            comparison = self.comparison or TraceComparison()
            if isinstance(comparison, TraceComparison):
                comparison.add(lengths, prompts.blocks)
                self.comparison = comparison
        rows = zip(positions, lengths, prompts.outputs or repeat(None), strict=False)
        sent = [
            SentPrompt(position, tokens, output=output)
            for position, tokens, output in rows
        ]
        self._add_up(sent, has_outputs=prompts.outputs is not None)

    def _add_up(self, sent: Sequence[SentPrompt], *, has_outputs: bool) -> None:
        if has_outputs:
            self.output_lengths = self.output_lengths or Counter()
            self.output_lengths.update(
                row.output for row in sent if row.output is not None
            )
        if not sent:
            return
        lengths = [prompt.tokens for prompt in sent]
        self.lengths.update(lengths)
        self.rows += len(lengths)
        self.tokens += sum(lengths)
        # Of equal ones those that come first; others are forgotten.
        longest = (
            *self.longest,
            *((prompt.tokens, prompt.position) for prompt in sent),
        )
        self.longest = nlargest(self.options.keep_longest, longest, key=itemgetter(0))
        if isinstance(self.comparison, TextComparison):
            ids = [prompt.ids for prompt in sent if prompt.ids is not None]
            if len(ids) == len(sent):
                self.comparison.add(ids, [prompt.reads for prompt in sent])
            else:
                self.comparison = None  # what some of them are made of is not known
        if self.trace is not None:
            self.trace.add(sent)

    @property
    def scoring(self) -> Scoring | None:
        """How often the contexts of likelihood requests were read."""
        if not self._contexts or not self.engines:
            return None
        few = len(self._choices) <= _MOST_CHOICES
        single = few and {*self.tokenizer.count(sorted(self._choices))} == {1}
        return Scoring(
            requests=self._scored, contexts=len(self._contexts), single_token=single
        )


# -- batches -> tokens, in other threads ---------------------------------------------------------

Owned = tuple[
    Any, Batch | None
]  # whose batch it is; None is the end of all that are theirs


def in_order(
    pool: ThreadPoolExecutor,
    tokenizer: Tokenizer,
    batches: Iterable[Owned | None],
    most: int,
) -> Iterator[Owned]:
    """The same with texts as their ids, answers as their lengths.

    Texts are tokenized in groups, `most` bytes of which are under way; none after a None.
    """
    waiting: deque[tuple[list[Owned], int, Future[list[bytes]] | None]] = deque()
    group, texts, size, under_way = list[Owned](), list[str](), 0, 0
    for item in chain(batches, [None]):
        if item is not None:
            group.append(item)
            parts = (*item[1].prompts, *(item[1].outputs or ())) if item[1] else ()
            texts += (new := [part for part in parts if isinstance(part, str)])
            size += sum(map(getsizeof, new))
        if size >= _GROUP_BYTES or item is None or not (texts or waiting):
            waiting.append(
                (group, size, pool.submit(tokenizer.id_bytes, texts) if texts else None)
            )
            under_way += size
            group, texts, size = [], [], 0
        while waiting and (
            under_way > most
            or item is None
            or not waiting[0][2]
            or waiting[0][2].done()
        ):
            done, done_size, ids = waiting.popleft()
            under_way -= done_size
            tokens = iter(
                ids.result() if ids else ()
            )  # without texts no tokenizer is needed
            for owner, batch in done:
                if batch is not None:
                    prompts = [
                        next(tokens) if isinstance(p, str) else p for p in batch.prompts
                    ]
                    outputs = batch.outputs and [
                        len(next(tokens)) // ID_BYTES if isinstance(o, str) else o
                        for o in batch.outputs
                    ]
                    batch = batch._replace(prompts=prompts, outputs=outputs)
                yield owner, batch
