"""Samples whose requests follow each other: agents, and people who talk with a model.

A session is a chain of turns. The prompt of a turn repeats what was said before and
adds a tool's result or a question; it is sent when the answer to the turn before has
ended and the client has thought about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.lengths.histogram import Ranked
from chunkscope.prefixes.reuse import PrefixReuse
from chunkscope.prefixes.sharing import served


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFigures:
    """What people want to know of a dataset's sessions; lengths are in tokens."""

    sessions: int
    turns_min: int
    turns_p50: float
    turns_max: int
    first_prompt_p50: float
    first_prompt_max: int
    last_prompt_p50: float
    last_prompt_max: int
    longest_context: int  # a prompt and its answer, if that is known
    # What a turn adds to what it repeats; None where no session has a second turn.
    added_p50: float | None
    added_p95: float | None
    # None where the answers are not known.
    answer_mean: float | None
    answer_p50: float | None
    answer_p95: float | None
    # Seconds from an answer until the next turn is sent; None where not known.
    think_p50_s: float | None
    think_p95_s: float | None
    repeated_share: float  # of all prompt tokens, those that the turn before had too


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The sessions of a dataset, in the order in which they began.

    `turns` has one number a session; the columns below it have one a turn, those of the
    first session first.
    """

    turns: Numbers  # how many each session has
    prompt_tokens: Numbers  # the whole prompt, what is repeated included
    # Leading tokens that are those of the turn before and of its answer: 0 for a first
    # turn, fewer than all where a client drops thoughts or shortens the conversation.
    kept_tokens: Numbers
    output_tokens: Numbers = NO_NUMBERS  # none where the answers are not known
    # Milliseconds from the answer to the turn before until this one is sent: 0 for a
    # first turn. None of all where the log has no times.
    think_ms: Numbers = NO_NUMBERS
    # By session, the stretch of the dataset's `sharing` that its first prompt ends in;
    # none of all where prompts were not compared.
    stretches: Numbers = NO_NUMBERS
    # Tokens that every session begins with, where only that is known.
    system_tokens: int = 0
    at_once: int | None = None  # sessions that the client kept under way, from its log

    @property
    def contexts(self) -> list[int]:
        """By turn, the tokens of its prompt and its answer."""
        if not self.output_tokens:
            return list(self.prompt_tokens)
        pairs = zip(self.prompt_tokens, self.output_tokens, strict=True)
        return [prompt + answer for prompt, answer in pairs]

    @property
    def first_turns(self) -> list[int]:
        """By session, the place of its first turn in the columns."""
        places = []
        place = 0
        for turns in self.turns:
            places.append(place)
            place += turns
        return places

    @property
    def last_turns(self) -> list[int]:
        """By session, the place of its last turn."""
        starts = self.first_turns
        return [
            start + turns - 1 for start, turns in zip(starts, self.turns, strict=True)
        ]

    @property
    def later_turns(self) -> list[int]:
        """The places of all turns that have one before them."""
        places: list[int] = []
        for start, turns in zip(self.first_turns, self.turns, strict=True):
            places += range(start + 1, start + turns)
        return places

    def figures(self) -> SessionFigures:
        turns = Ranked(self.turns)
        first = Ranked(self.prompt_tokens[place] for place in self.first_turns)
        last = Ranked(self.prompt_tokens[place] for place in self.last_turns)
        later = self.later_turns
        added = [self.prompt_tokens[place] - self.kept_tokens[place] for place in later]
        think_s: list[float] = []
        if self.think_ms:
            think_s = [self.think_ms[place] / 1_000 for place in later]
        answers = self.output_tokens
        return SessionFigures(
            sessions=len(self.turns),
            turns_min=min(self.turns),
            turns_p50=turns.percentile(50),
            turns_max=max(self.turns),
            first_prompt_p50=first.percentile(50),
            first_prompt_max=int(first.percentile(100)),
            last_prompt_p50=last.percentile(50),
            last_prompt_max=int(last.percentile(100)),
            longest_context=max(self.contexts),
            added_p50=percentile(added, 50),
            added_p95=percentile(added, 95),
            answer_mean=sum(answers) / len(answers) if answers else None,
            answer_p50=percentile(answers, 50),
            answer_p95=percentile(answers, 95),
            think_p50_s=percentile(think_s, 50),
            think_p95_s=percentile(think_s, 95),
            repeated_share=sum(self.kept_tokens) / max(1, sum(self.prompt_tokens)),
        )


def percentile(values: Sequence[float], percent: float) -> float | None:
    """None where there are no values."""
    return Ranked(values).percentile(percent) if values else None


def reuse_of_sessions(sessions: Sessions | None) -> PrefixReuse | None:
    """What prompts share where their texts are not known: the tokens that every session
    begins with, and what each turn repeats. None where there are no sessions."""
    if sessions is None:
        return None
    cached = 0
    first_turns = set(sessions.first_turns)
    for place, tokens in enumerate(sessions.prompt_tokens):
        known = sessions.kept_tokens[place]
        if place in first_turns and place > 0:
            known = sessions.system_tokens
        cached += served(known, tokens)
    total = sum(sessions.prompt_tokens)
    return PrefixReuse(
        prompts=len(sessions.prompt_tokens),
        tokens=total,
        out_of_prompts=len(sessions.prompt_tokens),
        out_of_tokens=total,
        common_tokens=sessions.system_tokens,
        cached_tokens=cached,
    )
