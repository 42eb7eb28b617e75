"""What held an engine back in a window, and the phases that this makes."""

from dataclasses import replace

import pytest

from chunkscope.diagnosis.phases import bound_of, phases
from chunkscope.vllm.log.start import Bound
from chunkscope.vllm.log.windows import LogWindow

BUSY = LogWindow(
    end_s=10.0,
    seconds=10.0,
    prompt_tokens_per_s=5.0,
    output_tokens_per_s=5.0,
    running=2,
    waiting=0,
    kv_use=0.2,
)
QUEUED = replace(BUSY, running=8, waiting=52)
READING_ONE_PROMPT = replace(BUSY, prompt_tokens_per_s=0.0, waiting=3)
DECODING = replace(BUSY, prompt_tokens_per_s=0.0)
DRAINED = replace(BUSY, running=0)
IDLE = replace(DRAINED, prompt_tokens_per_s=0.0, output_tokens_per_s=0.0)


@pytest.mark.parametrize(
    ("window", "bound"),
    [
        pytest.param(IDLE, Bound.IDLE, id="nothing to do"),
        pytest.param(BUSY, Bound.CLIENT, id="none waits"),
        pytest.param(QUEUED, Bound.PREFILL, id="some wait, with room for them"),
        pytest.param(
            replace(QUEUED, running=4, kv_use=0.79), Bound.PREFILL, id="room for one"
        ),
        pytest.param(
            replace(QUEUED, running=4, kv_use=0.80), Bound.KV, id="no room for one"
        ),
        pytest.param(
            replace(QUEUED, running=30, kv_use=0.89), Bound.PREFILL, id="not full"
        ),
        pytest.param(replace(QUEUED, running=30, kv_use=0.90), Bound.KV, id="full"),
        pytest.param(
            replace(READING_ONE_PROMPT, kv_use=0.12),
            Bound.PREFILL,
            id="a long prompt counts when it was read",
        ),
        pytest.param(
            replace(READING_ONE_PROMPT, kv_use=0.60),
            Bound.KV,
            id="nothing was read, so what waits found no room",
        ),
    ],
)
def test_what_held_an_engine_back(window, bound) -> None:
    assert bound_of(window, max_num_seqs=64) is bound


@pytest.mark.parametrize(
    ("running", "engines", "max_num_seqs", "bound"),
    [
        pytest.param(32, 1, 32, Bound.SEQS, id="as many as may run"),
        pytest.param(64, 2, 32, Bound.SEQS, id="in each of two engines"),
        pytest.param(31, 1, 32, Bound.PREFILL, id="fewer than may run"),
        pytest.param(256, 1, None, Bound.SEQS, id="a limit of vLLM's own"),
        pytest.param(255, 1, None, Bound.PREFILL, id="no limit of vLLM's own"),
    ],
)
def test_a_limit_of_requests_is_reached(running, engines, max_num_seqs, bound) -> None:
    window = replace(QUEUED, running=running, engines=engines)
    assert bound_of(window, max_num_seqs) is bound


@pytest.mark.parametrize(
    ("pause_s", "count"),
    [pytest.param(1.0, 1, id="the clock's"), pytest.param(1.1, 2, id="a pause")],
)
def test_neighbours_are_one_phase(pause_s, count) -> None:
    later = replace(BUSY, end_s=20.0 + pause_s)
    assert len(phases([BUSY, later], None)) == count


def bounds(*windows: LogWindow, ended: bool = False) -> list[tuple[Bound, float]]:
    """Each phase's bound and how many windows it has."""
    timed = []
    for place, window in enumerate(windows, start=1):
        timed.append(replace(window, end_s=10.0 * place))
    found = phases(timed, 64, ended=ended)
    return [(phase.bound, phase.window.seconds / 10) for phase in found]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        pytest.param([BUSY, BUSY], [(Bound.CLIENT, 2)], id="no end"),
        pytest.param([BUSY, DRAINED], [(Bound.CLIENT, 1)], id="the last window"),
        pytest.param([DRAINED], [], id="a load within a window"),
        pytest.param(
            [BUSY, DECODING, DECODING, DRAINED],
            [(Bound.CLIENT, 1)],
            id="answers run out",
        ),
        pytest.param(
            [QUEUED, BUSY, DECODING, IDLE],
            [(Bound.PREFILL, 1), (Bound.IDLE, 1)],
            id="the last prompts had waited",
        ),
        pytest.param(
            [DECODING, BUSY], [(Bound.CLIENT, 2)], id="a pause between prompts"
        ),
    ],
)
def test_the_end_of_a_load_limits_nobody(windows, expected) -> None:
    assert bounds(*windows) == expected


def test_after_an_engine_died_nothing_could_be_sent() -> None:
    assert bounds(BUSY, DECODING, ended=True) == [(Bound.CLIENT, 1)]
    assert bounds(BUSY, DECODING, ended=False) == [(Bound.CLIENT, 2)]


def test_each_engine_has_phases_of_its_own() -> None:
    first = replace(BUSY, engine="000")
    second = replace(QUEUED, engine="001")
    found = phases([first, second], None)
    assert [(phase.window.engine, phase.bound) for phase in found] == [
        ("000", Bound.CLIENT),
        ("001", Bound.PREFILL),
    ]
