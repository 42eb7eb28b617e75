"""What a newcomer was told and no expert would have signed: each case, and today's answer."""

import io
import re
from pathlib import Path

import pytest
from chunkscope.planning.policy import Rate, Tier
from chunkscope.report.sentences import RULE_WORDS, preemptions
from chunkscope.report.terminal.plan import show_plan
from rich.console import Console

import chunkscope
from chunkscope.artefacts.numbers import by
from chunkscope.lengths.profile import Profile
from chunkscope.planning.plan import Plan
from chunkscope.planning.recommend import recommend
from chunkscope.vllm.enums import Basis, Task
from tests.build import advised
from tests.conftest import REPOSITORY
from tests.update_readme import GUIDE

SAMPLE = REPOSITORY / "reports" / "example" / "profile.json"


@pytest.fixture(scope="module")
def sample() -> Profile:
    return Profile.load(SAMPLE)


def shown(plan: Plan, columns: int = 80) -> str:
    console = Console(file=io.StringIO(), width=columns)
    show_plan(plan, console)
    return " ".join(console.file.getvalue().split())


@pytest.mark.shared
def test_gsm8k_with_qwen3_8b_on_an_h100_gets_no_context_and_no_off(shared: Path) -> None:
    """It was --max-model-len 512, which cuts answers, and off, which that vLLM warns against."""
    data, tokenizer = (shared / p for p in ("data/gsm8k/test.jsonl", "tokenizers/qwen3"))
    profile = chunkscope.analyze(str(data), tokenizer=str(tokenizer))
    plan = recommend(profile, model="qwen3-8b", gpu="h100")
    assert plan.settings.max_model_len is None
    assert plan.settings.enable_chunked_prefill is None
    assert plan.settings.long_prefill_token_threshold is None
    assert plan.advice.startswith("Change nothing") or plan.forecast.gain >= 0.03


@pytest.mark.parametrize("task", list(Task))
def test_a_threshold_of_p95_is_not_set_without_evidence(sample: Profile, task: Task) -> None:
    """It was emitted beside "no difference", and for likelihoods with no evidence at all."""
    plan = recommend(sample, model="llama-3.1-8b", gpu="h200", task=task)
    assert plan.decision.threshold == 2_303, "0.8 x p95, as a description of the data"
    assert plan.settings.long_prefill_token_threshold is None
    assert "under 3 % vLLM's own stays" in plan.argument("long_prefill_token_threshold").reason
    rule = recommend(sample, model="llama-3.1-8b", gpu="h200", task=task, policy=Basis.LENGTHS)
    assert rule.settings.long_prefill_token_threshold == 2_303, "as the owner of a rule wants it"


def test_a_dataset_alone_is_described_as_in_the_table_of_all(sample: Profile) -> None:
    whole = recommend(sample, model="llama-3.1-8b", gpu="h200")
    alone = recommend(sample, model="llama-3.1-8b", gpu="h200", dataset="long_context_qa")
    (row,) = [d.decision for d in whole.decisions if d.name == "long_context_qa"]
    assert row == alone.decision
    assert row.tier is Tier.REQUIRED
    assert "long_prefill_token_threshold" not in alone.settings.given()
    why = "the budget of 8,192 tokens ends a chunk before a threshold of 17,302 could"
    assert why in alone.argument("long_prefill_token_threshold").reason


def test_every_word_of_the_length_rule_is_explained_where_it_is_used(sample: Profile) -> None:
    said = shown(recommend(sample))
    assert RULE_WORDS in said
    page = " ".join((GUIDE / "recommend.md").read_text().split())
    for word in (*Tier, *Rate):
        assert word in RULE_WORDS
        assert word in page


@pytest.mark.parametrize("gpu", ["l4", "h200"])
def test_one_plan_has_one_gain_in_one_output(sample: Profile, gpu: str) -> None:
    """+4 % and +2.9 % stood there for the same plan."""
    plan = recommend(sample, model="qwen2.5-1.5b", gpu=gpu)
    gains = set(re.findall(r"([+-][0-9.]+ %) throughput", shown(plan)))
    gains -= set(re.findall(r"policy's [0-9,]+ would bring ([+-][0-9.]+ %)", shown(plan)))
    assert len(gains) <= 1
    if plan.settings.given():
        assert gains == {by(plan.forecast.gain)}


def test_preemptions_are_told_with_what_to_do() -> None:
    plan = advised([3_000] * 300, gpu="l4", max_output=1_000)
    (chosen,) = [row for row in plan.tried if row.chosen]
    assert chosen.preemptions
    said = preemptions(plan)
    assert f"{chosen.preemptions:,} times a request loses its KV cache" in said
    assert "Fewer requests at once" in said
    assert said in shown(plan, 1_000)


def test_requests_at_once_are_tried_whatever_vllms_own_number_is() -> None:
    """1,024 is the default on an H200: a sample of 256 requests could not show that more pay."""
    plan = advised([60] * 6_000, model="llama-3.1-8b", max_output=128)
    assert plan.tried[0].max_num_seqs == 1_024
    assert plan.settings.max_num_seqs > 1_024
    assert plan.forecast.gain > 0.03
    assert f"Set max_num_seqs {plan.settings.max_num_seqs:,}" in plan.advice


@pytest.mark.parametrize("columns", [80, 140])
def test_the_table_of_what_was_tried_is_whole(sample: Profile, columns: int) -> None:
    plan = recommend(sample, model="qwen2.5-1.5b", gpu="l4")
    names = [row.name for row in plan.tried]
    assert names[0] == "vLLM's own"
    assert "best found" in names
    assert len([name for name in names if name.endswith("tokens a step")]) == 2
    said = shown(plan, columns)
    heads = ("all done", "TTFT p95", "gap p50", "p99", "longest", "preempted", "KV use")
    assert " ".join(("simulated", *heads)) in said
    assert all(name in said for name in names), "no name is cut"
    assert said.count("* best found") == 1


def test_where_nothing_is_set_the_best_alternative_is_named(sample: Profile) -> None:
    plan = recommend(sample, model="llama-3.1-8b", gpu="h200", vllm_version="0.24")
    own, *others = plan.tried
    fastest = min(others, key=lambda row: row.makespan_s)
    gain = own.makespan_s / fastest.makespan_s - 1
    assert not plan.settings.given()
    assert 0 < gain < 0.03
    assert plan.advice == (
        f"Change nothing: the best alternative, {fastest.name}, would gain {by(gain)} "
        "throughput (simulated, not measured)."
    )
