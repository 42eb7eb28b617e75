"""`recommend` tries settings on the simulator, and says what it found."""

from types import SimpleNamespace

import pytest

from chunkscope.artefacts.labels import Label
from chunkscope.artefacts.numbers import by
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.problem import WORTH
from chunkscope.planning.recommend import recommend
from chunkscope.planning.search import Trials, search
from chunkscope.vllm.enums import Entry, Mode, Objective, Task
from chunkscope.vllm.settings import Settings
from tests.build import LONG, MIXED, SHORT, advised, plan
from tests.conftest import REPOSITORY
from tests.h200 import FOLDER


def test_the_plan_carries_what_it_gains_over_vllms_own_setting():
    made = advised(MIXED, model="qwen2.5-1.5b", gpu="l4")
    forecast = made.forecast
    assert forecast is not None
    assert forecast.gain is not None
    assert forecast.gain >= WORTH
    assert forecast.requests > 500
    assert made.settings.max_num_seqs > 256, "an L4 holds more of them than vLLM's own 256"
    reason = made.argument("max_num_seqs").reason
    assert "simulated, not measured" in reason
    assert f"{by(forecast.gain)} throughput" in reason
    assert by(forecast.gain) in made.advice, "one number for one thing"
    assert made.argument("max_num_seqs").label is Label.PREDICTED


def test_a_gain_under_three_percent_keeps_the_default():
    made = advised([300] * 2_000, max_output=32)
    assert made.settings.max_num_batched_tokens is None
    assert made.settings.max_num_seqs is None
    assert made.forecast is not None
    assert made.forecast.gain is not None
    assert abs(made.forecast.gain) < WORTH


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        pytest.param({1_024: 10.05, 2_048: 10.0, 4_096: 9.95}, 2_048, id="less than 1 %"),
        pytest.param({2_048: 10.0, 4_096: 9.9, 8_192: 9.0}, 8_192, id="two steps up"),
        pytest.param({512: 9.0, 1_024: 10.5, 2_048: 10.0}, 2_048, id="past a hill"),
        pytest.param({512: 9.1, 1_024: 9.0}, 1_024, id="its own does not fit: the first"),
        pytest.param({1_024: 20.0, 512: 9.0}, 512, id="its own does not fit: the second"),
    ],
)
def test_the_search_keeps_what_is_there_unless_it_pays(seconds, found):
    start = Settings(max_num_batched_tokens=2_048, max_num_seqs=64)
    assert search(FakeTrials(seconds), start).max_num_batched_tokens == found


def test_where_vllms_own_does_not_fit_the_fastest_that_does_is_taken():
    """On an A10 with 21 GiB; of those as good, to 1 %, the smallest."""
    profile = Profile.load(REPOSITORY / "reports" / "example" / "profile.json")
    how = {"model": "llama-3.1-8b", "gpu": "a10", "gpu_memory": "21GiB", "vllm_version": "0.32"}
    made = recommend(profile, entry=Entry.LLM, **how)
    (chosen,) = [row for row in made.tried if row.chosen]
    assert chosen.max_num_batched_tokens == made.settings.max_num_batched_tokens == 1_024
    assert len(made.tried) > 1
    assert min(row.makespan_s for row in made.tried) > chosen.makespan_s / 1.015
    assert made.forecast.default_makespan_s is None, "it cannot run"
    assert made.settings.max_model_len
    for name, value in made.settings.given().items():
        assert f"{name} {value:,}" in made.advice, "the headline names all that is set"


def short_profile(model):
    return Profile.load(FOLDER / f"{model}-short" / "profile.json")


def test_what_pays_only_with_one_host_is_left_to_vllm():
    """1,319 short prompts, a small model: measured, 2,048 at once took 26 % longer than 1,024.

    The GPU alone would like more at once, the assumed host fewer: neither is set.
    """
    profile = short_profile("qwen2.5-1.5b")
    made = recommend(profile, model="qwen2.5-1.5b", gpu="h200", vllm_version="0.24")
    assert made.settings.max_num_seqs is None
    assert abs(made.forecast.gain) < WORTH


