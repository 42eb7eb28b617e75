"""How often the context of a likelihood request is read: once for each choice."""

from array import array
from collections.abc import Callable

from chunkscope.prefixes.reuse import Scoring
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.harness.log import SentRequest

_MOST_CHOICES = 32  # that are letters or words; more are sentences, and not looked at


class ScoredContexts:
    """The likelihood requests of a log, as they come: 16 bytes each are kept."""

    def __init__(self) -> None:
        self._contexts = array("q")
        self._tokens = array("q")
        self._choices: set[str] = set()

    def add(self, request: SentRequest, tokens: int) -> None:
        prompt = request.prompt
        self._contexts.append(
            hash(str(prompt.messages) if isinstance(prompt, Conversation) else prompt)
        )
        self._tokens.append(tokens)
        if len(self._choices) <= _MOST_CHOICES:
            self._choices.add(request.continuation)

    def measured(self, count: Callable[[list[str]], list[int]]) -> Scoring | None:
        if not self._contexts:
            return None
        first: dict[int, int] = {}
        for context, tokens in zip(self._contexts, self._tokens, strict=True):
            first.setdefault(context, tokens)
        few = len(self._choices) <= _MOST_CHOICES
        return Scoring(
            requests=len(self._contexts),
            contexts=len(first),
            tokens=sum(self._tokens),
            repeated_tokens=sum(self._tokens) - sum(first.values()),
            single_token=few and all(tokens == 1 for tokens in count(sorted(self._choices))),
        )
