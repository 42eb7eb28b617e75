"""The host and the GPU side by side."""

import pytest

from chunkscope.hardware.step_time import Host, StepModel
from chunkscope.simulation.clock import Pipeline
from chunkscope.simulation.requests import Step


def pipeline(*, gpu_s: float, host: Host, graphed_tokens: int = 512) -> Pipeline:
    model = StepModel(
        fixed_s=gpu_s,
        per_token_s=0.0,
        per_prefill_pair_s=0.0,
        per_decode_context_s=0.0,
        host=host,
        graphed_tokens=graphed_tokens,
        origin="test",
    )
    return Pipeline(model, 0.0)


def decoding(requests: int = 10) -> Step:
    step = Step(0)
    step.decode_requests = requests
    return step


def ends(made: Pipeline, steps: int) -> list[float]:
    """One step is always launched before the one before is finished, as vLLM does it."""
    made.launch(decoding(), 0.0)
    now, found = made.host_free, []
    for _ in range(steps):
        made.launch(decoding(), now)
        now = made.finish()
        found.append(now)
    return found


@pytest.mark.parametrize(("gpu_s", "host_s"), [(5.0, 2.0), (2.0, 5.0), (3.0, 3.0)])
def test_in_the_long_run_the_slower_of_the_two_sets_the_pace(gpu_s, host_s):
    found = ends(pipeline(gpu_s=gpu_s, host=Host(fixed_s=host_s)), 20)
    assert found[-1] - found[-2] == pytest.approx(max(gpu_s, host_s))


def test_launching_kernel_by_kernel_is_the_hosts_work_too():
    found = ends(pipeline(gpu_s=1.0, host=Host(fixed_s=1.0, ungraphed_s=4.0), graphed_tokens=5), 20)
    assert found[-1] - found[-2] == pytest.approx(5.0)


def test_without_a_host_steps_follow_each_other():
    assert ends(pipeline(gpu_s=2.0, host=Host()), 3) == pytest.approx([2.0, 4.0, 6.0])
