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
        self.scoring: Scoring | None = None
        self._keep = keep_longest
        self._counts: Counter[int] = Counter()
        self._outputs: Counter[int] | None = None
        self._longest: list[tuple[int, int]] = []
        self._shortest_kept = -1  # of those kept when they were last sorted
        self._contexts = array("q")  # of likelihood requests: a hash of each, and its tokens
        self._context_tokens = array("q")
        self._choices: set[str] = set()

    def add(
        self,
        positions: Sequence[int],
        lengths: Sequence[int],
        ids: Sequence[bytes | None] = (),
        *,
        outputs: Sequence[int | None] | None = None,
        reads: Sequence[bool] | None = None,
        output_caps: Sequence[int | None] | None = None,
    ) -> None:
        """Prompts as they reached the model; `ids` has None for those that are not known.

        `reads` says whether each reads from vLLM's prefix cache; None: all of them do.
        """
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
        if isinstance(self.comparison, TextComparison):
            known = [one for one in ids if one is not None]
            if len(known) == len(lengths):
                self.comparison.add(positions, known, reads)
            else:
                self.comparison = None  # what some of them are made of is not known
        if self.trace is not None:
            self.trace.add(lengths, outputs, output_caps, ids)

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

    def add_request(self, request: SentRequest, windows: Sequence[int]) -> None:
        """A harness's request, by the lengths in which it was sent."""
        self.request_kinds[request.kind] += len(windows)
        if request.output_cap is not None:
            self.output_caps[request.output_cap] += len(windows)
        prompt = request.prompt
        if request.kind != "generate" and not isinstance(prompt, int):
            text = str(prompt.messages) if isinstance(prompt, Conversation) else prompt
            self._contexts.append(hash(text))
            self._context_tokens.append(sum(windows))
            if len(self._choices) <= _MOST_CHOICES:
                self._choices.add(request.continuation)

    def score(self, count: Callable[[list[str]], Sequence[int]]) -> None:
        """How often the contexts of likelihood requests were read; `count` counts their choices."""
        if not self._contexts:
            return
        tokens = self._context_tokens
        first = dict(zip(reversed(self._contexts), reversed(tokens), strict=True))
        few = len(self._choices) <= _MOST_CHOICES
        self.scoring = Scoring(
            requests=len(self._contexts),
            contexts=len(first),
            tokens=sum(tokens),
            repeated_tokens=sum(tokens) - sum(first.values()),
            single_token=few and all(length == 1 for length in count(sorted(self._choices))),
        )

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
