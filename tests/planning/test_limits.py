"""`recommend --slo`: the setting that keeps the limits with the most room, or none."""

from io import StringIO
from types import SimpleNamespace

import pytest
from chunkscope.report.terminal.plan import show_plan
from rich.console import Console

from chunkscope.errors import UsageError
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan, TriedSetting
from chunkscope.planning.recommend import recommend
from chunkscope.planning.search import Trials, search
from chunkscope.simulation.slo import read_slo
from chunkscope.vllm.enums import Basis, Mode, Objective
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.build import LONG, MIXED, advised
from tests.conftest import REPOSITORY

SERVED = {"model": "qwen3-8b", "gpu": "h100", "max_output": 256, "vllm_version": "0.32.0"}


def served(slo: str, arrivals: str = "16/s") -> Plan:
    profile = Profile.load(REPOSITORY / "reports/example/profile.json")
    return recommend(profile, **SERVED, slo=slo, arrivals=arrivals)


def chosen(made: Plan) -> TriedSetting:
    (row,) = [row for row in made.tried if row.chosen]
    return row


def test_vllms_own_stays_where_it_keeps_the_limits_about_as_well():
    made = served("ttft_p95=20s,itl_p99=5s")
    assert made.settings.given() == {}
    assert made.advice.startswith("Change nothing: vLLM's own keeps every limit at 16/s, ")
    assert chosen(made).name == "vLLM's own"
    assert (made.forecast, made.cost) == (None, None), "the arrivals decide how long it takes"


def test_a_setting_that_keeps_a_limit_which_vllms_own_breaks_is_chosen():
    made = served("ttft_p95=1s,itl_p99=50ms")
    assert made.settings.max_num_batched_tokens not in (None, 8_192)
    assert made.advice.startswith("Set ")
    assert "with vLLM's own itl_p99 breaks first" in made.advice
    row = chosen(made)
    assert row.slo is not None
    assert row.slo.is_met
    others = [one.slo.room for one in made.tried if one.slo]
    assert row.slo.room >= max(others) - 0.01, "the most room of all that were tried"


def test_a_limit_is_mended_also_where_shorter_outputs_would_not_break_it():
    """With outputs half as long vLLM's own keeps it and is faster: no reason to break it."""
    made = advised(LONG, model="llama-3.1-8b", gpu="h200", slo="itl_max=400ms")
    own = made.tried[0]
    assert own.longest_gap_s > 0.4 > chosen(made).longest_gap_s
    assert chosen(made).name == "best found"
    assert made.advice.startswith("Set ")


NEW = {"long_prefill_token_threshold_adaptive", "max_num_active_seqs"}


@pytest.mark.parametrize(("version", "tried"), [("0.30", set()), ("0.31", NEW)])
def test_what_0_31_brought_is_tried_where_it_is_known(version, tried):
    """Against limits only, and set only where it beats the same without it."""
    start = Settings(max_num_batched_tokens=8_192, max_num_seqs=256)
    trials = FakeTrials(version)
    search(trials, start)
    assert {name for one in trials.seen for name in NEW if getattr(one, name)} == tried


class FakeTrials(Trials):
    """Every setting keeps the limits, the worse the more requests there are."""

    def __init__(self, version: str) -> None:
        there = SimpleNamespace(release=release(version))
        problem = SimpleNamespace(slo=read_slo("itl_p99=50ms"), deployment=there)
        workload = SimpleNamespace(requests=range(10_000))
        super().__init__(problem=problem, workload=workload)
        object.__setattr__(self, "seen", [])

    def run(self, settings, host=None):  # noqa: ARG002
        self.seen.append(settings)
        return object()

    def against(self, settings, other):
        return (settings.max_num_seqs or 1) / (other.max_num_seqs or 1)


def test_where_none_keeps_them_the_limit_that_breaks_first_is_named():
    made = served("ttft_p95=20s,itl_p50=1ms")
    assert made.settings.given() == {}
    assert made.advice.startswith("No setting that was tried keeps the limits at 16/s: itl_p50 ")
    assert "--find-rate" in made.advice


def test_a_queue_that_grows_keeps_no_limit():
    """Gaps stay short however many wait: only the queue says that it is too much."""
    made = served("itl_p99=30s", "2000/s")
    assert made.advice.startswith("No setting that was tried keeps the limits at 2000/s: the queue")


def test_all_at_once_the_fastest_that_keeps_the_limits_is_chosen():
    made = advised(MIXED, gpu="l4", max_output=128, slo="itl_max=400ms")
    row = chosen(made)
    assert row.slo is not None
    assert row.slo.is_met
    own = made.tried[0].slo
    assert own is not None
    assert not own.is_met, "preempted requests wait for seconds"
    kept = [one.makespan_s for one in made.tried if one.slo and one.slo.is_met]
    assert row.makespan_s <= min(kept) * 1.01


def test_a_client_that_keeps_few_under_way_is_planned_for():
    """Eight at once never overfill the cache: there is nothing to gain from other settings."""
    made = advised([300] * 200, **SERVED, concurrency=8)
    assert made.settings.given() == {}
    assert made.forecast is not None
    assert made.forecast.most_running is not None
    assert made.forecast.most_running <= 8
    assert made.inputs.concurrency == 8


def test_a_plan_with_limits_is_read_back():
    made = served("ttft_p95=20s,e2e_max=1min")
    assert Plan.from_json(made.to_json()) == made
    assert made.inputs.arrivals == "16/s"
    assert [str(limit) for limit in made.inputs.slo] == ["ttft_p95 20 s", "e2e_max 60 s"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slo": "ttft_p95=1s", "model": None}, "model and the GPU"),
        ({"slo": "ttft_p95=1s", "mode": Mode.AGGRESSIVE}, "both decide"),
        ({"slo": "ttft_p95=1s", "policy": Basis.LENGTHS}, "both decide"),
        (
            {"slo": "ttft_p95=1s", "objective": Objective.LATENCY, "max_itl_ms": 50},
            "both decide",
        ),
        ({"slo": "ttft=1s"}, "knows no"),
        ({"arrivals": "4/s"}, "nothing to gain"),
        ({"slo": "ttft_p95=1s", "arrivals": "often"}, "neither batch nor a rate"),
    ],
)
def test_what_contradicts_itself_is_a_usage_error(options, said):
    with pytest.raises(UsageError, match=said):
        advised(MIXED, **{**SERVED, **options})


def test_the_table_shows_the_figures_that_are_limited():
    out = StringIO()
    show_plan(served("ttft_p95=1s,itl_p99=50ms"), Console(file=out, width=80))
    said = out.getvalue()
    assert max(len(line.rstrip()) for line in said.splitlines()) <= 80
    assert "ttft_p95 1 s itl_p99 50 ms room longest preempted KV use" in said
    own = next(line for line in said.splitlines() if line.startswith("vLLM's own "))
    assert "! " in own, "over its limit"
