"""`recommend --slo`: the setting that keeps the limits, or the rate that would."""

import json
import re
import shlex
from dataclasses import replace
from functools import cache

import pytest

from chunkscope.errors import InputError
from chunkscope.planning.case import Case
from chunkscope.planning.grid import best_of_grid
from chunkscope.planning.plan import AdviceKind, Plan
from chunkscope.planning.recommend import recommend
from chunkscope.planning.search import Search
from chunkscope.planning.simulator import Simulator
from chunkscope.report.plan import headline as advice
from tests.build import LONG, MIXED, advised, profile
from tests.commands.helpers import chunkscope as run

SERVED = {
    "model": "qwen3-8b",
    "gpu": "h100",
    "max_output": 32,
    "vllm_version": "0.32.0",
}
DATA = profile(
    data=[*([60] * 40), *range(100, 1_600, 40), *range(3_000, 15_000, 1_500)]
)


@cache
def served(slo: str, arrivals: str = "16/s", **more) -> Plan:
    return recommend(
        DATA, **{**SERVED, "requests": 100, **more}, slo=slo, arrivals=arrivals
    )


def test_vllms_own_stays_where_it_keeps_the_limits_about_as_well():
    # Half as long gaps would be more room, and first tokens eight times as late.
    assert served("itl_p99=40ms", "4/s").advice.kind is AdviceKind.KEEP
    made = served("ttft_p95=20s,itl_p99=5s")
    assert (made.advice.kind, made.settings.given()) == (AdviceKind.KEEP, {})
    assert made.run is made.default_run
    assert made.cost is None, "the arrivals decide how long it takes"


def test_a_setting_that_keeps_a_limit_which_vllms_own_breaks_is_chosen(monkeypatch):
    made = served(limits := "ttft_p95=1s,itl_p99=40ms")
    assert made.advice.kind is AdviceKind.SET
    assert (made.default_run.slo.is_met, made.run.slo.is_met) == (False, True)
    uses = [one.slo.use for one in made.tried]
    assert made.run.slo.use <= min(uses) + 0.01, "the most room of all that were tried"
    # Room to spare is not paid for with later first tokens, which a tighter limit may
    # cost.
    assert served("itl_p99=40ms", "12/s").settings.given() == {
        "max_num_batched_tokens": 512
    }
    assert "256 instead of 8,192" in (tight := advice(served("itl_p99=20ms", "12/s")))
    assert "to first token grows from" in tight
    # At 0.18/s none was to keep them, and 0.198/s would do: some of the requests had
    # found less.
    monkeypatch.setattr(
        "chunkscope.planning.search.best_settings", lambda search: search.case.default
    )
    monkeypatch.setattr(
        "chunkscope.planning.search.highest_rate_setting", lambda _: made.effective
    )
    assert served.__wrapped__(limits).advice.settings == made.advice.settings


def test_all_at_once_the_fastest_that_keeps_the_limits_is_chosen():
    made = advised(LONG, gpu="h200", max_output=64, slo="itl_max=200ms")
    assert not made.default_run.slo.is_met
    keeping = [one.figures.makespan_s for one in made.tried if one.slo.is_met]
    assert made.run.figures.makespan_s <= min(keeping) * 1.01


def test_budget_and_requests_at_once_are_searched_together():
    """One after the other ended at a budget of 1,024, which takes longer than 4,096 and
    256."""
    made = advised(MIXED * 6, model="llama-3.1-8b", gpu="h100", slo="itl_max=300ms")
    problem_free = advised(MIXED * 6, model="llama-3.1-8b", gpu="h100")
    assert made.run.figures.makespan_s <= 1.05 * problem_free.run.figures.makespan_s


@pytest.mark.parametrize(("version", "known"), [("0.30", False), ("0.32", True)])
def test_what_0_31_brought_is_tried_where_it_is_known(version, known):
    made = served("ttft_p95=1s,itl_p99=40ms", vllm_version=version)
    search = Search(Case.of(DATA, made.request, made.deployment))
    best_of_grid(search.whole, search.case.default)
    tried = search.whole.runs
    assert any(one.long_prefill_token_threshold_adaptive for one in tried) is known


