"""What would make the run shorter, whatever the flags: from what the profile
counted."""

import json
from dataclasses import replace

import pytest

import chunkscope
from chunkscope.artefacts.artefact import Numbers, built, plain
from chunkscope.planning.plan import Plan, Saving
from chunkscope.planning.recommend import recommend
from chunkscope.prefixes.reuse import NearMiss, PrefixReuse, Scoring
from chunkscope.prefixes.sharing import Sharing
from chunkscope.prompts.harness.log import LogSummary
from chunkscope.report.plan import saving_text as words
from chunkscope.report.plan import setup
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.build import dataset, profile

WHERE = {"model": "qwen3-8b", "gpu": "h200", "vllm_version": "0.28", "max_output": 16}
LENGTHS = [700] * 80
PAIRS = Sharing(  # of each two prompts, the second finds 336 tokens of the first
    lengths=Numbers(LENGTHS), ends=Numbers(n // 2 for n in range(80)),
    parents=Numbers([-1] * 40), tokens=Numbers([340] * 40),
)  # fmt: skip
SERVED = 40 * 336


def reuse(**more) -> PrefixReuse:
    tokens = sum(LENGTHS)
    whole = {
        "prompts": 80,
        "tokens": tokens,
        "out_of_prompts": 80,
        "out_of_tokens": tokens,
    }
    return PrefixReuse(**whole, common_tokens=0, **more)


def planned(*datasets, **options) -> Plan:
    return recommend(replace(profile(), datasets=datasets), **{**WHERE, **options})


def saved(plan: Plan, code: str) -> Saving:
    (one,) = [one for one in plan.savings if one.code == code]
    assert words(one)
    return one


SCORING = Scoring(requests=80, contexts=20, single_token=True)


@pytest.mark.parametrize(
    ("version", "single", "how"),
    [
        *(("0.19", True, "next_token"), ("0.28", True, "generative_scoring")),
        *(("0.32", False, "read_cache"), ("0.28", False, None)),
    ],
)
def test_contexts_that_are_computed_once_for_each_choice_are_the_largest_saving(
    version, single, how
):
    scoring = replace(SCORING, single_token=single)
    scored = dataset(
        "mmlu",
        LENGTHS,
        scored=True,
        prefixes=reuse(scoring=scoring, unread_tokens=42_000),
    )
    plan = planned(scored, dataset("other", [300] * 40), vllm_version=version)
    if how is None:
        assert plan.savings == ()
        return
    one = saved(plan, "score_contexts_once")
    assert one is plan.savings[0]
    assert (one.values["how"], one.values["contexts"]) == (how, 20)
    assert one.tokens == 42_000, "three of four requests need not be computed"
    assert 0 < one.hours < plan.cost.hours
    assert one.simulated is single


def test_many_datasets_of_one_kind_are_one_saving():
    scored = {"scored": True, "prefixes": reuse(scoring=SCORING)}
    datasets = [dataset(f"mmlu_{n}", LENGTHS, **scored) for n in range(5)]
    one = saved(planned(*datasets), "score_contexts_once")
    assert (one.values["others"], one.tokens) == (4, 5 * 42_000)


def test_an_early_difference_is_named_with_what_it_loses():
    miss = NearMiss(
        prompts=80,
        lost_tokens=9_000,
        position=1,
        other_position=2,
        text="on Monday",
        other_text="on Friday",
        same_before=10,
    )
    plan = planned(dataset("a", LENGTHS, prefixes=reuse(near_misses=(miss,) * 5)))
    one, *_ = plan.savings
    assert (one.code, one.tokens, one.simulated) == ("early_difference", 9_000, False)
    assert "on Monday" in words(one)
    assert len(plan.savings) == 3
    assert built(Plan, plain(plan)) == plan


@pytest.mark.parametrize(
    ("asked", "logged", "few"),
    [(2, None, 2), (None, 4, 4), (None, None, None), (500, None, None)],
)
def test_a_client_that_keeps_few_in_flight_is_told_how_many_are_enough(
    asked, logged, few
):
    log = LogSummary(harness="Inspect", documents=80, requests=80, concurrency=logged)
    plan = planned(dataset("a", LENGTHS, log=log), concurrency=asked)
    if few is None:
        assert plan.savings == ()
        return
    one = saved(plan, "few_in_flight")
    assert one.values["concurrency"] == few
    assert few < one.values["enough"] <= 80
    assert one.values["harness"] == (None if asked else "Inspect")
    assert one.simulated
    free = planned(dataset("a", LENGTHS)).cost.hours
    assert one.hours == pytest.approx(plan.cost.hours - free, rel=0.03)
    assert f", {few} requests at once" in setup(plan)
    limited = planned(dataset("a", LENGTHS), concurrency=few, slo="ttft_max=200ms")
    assert limited.run.slo.is_met
    for saving in limited.savings:
        assert saving.values["enough"] < 80, "with all at once the limit would break"


# -- on a real vLLM, which computes as many tokens as were predicted -----------------


@pytest.mark.real
def test_contexts_that_are_scored_once_are_computed_as_predicted(probe, shared):
    """MMLU with five shots, as lm-eval logged it: 30 questions of two subjects, four
    choices."""
    folder = str(shared / "tokenizers" / "qwen3")
    logs = shared / "data/harness_logs/lm-eval-0.4.13/mock__plain"
    files = sorted(logs.glob("samples_mini_mmlu_*.jsonl"))
    plan = recommend(
        chunkscope.analyze(files, tokenizer=folder), model="qwen3-8b", gpu="h200",
        vllm_version="0.28", entry="llm",
    )  # fmt: skip
    (saving,) = [one for one in plan.savings if one.code == "score_contexts_once"]
    assert saving.values["how"] == "generative_scoring"
    samples = [
        json.loads(line) for file in files for line in file.read_text().splitlines()
    ]
    pairs = [
        (sent["arg_0"], sent["arg_1"])
        for sample in samples
        for sent in sample["arguments"].values()
    ]
    tokenizer, texts = (
        Tokenizer(folder),
        [context + choice for context, choice in pairs],
    )
    scored = tokenizer.encode(texts, special_tokens=True)
    contexts = tokenizer.encode(list(dict(pairs)), special_tokens=True)
    labels = sorted({ids[-1] for ids in scored})
    engine = {
        name: getattr(plan.effective, name)
        for name in ("max_num_batched_tokens", "max_num_seqs")
    }
    runs = [
        {"prompts": scored, "output": 1, "prompt_logprobs": True},
        {"prompts": contexts, "output": 1, "labels": labels},
    ]
    engine |= {"max_model_len": 8_192, "block_size": 16}  # on a CPU vLLM's own is 128
    told = probe("cache_probe", [{"engine": engine, "runs": runs}])
    by_choice, once = told["answers"][0]["cached"]
    assert sum(map(len, scored)) - sum(by_choice) == plan.cost.input_tokens
    computed = sum(map(len, contexts)) - sum(once)
    assert computed == pytest.approx(plan.cost.input_tokens - saving.tokens, rel=0.02)
    assert computed < 0.3 * plan.cost.input_tokens
