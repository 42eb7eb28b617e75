"""Puts the requests of a dataset together to the sessions that they form."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.lengths.sessions import Sessions
from chunkscope.lengths.trace_export import SentPrompt
from chunkscope.prefixes.near_misses import same_start
from chunkscope.prefixes.reuse import BLOCK_SIZE
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prompts.harness.log import SessionTurn
from chunkscope.tokenizers.reference import ID_BYTES

MOST_TURNS = 1_000_000  # that are kept one by one: 25 MB of a profile
MOST_HELD_BYTES = 256 << 20  # of prompts to which the next turn is compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    prompt_tokens: int
    kept_tokens: int
    output_tokens: int | None
    think_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the next prompt is compared to: a prompt's tokens, or the names of its
    blocks.
    """

    content: bytes
    size: int  # bytes of one of them
    tokens: int  # that one of them stands for
    thoughts: str  # of the answer

    def repeated(self, later: "Held") -> int:
        """Tokens with which both begin."""
        same = same_start(self.content, later.content) // self.size
        return same * self.tokens


def held_of(prompt: SentPrompt) -> Held | None:
    """None where only the length is known."""
    if prompt.ids is not None:
        return Held(
            content=prompt.ids, size=ID_BYTES, tokens=1, thoughts=prompt.thoughts
        )
    if prompt.blocks is None:
        return None
    names = array("q", prompt.blocks)
    return Held(
        content=names.tobytes(), size=names.itemsize, tokens=BLOCK_SIZE, thoughts=""
    )


@dataclass(slots=True)
class Session:
    """What is known of a session by now."""

    place: int  # of its first request in the dataset
    turns: list[Turn] = field(default_factory=list)


class SessionTally:
    """The sessions of one dataset, as their requests come."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.requests = 0
        self.left_out = 0  # requests of sessions that began after so many turns
        # By session, its last prompt; of those that went on last.
        self.held: dict[str, Held] = {}
        self.held_bytes = 0

    def add(self, prompt: SentPrompt, turn: SessionTurn) -> int:
        """A request, after all before it. Returns the tokens that it repeats."""
        place = self.requests
        self.requests += 1
        if turn.session not in self.sessions:
            if place >= MOST_TURNS:
                self.left_out += 1
                return 0
            self.sessions[turn.session] = Session(place)
        session = self.sessions[turn.session]
        held = held_of(prompt)
        kept = min(self._kept(prompt, turn, session, held), prompt.tokens)
        session.turns.append(
            Turn(
                prompt_tokens=prompt.tokens,
                kept_tokens=kept,
                output_tokens=prompt.output,
                think_s=turn.pause_s,
            )
        )
        if held is not None:
            self._hold(turn.session, held)
        return kept

    def _kept(
        self,
        prompt: SentPrompt,
        turn: SessionTurn,
        session: Session,
        held: Held | None,
    ) -> int:
        """As the data says, else by what both prompts consist of, else by lengths."""
        if not session.turns:
            return 0
        if turn.kept_tokens is not None:
            return turn.kept_tokens
        before = session.turns[-1]
        earlier = self.held.get(turn.session)
        if held is not None and earlier is not None:
            same = earlier.repeated(held)
            has_all = same + held.tokens > before.prompt_tokens  # all full blocks
            if not has_all or earlier.thoughts not in prompt.text:
                return same
        return kept_by_lengths(prompt.tokens, before)

    def _hold(self, name: str, held: Held) -> None:
        """Keep a prompt for its next turn, and let go of those that wait longest."""
        if name in self.held:
            self.held_bytes -= len(self.held.pop(name).content)
        self.held[name] = held
        self.held_bytes += len(held.content)
        while self.held_bytes > MOST_HELD_BYTES:
            oldest = next(iter(self.held))
            self.held_bytes -= len(self.held.pop(oldest).content)

    def result(
        self, sharing: Sharing | None, *, system_tokens: int, at_once: int | None
    ) -> Sessions | None:
        """None where there are none: no request follows another."""
        sessions = list(self.sessions.values())
        turns = [turn for session in sessions for turn in session.turns]
        if len(turns) == len(sessions) and not system_tokens:
            return None
        return Sessions(
            turns=Numbers(len(session.turns) for session in sessions),
            prompt_tokens=Numbers(turn.prompt_tokens for turn in turns),
            kept_tokens=Numbers(turn.kept_tokens for turn in turns),
            output_tokens=outputs_of(turns),
            think_ms=think_ms_of(sessions),
            stretches=stretches_of(sessions, sharing),
            system_tokens=system_tokens,
            at_once=at_once,
        )


def kept_by_lengths(tokens: int, before: Turn) -> int:
    """What a prompt repeats, where only lengths are known.

    A conversation that goes on has all of the prompt before and its answer. One that is
    too short for that has lost the answer's thoughts; one that is shorter than the
    prompt before was written anew.
    """
    whole = before.prompt_tokens + (before.output_tokens or 0)
    if tokens >= whole:
        return whole
    if tokens >= before.prompt_tokens:
        return before.prompt_tokens
    return 0


def outputs_of(turns: Sequence[Turn]) -> Numbers:
    """Those that are not known are as long as the others in the middle."""
    outputs = [turn.output_tokens for turn in turns if turn.output_tokens is not None]
    if not outputs:
        return NO_NUMBERS
    usual = round(median(outputs))
    numbers = []
    for turn in turns:
        numbers.append(usual if turn.output_tokens is None else turn.output_tokens)
    return Numbers(numbers)


def think_ms_of(sessions: Sequence[Session]) -> Numbers:
    """Those that are not known are as long as the others in the middle."""
    times = []
    for session in sessions:
        for turn in session.turns[1:]:
            if turn.think_s is not None:
                times.append(turn.think_s)
    if not times:
        return NO_NUMBERS
    usual = median(times)
    numbers = []
    for session in sessions:
        numbers.append(0)
        for turn in session.turns[1:]:
            think_s = usual if turn.think_s is None else turn.think_s
            numbers.append(round(think_s * 1_000))
    return Numbers(numbers)


def stretches_of(sessions: Sequence[Session], sharing: Sharing | None) -> Numbers:
    """Of a session that was not compared, the stretch of one that was."""
    if sharing is None or not sharing.ends:
        return NO_NUMBERS
    compared = []
    for session in sessions:
        if session.place < len(sharing.ends):
            compared.append(sharing.ends[session.place])
    return Numbers(compared[number % len(compared)] for number in range(len(sessions)))
