"""What comes of the prompts of one dataset, added up as they are counted."""

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import LongPrompt
from chunkscope.lengths.trace_export import TraceRows
from chunkscope.prefixes.comparison import TextComparison, TraceComparison
from chunkscope.prefixes.near_misses import NearMisses
from chunkscope.prefixes.reuse import Scoring
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.harness.log import SentRequest

_MOST_CHOICES = 32  # that are letters or words; more are sentences, and not looked at


class Tally:
    """Counts, characters, the longest prompts, and what prompts share."""

    def __init__(self, keep_longest: int, trace: TraceRows | None = None) -> None:
        self.trace = trace  # where each prompt goes besides
        self.rows = 0
        self.tokens = 0
        self.chars: int | None = None
        self.media_rows = 0
        self.ignored_tools = 0  # conversations with tools that the chat template leaves out
        self.begun_twice = 0  # prompts that have the tokenizer's first token in their text too
        self.rendered_chats = False
        self.engines: set[str] = set()
        self.request_kinds: Counter[str] = Counter()  # of a harness's log
        self.output_caps: Counter[int] = Counter()
        self.comparison: TextComparison | TraceComparison | None = None
        self.near_misses = NearMisses()
        self.contexts = ScoredContexts()
        self.scoring: Scoring | None = None
        self._keep = keep_longest
        self._counts: Counter[int] = Counter()
        self._outputs: Counter[int] | None = None
        self._longest: list[tuple[int, int]] = []
        self._shortest_kept = -1  # of those kept when they were last sorted

    def add(self, positions: Sequence[int], lengths: Sequence[int]) -> None:
        if not lengths:
            return
        self._counts.update(lengths)
        self.rows += len(lengths)
        self.tokens += sum(lengths)
        # Most chunks hold none of the longest prompts; one `max` tells.
        room = len(self._longest) < self._keep
        if room or (self._keep and max(lengths) > self._shortest_kept):
            self._longest += zip(lengths, positions, strict=True)
            if len(self._longest) >= 2 * self._keep:  # seldom, however many are to be kept
                self._sort()

    def _sort(self) -> None:
        """Keep the longest; of equal ones, those that come first."""
        self._longest = heapq.nlargest(self._keep, self._longest, key=itemgetter(0))
        if self._longest:
            self._shortest_kept = self._longest[-1][0]

    def add_chars(self, chars: int) -> None:
        self.chars = (self.chars or 0) + chars

    def add_outputs(self, lengths: Iterable[int | None]) -> None:
        if self._outputs is None:
            self._outputs = Counter()
        self._outputs.update(length for length in lengths if length is not None)

    def add_requests(self, kind: str, output_cap: int | None, number: int) -> None:
        self.request_kinds[kind] += number
        if output_cap is not None:
            self.output_caps[output_cap] += number

    @property
    def lengths(self) -> LengthHistogram:
        return LengthHistogram(dict(self._counts))

    @property
    def output_lengths(self) -> LengthHistogram | None:
        return LengthHistogram(dict(self._outputs)) if self._outputs is not None else None

    @property
    def longest(self) -> tuple[LongPrompt, ...]:
        self._sort()
        return tuple(LongPrompt(tokens=n, position=at) for n, at in self._longest)


class ScoredContexts:
    """How often the context of a likelihood request is read: 16 bytes of each are kept."""

    def __init__(self) -> None:
        self._contexts = array("q")
        self._tokens = array("q")
        self._choices: set[str] = set()

    def add(self, request: SentRequest, tokens: int) -> None:
        prompt = request.prompt
        text = str(prompt.messages) if isinstance(prompt, Conversation) else prompt
        self._contexts.append(hash(text))
        self._tokens.append(tokens)
        if len(self._choices) <= _MOST_CHOICES:
            self._choices.add(request.continuation)

    def measured(self, count: Callable[[list[str]], Sequence[int]]) -> Scoring | None:
        if not self._contexts:
            return None
        first = dict(zip(reversed(self._contexts), reversed(self._tokens), strict=True))
        few = len(self._choices) <= _MOST_CHOICES
        return Scoring(
            requests=len(self._contexts),
            contexts=len(first),
            tokens=sum(self._tokens),
            repeated_tokens=sum(self._tokens) - sum(first.values()),
            single_token=few and all(tokens == 1 for tokens in count(sorted(self._choices))),
        )
