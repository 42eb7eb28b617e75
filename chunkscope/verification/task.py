"""A workload -> the sessions that an engine or a server is sent.

What sends requests reads the workload here, and nowhere else.
"""

from chunkscope.simulation.workload import Workload
from chunkscope.verification.inside.chunkscope_sessions import SentSession, SentTurn

WARM_UP_SESSIONS = 2_048  # more than run at the same time
WARM_UP_OUTPUT = 16  # tokens
# Of `--check-outputs`: how many prompts are answered, and tokens of an answer at most.
SAMPLE_PROMPTS = 64
SAMPLE_OUTPUT = 32


def sessions_of(workload: Workload) -> list[SentSession]:
    """What is sent in one repeat, in the order of the workload."""
    scored = workload.likelihoods
    sessions = []
    request = 0
    for place, session in enumerate(workload.sessions):
        turns = []
        for turn in session.turns:
            sent = SentTurn(
                prompt_tokens=turn.prompt_tokens,
                output_tokens=turn.output_tokens,
                kept_tokens=turn.kept_tokens,
                think_s=turn.think_s,
                is_scored=request in scored,
            )
            turns.append(sent)
            request += 1
        sessions.append(SentSession(turns, session.arrival_s, place))
    return sessions


def sharing_of(workload: Workload) -> tuple[list[tuple[int, int]], list[int]]:
    """What `SharingIds` makes prompts of: the stretches, and where each prompt ends."""
    stretches = [(stretch.parent, stretch.tokens) for stretch in workload.stretches]
    ends = [session.stretch for session in workload.sessions]
    return stretches, ends


def warm_up(workload: Workload, longest_prompt: int) -> list[SentSession]:
    """The longest prompt of the data, and first prompts with short answers.

    The longest prompt decides the memory peak, though it may not be among the requests.
    Fewer sessions will not do: vLLM compiles some kernels when it first meets a step of
    their size.
    """
    sessions = sessions_of(workload)
    all_scored = len(workload.likelihoods) == len(workload.requests)
    longest = SentTurn(longest_prompt, 1, is_scored=all_scored)
    return [
        SentSession([longest]),
        *first_turns(sessions[:WARM_UP_SESSIONS], most_output=WARM_UP_OUTPUT),
    ]


def first_turns(sessions: list[SentSession], *, most_output: int) -> list[SentSession]:
    """Their first prompts alone, all at once, with short answers."""
    firsts = []
    for session in sessions:
        turn = session.turns[0]
        first = SentTurn(
            prompt_tokens=turn.prompt_tokens,
            output_tokens=min(turn.output_tokens, most_output),
            is_scored=turn.is_scored,
        )
        firsts.append(SentSession([first], place=session.place))
    return firsts


def output_sample(workload: Workload) -> list[SentSession]:
    """First prompts whose answers are compared: of all lengths, with the longest."""
    sessions = sessions_of(workload)
    ranked = sorted(sessions, key=lambda session: -session.turns[0].prompt_tokens)
    count = min(len(ranked), SAMPLE_PROMPTS)
    sample = []
    for number in range(count):
        session = ranked[number * len(ranked) // count]
        turn = SentTurn(session.turns[0].prompt_tokens, SAMPLE_OUTPUT)
        sample.append(SentSession([turn], place=session.place))
    return sorted(sample, key=lambda session: session.place or 0)
