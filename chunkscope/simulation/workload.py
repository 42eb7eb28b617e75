"""What is sent to an engine: sessions of turns, what their prompts share, and when they
come.

The same workload is sent to a real engine by `verify` and to the scheduler's twin by
`simulate`.
"""

import random
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate

from chunkscope.artefacts.artefact import NO_NUMBERS, Numbers
from chunkscope.errors import UsageError
from chunkscope.prefixes.sharing import NOTHING, Stretch
from chunkscope.vllm.enums import SendOrder, Task

BATCH, GIVEN, AS_IN_TRACE = "batch", "given", "trace"
VERIFY_SCHEMA = "chunkscope/verify/7"  # the artefact that holds a workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of a session.

    Its first `kept_tokens` are those of the turn before and of the answer to it: fewer
    than all where a client drops thoughts or shortens the conversation.
    """

    prompt_tokens: int
    output_tokens: int
    kept_tokens: int = 0
    think_s: float = 0.0  # from the answer before until it is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Turns that follow each other. An ordinary prompt is a session of one turn."""

    turns: tuple[Turn, ...]
    arrival_s: float = 0.0
    stretch: int = NOTHING  # the last that its beginning shares with others

    @property
    def longest(self) -> int:
        """Tokens of its longest turn, the answer included."""
        return max(turn.prompt_tokens + turn.output_tokens for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One turn as the engine sees it: with the whole prompt."""

    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0  # of its session: when later turns come, only a run can say
    stretch: int = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The next sessions of a workload, sent when those before them have ended: a
    dataset, as harnesses run one task after the other."""

    name: str
    sessions: int
    samples_at_once: int | None = None  # sessions under way at a time; None: all
    concurrency: int | None = None  # requests under way at a time; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is sent, in the order of arrival. Prompts over `long_over` tokens count as
    long.

    A session begins with its stretch and all before that, up to the length of its first
    prompt. Where they are not the data's but one that was asked for, `shared_prefix` is
    its length.
    """

    sessions: tuple[Session, ...]
    seed: int
    arrivals: str
    task: Task
    long_over: int = 2_048  # tokens
    shared_prefix: int = 0  # tokens
    left_out: int = 0  # prompts of the profile that no engine would take at this length
    stretches: tuple[Stretch, ...] = ()
    order: SendOrder | None = None  # None where nobody wrote it down
    samples_at_once: int | None = None  # sessions under way at a time; None: all
    concurrency: int | None = None  # requests under way at a time; None: all
    phases: tuple[Phase, ...] = ()  # one after the other; none: all together
    sticky: bool = False  # with several replicas, a session stays on one of them
    outgrown: int = 0  # sessions that a refused turn ends
    scored: Numbers = NO_NUMBERS  # places of requests that ask for likelihoods, if some

    @property
    def requests(self) -> tuple[Request, ...]:
        """All turns of the first session, then those of the next."""
        requests = []
        for session in self.sessions:
            for turn in session.turns:
                requests.append(
                    Request(
                        prompt_tokens=turn.prompt_tokens,
                        output_tokens=turn.output_tokens,
                        arrival_s=session.arrival_s,
                        stretch=session.stretch,
                    )
                )
        return tuple(requests)

    @property
    def input_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self.requests)

    @property
    def output_tokens(self) -> int:
        return sum(request.output_tokens for request in self.requests)

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(request.prompt_tokens for request in self.requests)

    @property
    def has_turns(self) -> bool:
        """Does any session have more than one?"""
        return any(len(session.turns) > 1 for session in self.sessions)

    @property
    def likelihoods(self) -> frozenset[int]:
        """Places of the requests that ask for the likelihood of their prompt."""
        if self.task is Task.LOGLIKELIHOOD:
            return frozenset(range(len(self.requests)))
        return frozenset(self.scored)

    def times_as_fast(self, times: float) -> "Workload":
        """The same, with sessions that come so many times as fast after each other."""
        sessions = []
        for session in self.sessions:
            sessions.append(replace(session, arrival_s=session.arrival_s / times))
        return replace(self, sessions=tuple(sessions))

    def every_nth(self, step: int) -> "Workload":
        """Some of the sessions, which are scored as they are here."""
        scored, places, request = set(self.scored), [], 0
        kept = 0
        for number, session in enumerate(self.sessions):
            for _ in session.turns:
                if number % step == 0:
                    if request in scored:
                        places.append(kept)
                    kept += 1
                request += 1
        return replace(
            self,
            sessions=self.sessions[::step],
            scored=Numbers(places),
            phases=(),
        )


def single(
    prompt_tokens: int,
    output_tokens: int,
    arrival_s: float = 0.0,
    stretch: int = NOTHING,
) -> Session:
    """An ordinary prompt."""
    turn = Turn(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    return Session(turns=(turn,), arrival_s=arrival_s, stretch=stretch)


def arrival_times(arrivals: str, count: int, chance: random.Random) -> list[float]:
    """All at once, or as a Poisson process: "4/s" is four a second on average."""
    rate = arrival_rate(arrivals)
    if rate is None:
        return [0.0] * count
    pauses = [chance.expovariate(rate) for _ in range(count)]
    times = [0.0, *accumulate(pauses)][:count]
    return [round(time, 6) for time in times]  # as it is written down, to be sent again


def arrival_rate(arrivals: str) -> float | None:
    """Requests a second; None when all come at once."""
    if arrivals == BATCH:
        return None
    number, _, unit = str(arrivals).partition("/")
    with suppress(ValueError, KeyError):
        rate = float(number) / {"s": 1.0, "min": 60.0}[unit.strip()]
        if 0 < rate < float("inf"):
            return rate
    raise UsageError(
        f"--arrivals {arrivals!r} is neither batch nor a rate",
        hint="write `--arrivals batch`, `--arrivals 4/s` or `--arrivals 90/min`",
    )
