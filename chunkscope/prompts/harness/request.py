"""The seam of all harness logs: a request as it was sent, and what a log says of itself.

A log is recognised by the keys of its records, never by its name (`known.py` lists the readers).
Its reader, a `HarnessLog`, then turns each record into the requests that were sent for it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from chunkscope.prompts.chat import Conversation
from chunkscope.sources.reader import RecordReader

RequestKind = Literal["generate", "likelihood"]
AS_LOGGED, AS_SENT, LONGEST_FIRST = "as logged", "as sent", "longest first"
_OWN_WORD = {"Inspect": "sample"}  # for what most harnesses call a document


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """One request.

    `prompt` is text, messages that a server rendered, or, where the log has token ids or the
    server's own count, that many tokens: those are taken as they are. The `continuation` of a
    likelihood request is counted with it, as one text. The harness sent `added` tokens besides,
    and cut from the left what is longer than `most_tokens`; a longer text than `window` it sent in
    windows of so many. `output` is the answer's text or its tokens, None where not logged.
    """

    prompt: str | Conversation | int
    kind: RequestKind = "generate"
    continuation: str = ""
    special_tokens: bool = False  # whether a tokenizer's <s> and the like were added to a text
    added: int = 0
    most_tokens: int | None = None
    window: int | None = None
    output_cap: int | None = None
    output: str | int | None = None

    def sent(self, tokens: int) -> list[int]:
        """The lengths that reached the model when prompt and continuation are so many tokens."""
        windows = 1
        if self.window is not None and tokens > self.window:
            # The last window reaches back, so that it is as long as the others.
            windows, tokens = -(-tokens // self.window), self.window
        tokens += self.added
        return [tokens if self.most_tokens is None else min(tokens, self.most_tokens)] * windows


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """What a log is: "lm-eval 0.4.13, task gsm8k, 8 shots, 1,319 documents, 1,319 requests"."""

    harness: str
    version: str | None = None
    task: str | None = None
    shots: int | None = None
    documents: int
    requests: int
    kinds: dict[str, int] = field(default_factory=dict)  # how many of each kind were sent
    output_caps: dict[str, int] = field(default_factory=dict)  # requests by their output cap
    order: str = AS_LOGGED  # in which the harness sent them
    rendered: bool = False  # asked of the task: nothing was sent yet

    @property
    def only_scored(self) -> bool:
        return set(self.kinds) == {"likelihood"}

    def details(self) -> str:
        """How they were sent: "1,319 generate, at most 256 tokens each; longest first"."""
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in self.kinds.items())
        capped = sum(self.output_caps.values())
        most = ""
        if capped:
            which = "" if capped == self.kinds.get("generate") else f"{capped:,} of them "
            most = f", {which}at most {max(map(int, self.output_caps)):,} tokens each"
        return f"{kinds}{most}; {self.order}"

    def sentence(self) -> str:
        parts = (
            f"{self.harness} {self.version or ''}".rstrip(),
            f"task {self.task}" if self.task else None,
            None if self.shots is None else _counted(self.shots, "shot"),
            _counted(self.documents, _OWN_WORD.get(self.harness, "document")),
            _counted(self.requests, "request"),
            "rendered" if self.rendered else None,
        )
        return ", ".join(part for part in parts if part)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class HarnessLog(ABC):
    """Reads the records of one log, in order and once.

    What is known of the whole may become known on the way: it is asked for at the end.
    """

    harness: ClassVar[str]
    version: str | None = None
    task: str | None = None
    shots: int | None = None
    documents: int = 0
    order: str = AS_LOGGED  # in which the harness sent the requests
    columns: frozenset[str] | None = None  # top-level fields that are read; None is all

    @classmethod
    @abstractmethod
    def recognise(cls, head: Sequence[Any], reader: RecordReader) -> Self | None:
        """The reader of this log, or None when the first records are not of this harness.

        Raises InputError for a log of this harness whose shape or version is not known.
        """

    def rows(self, position: int, record: Any) -> Iterable[tuple[int, Any]]:
        """The rows in a record: itself, unless a document holds all of them in a way of its own."""
        yield position, record

    @abstractmethod
    def requests(self, record: Any) -> Iterable[SentRequest]:
        """What was sent for one row. Raises UnusableError."""

    def notes(self) -> Iterable[str]:
        """What the user should know of the log, beside the sentence of its summary."""
        return ()

    def summary(self, kinds: dict[str, int], output_caps: dict[str, int]) -> LogSummary:
        """What is known of the whole once all records were read and their requests counted."""
        return LogSummary(
            harness=self.harness,
            version=self.version,
            task=self.task,
            shots=self.shots,
            documents=self.documents,
            requests=sum(kinds.values()),
            kinds=kinds,
            output_caps=output_caps,
            order=self.order,
        )
