"""What is predicted of the prefix cache, beside what an engine measures."""

from dataclasses import replace

import pytest

from chunkscope.artefacts.figures import figures_row
from chunkscope.models import find_model
from chunkscope.planning.request import PlanRequest
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.workload import Workload, single
from chunkscope.verification.predicting import with_prediction
from chunkscope.verification.result import Machine, Run
from chunkscope.vllm.enums import Task
from chunkscope.vllm.settings import Settings
from tests.build import run

CPU = Machine(device="cpu", vllm="0.28.0")
LLAMA = find_model("llama-3.1-8b")
ENGINE = {
    "max_num_batched_tokens": 2_048, "max_num_seqs": 8, "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True, "enable_prefix_caching": True, "block_size": 16,
    "num_gpu_blocks": 1_000, "async_scheduling": False,
}  # fmt: skip
# Two groups, the first of them with a part of its own for two of three; and one alone.
WORKLOAD = Workload(
    sessions=tuple(
        single(100, 4, stretch=stretch) for stretch in (0, 1, 1, 2, 2, -1)
    ),
    stretches=(
        Stretch(parent=-1, tokens=32), Stretch(parent=0, tokens=20), Stretch(parent=-1, tokens=64),
    ),
    seed=0, arrivals="batch", task=Task.GENERATE, long_over=1_000,
)  # fmt: skip


def predicted(
    engine=ENGINE, workload=WORKLOAD, shape=LLAMA, machine=CPU
) -> float | None:
    made = run("plan", 1.0, engine={**engine})
    return with_prediction(
        made, shape, machine, workload, PlanRequest()
    ).predicted_prefix_hit_rate


def test_each_prompt_finds_the_full_blocks_that_came_before_it() -> None:
    """The second finds 32 tokens of the first, the third 48 of its 52, the fifth 64."""
    assert predicted() == (32 + 48 + 64) / 600


def test_only_full_blocks_are_found_and_nothing_where_vllm_does_not_look() -> None:
    assert predicted({**ENGINE, "block_size": 64, "num_gpu_blocks": 250}) == 64 / 600
    assert predicted({**ENGINE, "enable_prefix_caching": False}) == 0.0
    assert predicted(workload=replace(WORKLOAD, task=Task.LOGLIKELIHOOD)) == 0.0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            {"engine": {**ENGINE, "num_gpu_blocks": None}}, id="no size is known"
        ),
        pytest.param({"shape": find_model("gemma-2-9b")}, id="a sliding window"),
        pytest.param(
            {"machine": replace(CPU, vllm=None)}, id="an engine of no version"
        ),
        pytest.param(
            {"engine": {**ENGINE, "num_gpu_blocks": 3}}, id="what the simulator refuses"
        ),
    ],
)
def test_what_cannot_be_known_is_not_predicted(change) -> None:
    assert predicted(**change) is None


def test_at_a_rate_only_steps_of_a_known_gpu_can_be_timed() -> None:
    sessions = tuple(
        replace(one, arrival_s=float(n)) for n, one in enumerate(WORKLOAD.sessions)
    )
    later = replace(WORKLOAD, sessions=sessions, arrivals="1/s")
    assert predicted(workload=later) is None
    h200 = Machine(device="cuda", gpu="NVIDIA H200", gpus=1, vllm="0.28.0")
    assert predicted(workload=later, machine=h200) == (32 + 48 + 64) / 600


def test_what_is_predicted_is_of_the_kv_cache_that_the_engine_has() -> None:
    """Its facts do not say that it is of 8 bits, no setting how much memory it was given."""
    h200 = Machine(device="cuda", gpu="NVIDIA H200", gpus=1, vllm="0.28.0")
    sessions = tuple(single(100, 99, stretch=r.stretch) for r in WORKLOAD.requests)
    many = replace(WORKLOAD, sessions=sessions * 200)

    def of(dtype: str | None, share: float) -> Run:
        asked = {**ENGINE, "gpu_memory_utilization": share, "max_model_len": 256}
        asked |= {
            "max_num_seqs": 900,
            "max_num_batched_tokens": 4_096,
            "num_gpu_blocks": 60_000,
        }
        made = run("plan", 1.0, engine=asked, settings=Settings(kv_cache_dtype=dtype))
        return with_prediction(made, LLAMA, h200, many, PlanRequest())

    tokens = [of(dtype, 0.9).predicted.kv_cache_tokens for dtype in (None, "fp8")]
    assert tokens[1] == pytest.approx(2 * tokens[0], rel=0.01)
    steps = [of(None, share).predicted_figures.steps for share in (0.9, 0.12)]
    assert steps[1] > 1.1 * steps[0]
    assert figures_row(of(None, 0.9))["predicted_figures.makespan_s"] > 0, "it is shown"
