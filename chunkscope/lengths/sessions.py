"""Samples whose requests follow each other: agents, and people who talk with a model.

A session is a chain of turns. The prompt of a turn repeats what was said before and
adds a tool's result or a question; it is sent when the answer to the turn before has
ended and the client has thought about it.
"""

from dataclasses import dataclass

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers


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
