"""What is predicted beside what an engine measures."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.figures import figures_row
from chunkscope.models import find_model
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.workload import Session, Turn, Workload, single
from chunkscope.verification.result import Machine, Run
from chunkscope.verification.verify import with_prediction
from chunkscope.vllm.enums import Task
from chunkscope.vllm.settings import Settings
from tests.build import run, verification

CPU = Machine(device="cpu", vllm="0.28.0")
H200 = Machine(device="cuda", gpu="NVIDIA H200", gpus=1, vllm="0.28.0")
LLAMA = find_model("llama-3.1-8b")
ENGINE = {
    "max_num_batched_tokens": 2_048,
    "max_num_seqs": 8,
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "block_size": 16,
    "num_gpu_blocks": 1_000,
    "async_scheduling": False,
}
# Two groups, the first of them with a part of its own for two of three; and one alone.
ENDS = (0, 1, 1, 2, 2, -1)
WORKLOAD = Workload(
    sessions=tuple(single(100, 4, stretch=end) for end in ENDS),
    stretches=(
        Stretch(parent=-1, tokens=32),
        Stretch(parent=0, tokens=20),
        Stretch(parent=-1, tokens=64),
    ),
    seed=0,
    arrivals="batch",
    task=Task.GENERATE,
    long_over=1_000,
)
# The second prompt finds 32 tokens of the first, the third 48 of its 52, the fifth 64.
HITS = (32 + 48 + 64) / 600


def hits(engine=ENGINE, workload=WORKLOAD, shape=LLAMA, machine=CPU) -> float | None:
    measured = run("plan", 1.0, engine=engine)
    sent = verification(machine=machine, workload=workload)
    predicted = with_prediction(measured, shape, sent)
    return predicted.predicted_prefix_hit_rate


def test_each_prompt_finds_the_full_blocks_that_came_before_it():
    assert hits() == HITS


def test_only_full_blocks_are_found():
    assert hits({**ENGINE, "block_size": 64, "num_gpu_blocks": 250}) == 64 / 600


def test_nothing_is_found_where_vllm_does_not_look():
    assert hits({**ENGINE, "enable_prefix_caching": False}) == 0.0
    assert hits(workload=replace(WORKLOAD, task=Task.LOGLIKELIHOOD)) == 0.0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"engine": {**ENGINE, "num_gpu_blocks": None}}, id="no size"),
        pytest.param({"shape": find_model("gemma-2-9b")}, id="a sliding window"),
        pytest.param({"machine": replace(CPU, vllm=None)}, id="no version"),
        pytest.param(
            {"engine": {**ENGINE, "num_gpu_blocks": 3}}, id="the simulator refuses"
        ),
    ],
)
def test_what_cannot_be_known_is_not_predicted(change):
    assert hits(**change) is None


def test_at_a_rate_only_steps_of_a_known_gpu_can_be_timed():
    sessions = []
    for second, session in enumerate(WORKLOAD.sessions):
        sessions.append(replace(session, arrival_s=float(second)))
    later = replace(WORKLOAD, sessions=tuple(sessions), arrivals="1/s")
    assert hits(workload=later) is None
    assert hits(workload=later, machine=replace(H200, gpu="NVIDIA unknown")) is None
    assert hits(workload=later, machine=H200) == HITS


def predicted(*, kv_cache_dtype: str | None = None, share: float = 0.9) -> Run:
    """Many requests on an H200 that gives vLLM this share of its memory."""
    sessions = [single(100, 99, stretch=end) for end in ENDS * 200]
    engine = {
        **ENGINE,
        "gpu_memory_utilization": share,
        "max_model_len": 256,
        "max_num_seqs": 900,
        "max_num_batched_tokens": 4_096,
        "num_gpu_blocks": 60_000,
    }
    settings = Settings(kv_cache_dtype=kv_cache_dtype)
    measured = run("plan", 1.0, engine=engine, settings=settings)
    many = replace(WORKLOAD, sessions=tuple(sessions))
    sent = verification(machine=H200, workload=many)
    return with_prediction(measured, LLAMA, sent)


def test_the_type_of_the_kv_cache_is_that_of_the_setting():
    """The engine's facts do not say that it is of 8 bits."""
    half = predicted(kv_cache_dtype="fp8").predicted.kv_cache_tokens
    assert half == pytest.approx(2 * predicted().predicted.kv_cache_tokens, rel=0.01)


def test_the_share_of_the_memory_is_that_of_the_engine():
    """No setting says how much it was given."""
    ample = predicted(share=0.9).predicted_figures
    short = predicted(share=0.12).predicted_figures
    assert short.steps > 1.1 * ample.steps


def turn(prompt_tokens: int, kept_tokens: int = 0) -> Turn:
    return Turn(prompt_tokens=prompt_tokens, kept_tokens=kept_tokens, output_tokens=8)


SESSION = Session(turns=(turn(100), turn(150, kept_tokens=108)))
SESSIONS = replace(WORKLOAD, sessions=(SESSION, SESSION), stretches=())


def test_one_session_at_a_time_finds_what_was_said_however_long_a_step_takes():
    """The last token of an answer is never computed: 107 of 108 are in the cache."""
    serial = replace(SESSIONS, samples_at_once=1)
    assert hits(workload=serial) == 2 * 96 / 500


def test_what_a_time_limit_cuts_off_is_only_known_of_a_gpu():
    serial = replace(SESSIONS, samples_at_once=1)
    sent = verification(machine=CPU, workload=serial, time_limit_s=60.0)
    measured = with_prediction(run("plan", 1.0, engine=ENGINE), LLAMA, sent)
    assert measured.predicted_prefix_hit_rate is None


def test_of_several_sessions_only_a_known_gpu_says_when_turns_come():
    at_once = replace(SESSIONS, samples_at_once=2)
    assert hits(workload=at_once) is None
    assert hits(workload=at_once, machine=H200) == 2 * 96 / 500


def test_a_run_that_was_cut_off_is_predicted_cut_off():
    many = replace(SESSIONS, sessions=(SESSION,) * 100, samples_at_once=2)
    engine = {**ENGINE, "max_model_len": 256, "gpu_memory_utilization": 0.9}
    measured = run("plan", 1.0, engine=engine)
    sent = verification(machine=H200, workload=many)
    whole = with_prediction(measured, LLAMA, sent).predicted_figures
    half_s = whole.makespan_s / 2
    sent = replace(sent, time_limit_s=half_s)
    cut = with_prediction(measured, LLAMA, sent).predicted_figures
    assert 0.9 * half_s < cut.makespan_s <= half_s
    assert cut.requests_per_s == pytest.approx(200 / whole.makespan_s, rel=0.05)
    assert cut.itl_s is None


def test_a_predicted_time_is_shown():
    assert figures_row(predicted())["predicted_figures.makespan_s"] > 0
