import json

import pytest

from chunkscope.errors import InputError
from chunkscope.planning.plan import Plan
from chunkscope.vllm.enums import Mode, Task
from tests.build import LONG, MIXED, SHORT, advised, plan

PLANS = {
    "by simulation": advised(MIXED),
    "off": plan(SHORT, mode=Mode.OFF),
    "nothing known": advised(MIXED, model=None, gpu=None),
    "likelihood": advised(LONG, model="qwen2.5-7b", task=Task.LOGLIKELIHOOD),
    "limits": advised(MIXED, slo="itl_max=60ms"),
}


@pytest.mark.parametrize("made", PLANS.values(), ids=PLANS)
def test_a_plan_read_back_is_the_plan_that_was_written(made, tmp_path):
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made


def test_the_client_keeps_as_many_in_flight_as_ran_at_once():
    made = advised([60_000] * 20, max_output=8)
    assert made.requests_in_flight == made.run.most_running
    assert 1 < made.requests_in_flight < 20, "the KV cache holds no more"
    assert plan(SHORT, gpu=None).requests_in_flight is None


@pytest.mark.parametrize("change", [{"chunks": None}, {"extra": 1}, {"settings": {}}])
def test_a_plan_that_was_edited_is_an_input_error(tmp_path, change):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan(MIXED).to_json() | change))
    with pytest.raises(InputError):
        Plan.load(file)