def test_what_pays_with_either_host_is_set():
    """The same prompts and a model of 8 billion parameters: measured, 2,048 took 10 % less."""
    profile = short_profile("llama-3.1-8b")
    made = recommend(profile, model="llama-3.1-8b", gpu="h200", vllm_version="0.24")
    assert made.settings.max_num_seqs == 2_048
    assert 0.02 < made.forecast.gain < 0.15


class FakeTrials(Trials):
    """Seconds by budget alone; a budget without any does not fit."""

    def __init__(self, seconds):
        super().__init__(
            problem=SimpleNamespace(slo=(), is_open=False, concurrency=None),
            workload=SimpleNamespace(requests=()),
        )
        object.__setattr__(self, "_seconds", seconds)

    def run(self, settings, host=None):  # noqa: ARG002
        found = self._seconds.get(settings.max_num_batched_tokens)
        return SimpleNamespace(makespan_s=found, gpu_s=found, slo=None) if found else None


def test_a_threshold_that_costs_throughput_is_not_set():
    """A lone prompt, and a version that caps it all the same: most of each step stays empty."""
    made = advised([14_000], model="qwen3-30b-a3b", max_output=1)
    assert made.threshold == 11_200, "the policy's word stays"
    assert made.settings.long_prefill_token_threshold is None


def test_a_threshold_that_ties_is_not_set_and_the_reason_says_so():
    """As measured on an H200 with the sample data: it tied in time."""
    profile = Profile.load(REPOSITORY / "reports" / "example" / "profile.json")
    made = recommend(profile, model="llama-3.1-8b", gpu="h200", vllm_version="0.24")
    assert made.decision.threshold == 2_303
    assert made.settings.given() == {}
    reason = made.argument("long_prefill_token_threshold").reason
    assert "the policy's 2,303 would bring" in reason
    assert "under 3 % vLLM's own stays" in reason


def test_short_prompts_get_no_context_that_could_cut_answers():
    """GSM8K's lengths, Qwen3-8B, an H100: nothing but what pays, and no max_model_len."""
    made = advised([*range(40, 260)] * 6, model="qwen3-8b", gpu="h100")
    assert made.decision.mode is Mode.OFF
    assert made.settings.max_model_len is None
    assert made.settings.enable_chunked_prefill is None
    assert made.inputs.output.assumed


def test_the_context_is_set_where_the_models_own_does_not_fit_as_long_as_fits():
    made = advised(SHORT, model="llama-3.1-8b", gpu="l4")
    context = made.settings.max_model_len
    assert 4_096 < context < 131_072
    assert made.memory.holds(context)
    assert not made.memory.holds(context + 2_048)
    assert f"Set max_model_len {context:,}, the longest that fits, and " in made.advice


def test_the_table_shows_what_was_tried_and_marks_the_choice():
    made = advised(MIXED, model="qwen2.5-1.5b", gpu="l4")
    assert made.tried[0].name == "vLLM's own"
    (chosen,) = [row for row in made.tried if row.chosen]
    assert chosen.max_num_seqs == made.settings.max_num_seqs
    assert chosen.makespan_s == made.forecast.makespan_s
    assert all(0 < row.kv_peak <= 1 for row in made.tried)


def test_a_finalist_must_gain_in_every_variation():
    """512 requests at once gain over 3 % with the outputs assumed, and lose with longer ones."""
    lengths = range(50, 1_050)
    made = advised(lengths, gpu="a100-80gb")
    assert made.settings.given() == {}
    assert "max_num_batched_tokens 8,192, max_num_seqs 512, would gain +4." in made.advice
    assert "with outputs twice as long" in made.advice
    known = advised(lengths, gpu="a100-80gb", max_output=256)
    assert known.settings.max_num_seqs == 512, "nothing to vary where it is known"