def test_at_twice_the_rate_that_is_served_many_wait():
    """A thousand requests, fewer than may run at once, never waited, whatever the
    rate."""
    made, short = (
        served("ttft_p95=2s", max_output=256),
        profile(data=range(100, 300, 4)),
    )
    count = 2_000
    batch = replace(made.request, arrivals="batch", slo=(), requests=count)
    at_once = Search(Case.of(short, batch, made.deployment))
    default = at_once.case.default
    twice = f"{2 * count / at_once.whole.attempt(default).figures.makespan_s}/s"
    served_twice = replace(made.request, arrivals=twice, requests=None)
    run = Search(Case.of(short, served_twice, made.deployment)).whole.attempt(default)
    assert run.queue_grows
    assert not run.slo.is_met


def test_where_none_keeps_them_the_rate_that_does_is_named_and_how_many_gpus():
    made = served("ttft_p95=10s,itl_p99=15ms", "60/s")
    assert (made.advice.kind, made.settings.given()) == (AdviceKind.NO_SETTING, {})
    assert 0 < made.advice.rate < 60
    assert made.advice.gpus == -(-60 // made.advice.rate)
    assert f"{made.advice.rate:,.3g}" in advice(made)
    held = served("ttft_p95=10s,itl_p99=15ms", f"{made.advice.rate * 0.8}/s")
    assert held.advice.kind is not AdviceKind.NO_SETTING


def test_a_limit_that_a_lone_request_breaks_is_found_without_a_search():
    """Budgets were halved down to 2 tokens, each taking twice as long to simulate."""
    made = advised(MIXED, model="qwen2.5-1.5b", gpu="l4", slo="itl_max=5ms")
    assert (made.advice.kind, made.advice.rate) == (AdviceKind.NO_SETTING, None)
    assert made.tried == (made.default_run,)


def test_a_limit_that_nothing_uses_is_kept_by_vllms_default():
    """An answer of one token has no gaps: the use of the limit, 0, was divided by."""
    made = served("itl_p99=1s", "8/s", max_output=1)
    assert (made.advice.kind, made.run.slo.use) == (AdviceKind.KEEP, 0)
    assert "rough_gaps" not in {note.code for note in made.notes}
    # Where the limit decides nothing, the advice is as without it: fewer at once were
    # advised.
    loose, free = (
        advised([3] * 1000, gpu="h100", slo=slo) for slo in ("ttft_p95=1h", None)
    )
    assert loose.advice.settings == free.advice.settings


def test_a_queue_that_grows_keeps_no_limit():
    """Gaps stay short however many wait: only the queue says that it is too much."""
    made = served("itl_p99=30s", "2000/s")
    assert made.advice.kind is AdviceKind.NO_SETTING
    assert (made.default_run.slo.is_met, made.default_run.backlog.grows) == (True, True)
    tried = {run.setting: run.queue_grows for run in made.tried}
    assert tried == {"default": True, "best": True}, "no setting serves so many"


def test_a_setting_that_a_variation_cannot_run_is_in_doubt(monkeypatch):
    run, longest = Simulator.run, DATA.datasets[0].lengths.max

    def refuse(self, settings):
        if self.workload.longest > longest:
            raise InputError("too long")
        return run(self, settings)

    monkeypatch.setattr(Simulator, "run", refuse)
    made = served.__wrapped__("ttft_p95=1s,itl_p99=40ms")
    assert (made.advice.kind, made.advice.doubt) == (AdviceKind.SET, "longer_prompts")


def test_what_vllm_needs_to_start_is_named_though_no_setting_keeps_the_limits():
    made = served(
        "itl_p99=1ms", "1/s", model="mistral-nemo-12b", gpu="l40s", max_output=8
    )
    context = made.advice.needed.max_model_len
    assert (made.advice.kind, made.settings.max_model_len) == (
        AdviceKind.NO_SETTING,
        context,
    )
    assert f"{context:,}" in advice(made)


def test_a_client_that_keeps_few_under_way_is_planned_for():
    """Eight at once never overfill the cache: there is nothing to gain from other
    settings."""
    made = advised([300] * 100, **SERVED, concurrency=8)
    assert made.settings.given() == {}
    assert made.run.most_running <= 8


# -- on the command line -------------------------------------------------------------

IMPOSSIBLE = (
    "--model qwen3-8b --gpu h100 --max-output 2 --slo itl_p50=0.1ms --arrivals 8/s"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for module in ("drawing", "predict"):
        monkeypatch.setattr(f"chunkscope.planning.{module}.FEWEST_AT_A_RATE", 100)
    monkeypatch.setattr("chunkscope.planning.drawing.MOST_AT_A_RATE", 100)
    DATA.save(tmp_path / "reports" / "profile.json")
    return tmp_path


def test_recommend_and_find_rate_name_the_same_rate_and_recommend_how_many_gpus(folder):
    """From other rates, in other steps: it was 6.98/s and 7.41/s."""
    words = (
        "--model qwen3-8b --gpu h100 --max-output 32 --slo ttft_p95=300ms,itl_p99=30ms"
    )
    asked = run(
        folder, "recommend", *words.split(), "--arrivals", "60/s", "-o", "reports/a b"
    )
    assert "; next: chunkscope simulate 'reports/a b' --find-rate" in " ".join(
        asked.err.split()
    )
    told = " ".join(asked.out.split())
    rate = re.search(r"rate of about ([\d.]+)/s", told)[1]
    assert f"60/s needs about {-(-60 // float(rate)):.0f} GPUs" in told
    found = run(folder, "simulate", "reports/a b", "--find-rate", "--requests", "100")
    assert f"sustains {rate}/s" in " ".join(found.out.split())
    after = found.err.partition("; next: ")[2]  # plans the same at the rate that holds
    assert (after.count(" --slo "), after.count(" --arrivals ")) == (1, 1), after
    assert f" --arrivals {float(rate):.3g}/s" in after
    run(folder, "recommend", *words.split()[:6])
    free = run(folder, "simulate", "--find-rate", "--requests", "100").out
    assert "sustains" in " ".join(free.split())


def test_limits_that_cannot_be_kept_are_emitted_only_anyway_with_a_comment(folder):
    words = ("recommend", *shlex.split(IMPOSSIBLE), "--emit", "kubernetes")
    done = run(folder, *words)
    assert (done.code, done.out) == (5, "")
    assert "itl_p50" in done.err
    assert not (folder / "reports" / "plan.json").exists()
    done = run(folder, *words, "--anyway")
    comment, first = done.out.splitlines()[:2]
    assert re.match("# .*NOT keep the limits: itl_p50", comment)
    assert (done.code, first) == (0, "apiVersion: v1")
    bare = run(folder, *words[:-1], "vllm-args", "--anyway")  # has no comments
    assert (bare.out.strip(), "NOT keep the limits: itl_p50" in bare.err) == ("", True)


def test_the_rate_of_a_trace_is_of_its_own_requests_and_of_no_search(folder):
    """A profile beside it names the plan's setting, and no other is looked for."""
    words = "--model qwen3-8b --gpu h100"
    planned = run(folder, "recommend", *words.split())
    assert planned.code == 0, planned.err
    rows = ['{"timestamp": 0, "input_length": 900, "output_length": 8}'] * 100
    (folder / "trace.jsonl").write_text("\n".join(rows))

    found = run(folder, "simulate", "--find-rate", "--trace", "trace.jsonl", "--json")

    assert found.code == 0, found.err
    simulation = json.loads(found.out)
    assert simulation["workload"]["source"] == "trace.jsonl"
    assert [run["setting"] for run in simulation["runs"]] == ["plan"]