def test_latency_runs_fewer_requests_where_the_cache_would_make_them_wait():
    """On an L4, 256 requests overfill the KV cache: those preempted wait for many seconds."""
    made = advised(MIXED, gpu="l4", objective=Objective.LATENCY, max_itl_ms=400)
    assert made.settings.max_num_seqs < 256
    assert "preempted" in made.argument("max_num_seqs").reason
    assert made.forecast is not None
    assert made.forecast.longest_gap_s is not None
    assert made.forecast.longest_gap_s <= 0.4
    assert made.forecast.default_longest_gap_s is not None
    assert made.forecast.default_longest_gap_s > 1


@pytest.mark.parametrize("lengths", [SHORT, MIXED, LONG], ids=["short", "mixed", "long"])
@pytest.mark.parametrize("task", list(Task))
def test_what_is_planned_is_within_the_memory_models_limits(lengths, task):
    made = advised(lengths, model="qwen2.5-7b", gpu="rtx-4090", task=task)
    assert made.memory is not None
    assert made.memory.holds(made.argument("max_model_len").value)
    assert made.forecast is not None
    assert made.forecast.makespan_s > 0


def test_the_cost_is_known_before_the_run_with_its_range():
    made = advised(MIXED, model="qwen2.5-1.5b", gpu="l4", price_per_hour=0.8)
    cost = made.cost
    assert cost.input_tokens == sum(MIXED)
    assert cost.output_tokens == 256 * len(MIXED)
    assert cost.hours == made.forecast.makespan_s / 3_600
    assert cost.least_hours < 0.8 * cost.hours, "outputs may be half as long"
    assert cost.most_hours > 1.3 * cost.hours, "or twice as long"
    assert cost.varied[0] == "a host that takes no time"
    assert (cost.gpus, cost.price_per_hour) == (1, 0.8)
    known = advised(MIXED, model="qwen2.5-1.5b", gpu="l4", max_output=256).cost
    assert known.most_hours < 1.2 * known.hours, "nothing but lengths and draws to vary"
    assert Plan.from_json(made.to_json()) == made


def test_the_range_names_another_draw_only_where_it_is_another():
    """Prompts of one length are the same in every order."""
    draws = {"another draw", "a third draw"}
    assert draws < set(advised([*range(100, 500)], max_output=8).cost.varied)
    assert not draws & set(advised([300] * 400, max_output=8).cost.varied)


def test_what_nobody_simulated_costs_nobody_knows_what():
    assert plan(MIXED, model=None, gpu=None).cost is None


def test_more_prompts_than_are_simulated_cost_in_proportion():
    few, many = (advised([100] * n, max_output=8).cost for n in (10_000, 30_000))
    assert many.input_tokens == 3 * few.input_tokens
    assert many.output_tokens == 3 * few.output_tokens
    assert many.hours == pytest.approx(3 * few.hours, rel=0.1)


def test_the_client_keeps_as_many_in_flight_as_ran_at_once():
    made = advised([60_000] * 20, max_output=8)
    assert made.requests_in_flight == made.forecast.most_running
    assert 1 < made.requests_in_flight < 20, "the KV cache holds no more"


def test_without_a_speed_nothing_is_tried():
    assert plan(MIXED, gpu=None, gpu_memory="80GiB").forecast is None
    assert plan(MIXED, model=None, gpu=None).forecast is None


def test_a_plan_of_an_older_version_has_no_forecast():
    document = plan(MIXED).to_json()
    del document["plan"]["forecast"]
    assert Plan.from_json(document).forecast is None


def test_a_plan_is_the_same_every_time():
    first, second = (advised(MIXED, model="qwen2.5-1.5b", gpu="l4").to_json() for _ in range(2))
    assert {**first, "created": None} == {**second, "created": None}


def test_what_all_prompts_share_is_read_once():
    """GSM8K with 8 shots: nearly all of each prompt is in vLLM's prefix cache."""
    lengths = [1_693] * 400
    shared, alone = (
        advised(lengths, model="qwen3-8b", max_output=256, shared_prefix=n) for n in (1_637, 0)
    )
    assert shared.forecast.makespan_s < 0.6 * alone.forecast.makespan_s
    assert any("begin with the same 1,637 tokens" in warning for warning in shared.warnings)
