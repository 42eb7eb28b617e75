"""[gate.settings]: committed engine arguments against what `recommend` says today."""

from dataclasses import replace

import pytest

from chunkscope.errors import InputError
from chunkscope.gating.promises import as_good, settings
from chunkscope.gating.verdict import Verdict
from chunkscope.lengths.profile import Profile
from chunkscope.planning.emit import emit
from chunkscope.planning.recommend import recommend
from chunkscope.simulation.slo import read_slo
from chunkscope.vllm.check import CheckAnswer
from chunkscope.vllm.enums import Objective, SendOrder, Target, Task
from chunkscope.vllm.settings import UNUSUAL
from tests.build import LONG, MIXED, SHORT
from tests.conftest import REPOSITORY

ARGS = '[settings]\nfile = "vllm.yaml"\n'
AS_GOOD, EQUAL = "settings.as-good", "settings.equal"
TIME, GAP = "simulation, time for all requests", "simulation, longest gap"
LIMIT = "simulation, use of the tightest limit"


# What `recommend` would set and leave to vLLM: fixed, as these tests are not about its choices.
PINNED = {
    "max_num_batched_tokens": {"value": 8192, "default": 8192, "set": False},
    "max_num_seqs": {"value": 1024, "default": 1024, "set": False},
    "long_prefill_token_threshold": {"value": 2000, "default": 0, "set": True},
}


def prepare(place, lengths=MIXED, **options):
    """A profile, and a plan with the arguments above."""
    found = place.save_profile(data=lengths)
    plan = place.save_plan(found, **options)
    if plan.gpu is not None:
        arguments = tuple(replace(a, **PINNED.get(a.name, {})) for a in plan.arguments)
        plan = replace(plan, arguments=arguments)
        longest = plan.decision.longest
        plan = replace(plan, memory=plan.deployment.memory(plan.settings, longest=longest))
        plan.save(place.reports / "plan.json")
    return plan


def commit(place, plan, target=Target.VLLM_YAML, **changed):
    """What was recommended, with a line changed or (None) taken out."""
    text = emit(plan, target).text
    kept = [x for x in text.splitlines() if x.split(":")[0].replace("-", "_") not in changed]
    lines = [f"{name}: {value}" for name, value in changed.items() if value is not None]
    place.write("vllm.yaml", "\n".join([*kept, *lines, "port: 8000"]))


def about(place, name: str, promise: str = AS_GOOD, extra: str = "") -> Verdict:
    must_be = promise.removeprefix("settings.")
    return place.one(f'{ARGS}must_be = "{must_be}"\n{extra}', promise, name)


@pytest.mark.parametrize("must_be", ["equal", "as-good"])
@pytest.mark.parametrize("lengths", [SHORT, MIXED, LONG], ids=["off", "conservative", "aggressive"])
@pytest.mark.parametrize(
    ("target", "name"),
    [(Target.VLLM_YAML, "vllm.yaml"), (Target.VLLM_ARGS, "a.txt"), (Target.LM_EVAL, "b.txt")],
)
def test_what_was_recommended_keeps_every_promise(place, lengths, must_be, target, name):
    plan = place.save_plan(place.save_profile(data=lengths))
    place.write(name, emit(plan, target).text)
    result = place.gate(f'[settings]\nfile = "{name}"\nmust_be = "{must_be}"')
    assert result.kept, result.broken


def test_one_token_more_is_not_equal(place):
    plan = prepare(place)
    length = plan.settings.max_model_len
    commit(place, plan)
    assert about(place, "max_model_len", EQUAL).kept
    commit(place, plan, max_model_len=length + 1)
    broken = about(place, "max_model_len", EQUAL)
    assert (broken.kept, broken.promised, broken.found) == (False, f"{length:,}", f"{length + 1:,}")


def test_a_default_spelled_out_is_equal_to_one_left_out(place):
    plan = prepare(place)
    commit(place, plan, max_num_batched_tokens=8192)
    assert about(place, "max_num_batched_tokens", EQUAL).kept
    commit(place, plan)
    assert about(place, "max_num_batched_tokens", EQUAL).found == "8,192 (default)"


def test_what_is_unusual_is_spoken_of_only_where_it_is_set(place):
    plan = prepare(place, vllm_version="0.32")
    commit(place, plan)
    told = place.gate(f'{ARGS}must_be = "equal"')
    assert told.kept
    assert not {verdict.subject for verdict in told.verdicts} & set(UNUSUAL)
    commit(place, plan, max_num_active_seqs=4)
    broken = about(place, "max_num_active_seqs", EQUAL)
    assert (broken.kept, broken.promised, broken.found) == (False, "left to vLLM", "4")
    commit(place, plan, data_parallel_size=1)
    assert place.gate(f'{ARGS}must_be = "equal"').kept, "one replica is what there is anyway"


# -- as good: the memory model holds it, and the simulation is within 3 % ------------------------


def test_what_is_as_fast_as_the_plan_is_as_good_and_both_are_said(place):
    plan = prepare(place)
    commit(place, plan, max_num_seqs=1_000, max_model_len=8_192)
    result = place.gate(ARGS)
    assert result.kept, result.broken
    memory = about(place, "memory")
    assert memory.promised == "the memory model holds it, and a request of 8,192 tokens"
    assert "GiB asked for, a KV cache of 9" in memory.found
    assert memory.found.endswith("(predicted)")
    simulated = about(place, TIME)
    assert simulated.promised.startswith("within 3 % of the plan's ")
    assert simulated.found.endswith(" % (predicted, 1,521 requests)")
    assert simulated.found_value <= simulated.promised_value * 1.03


def test_the_plans_own_settings_need_no_simulation(place):
    plan = prepare(place)
    commit(place, plan)
    assert about(place, "simulation").found == "the plan's own settings"
    assert about(place, "memory").kept


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        pytest.param({"gpu_memory_utilization": 1.0}, "memory", id="all of the memory"),
        pytest.param({"max_num_batched_tokens": 4_000_000}, "memory", id="too large a step"),
        pytest.param({"max_num_batched_tokens": 1_000_000}, TIME, id="a large step"),
        pytest.param({"max_num_batched_tokens": 512}, TIME, id="small steps"),
        pytest.param({"max_num_b": 256}, TIME, id="an abbreviation"),
        pytest.param({"max_num_seqs": 8}, TIME, id="few requests"),
        pytest.param({"gpu_memory_utilization": 0.15}, TIME, id="little memory"),
        pytest.param({"max_model_len": 4_096}, "max_model_len", id="a short context"),
        pytest.param({"tensor_parallel_size": 2}, "tensor_parallel_size", id="more GPUs"),
    ],
)
def test_what_does_not_fit_or_is_slower_is_not_as_good(place, changes, subject):
    commit(place, prepare(place), **changes)
    assert not about(place, subject).kept


@pytest.mark.parametrize(
    ("planned", "committed"), [("auto", "fp8"), ("fp8", None), ("fp8", "auto")]
)
@pytest.mark.parametrize("promise", [AS_GOOD, EQUAL])
def test_a_kv_cache_of_other_numbers_is_never_as_good(place, planned, committed, promise):
    commit(place, prepare(place, kv_cache_dtype=planned), kv_cache_dtype=committed)
    assert about(place, "kv_cache_dtype", promise).kept is False


@pytest.mark.parametrize("promise", [AS_GOOD, EQUAL])
def test_a_kv_cache_of_the_planned_numbers_is_kept(place, promise):
    commit(place, prepare(place, kv_cache_dtype="fp8"))
    assert place.gate(f'{ARGS}must_be = "{promise.removeprefix("settings.")}"\n').kept


def test_a_shorter_context_that_refuses_no_prompt_is_as_good(place):
    plan = prepare(place, max_model_len=16_384)
    commit(place, plan, max_model_len=4_256)
    assert about(place, "max_model_len").kept
    commit(place, plan, max_model_len=4_255)
    broken = about(place, "max_model_len")
    assert (broken.kept, broken.found) == (False, "1 refused at 4,255 tokens")


def test_on_a_small_gpu_the_models_own_context_is_not_held(place):
    plan = prepare(place, gpu="l4", max_model_len=8_192)
    commit(place, plan, max_model_len=131_072)
    broken = about(place, "memory")
    assert not broken.kept
    assert broken.found_value < 131_072


def test_more_requests_at_once_than_pay_are_not_as_good(place):
    """8,192 requests: their logits and what is preempted cost more than they bring."""
    plan = prepare(place, [2_000] * 6_000, gpu="a100-40gb")
    commit(place, plan, max_num_seqs=8_192, max_num_batched_tokens=8_192)
    assert any(v.promise == AS_GOOD for v in place.gate(ARGS).broken)


def test_for_latency_the_longest_gap_counts_too(place):
    plan = prepare(place, objective=Objective.LATENCY, max_itl_ms=60)
    budget = plan.argument("max_num_batched_tokens").value
    commit(place, plan, max_num_batched_tokens=budget * 4)
    assert not about(place, GAP).kept
    commit(place, plan, max_num_batched_tokens=budget - 1)
    assert about(place, GAP).kept


def prepare_for_limits(place, lengths, slo):
    """The plan above, of requests that come by themselves."""
    plan = prepare(place, lengths)
    plan = replace(plan, inputs=replace(plan.inputs, slo=read_slo(slo), arrivals="2/s"))
    plan.save(place.reports / "plan.json")
    return plan


def test_a_plan_for_limits_is_judged_by_the_tightest_limit(place):
    """Requests that come by themselves take as long with any setting that keeps up."""
    plan = prepare_for_limits(place, [12_000] * 40, "itl_p99=5s")
    commit(place, plan, max_num_batched_tokens=65_536, long_prefill_token_threshold=0)
    larger = about(place, LIMIT)
    assert not larger.kept
    assert larger.promised.startswith("within 3 % of the plan's ")
    assert larger.found.endswith(" % (predicted, 1,000 requests)")
    assert larger.found_value > larger.promised_value * 1.03
    assert not any(v.subject == TIME for v in place.gate(ARGS).verdicts)
    commit(place, plan, max_num_seqs=1_000)
    assert about(place, LIMIT).kept


@pytest.mark.parametrize(("planned", "found", "kept"), [(0.9, 0.92, True), (0.99, 1.01, False)])
def test_a_limit_that_the_plan_keeps_may_not_break(place, monkeypatch, planned, found, kept):
    plan = prepare_for_limits(place, [3_000] * 40, "itl_p99=50ms")
    commit(place, plan, max_num_seqs=1_000)
    uses = {1_024: planned, 1_000: found}
    told = replace(as_good.LIMITS, of=lambda run: uses[run.args.max_num_seqs])
    monkeypatch.setattr(as_good, "LIMITS", told)
    assert about(place, LIMIT).kept is kept


def test_as_good_is_simulated_on_the_requests_that_the_plan_was_made_for(place):
    asked = {"shared_prefix": 1_024, "concurrency": 100, "order": SendOrder.LONGEST}
    plan = place.save_plan(place.save_profile(data=MIXED), **asked)
    commit(place, plan, max_num_seqs=1_000)
    assert about(place, TIME).promised_value == plan.forecast.makespan_s


def test_for_likelihoods_what_is_not_profiled_must_fit(place):
    plan = prepare(place, LONG, task=Task.LOGLIKELIHOOD, model="qwen2.5-7b")
    commit(place, plan, gpu_memory_utilization=0.99)
    broken = about(place, "memory")
    assert (broken.kept, broken.note) == (False, "what vLLM does not profile would not fit")


@pytest.mark.parametrize(
    ("factor", "kept"), [(1.1, True), (0.9, True), (1.11, False), (0.89, False), (0, False)]
)
def test_a_threshold_can_be_promised_to_be_near(place, factor, kept):
    plan = prepare(place)
    wanted = plan.settings.long_prefill_token_threshold
    assert wanted == 2000
    commit(place, plan, long_prefill_token_threshold=round(wanted * factor))
    verdict = place.one(f'{ARGS}threshold_tolerance = "10%"', "settings.threshold_tolerance")
    assert verdict.kept is kept


def test_lm_eval_sets_a_memory_share_of_its_own(place):
    plan = prepare(place)
    place.write("b.txt", f"pretrained=m,max_model_len={plan.settings.max_model_len}")
    verdicts = place.gate('[settings]\nfile = "b.txt"\nmust_be = "equal"').verdicts
    share = next(v for v in verdicts if v.subject == "gpu_memory_utilization")
    assert (share.kept, share.found) == (False, "0.9 (default)")


def test_without_a_gpu_only_the_plans_own_settings_are_as_good(place):
    plan = prepare(place, model=None, gpu=None)
    commit(place, plan)
    assert place.gate(ARGS).kept
    assert about(place, "max_num_seqs", EQUAL).found == "left to vLLM"
    for changed in ({"max_num_seqs": 8}, {"max_model_len": None}):
        commit(place, plan, **changed)
        for subject in ("memory", "simulation"):
            broken = about(place, subject)
            assert (broken.kept, broken.found[:18]) == (False, "not known without ")
        assert "not known without" in about(place, next(iter(changed)), EQUAL).note


def test_a_plan_of_other_data_is_not_what_recommend_says_today(place):
    plan = prepare(place)
    commit(place, plan)
    assert place.gate(ARGS).kept
    place.save_profile(data=[5, 6])
    result = place.gate(ARGS)
    assert not result.kept
    assert all(v.if_intended == "chunkscope recommend" for v in result.broken)


# -- is there something beside? ------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "kv-cache-memory-bytes: 1",
        "num-gpu-blocks-override: 2",
        "cpu-offload-gb: 100",
        "quantization: fp8",
        "enforce-eager: true",
        "pipeline-parallel-size: 8",
        "block-size: 32",
        "scheduling-policy: priority",
        "tokenizer: another/one",
        "speculative-config: {method: ngram}",
        "enforce-e: true",
        "model: another/model",
    ],
)
def test_what_nobody_judges_has_to_be_allowed(place, line):
    plan = prepare(place)
    name = line.partition(":")[0]
    name = {"enforce-e": "enforce-eager"}.get(name, name)
    commit(place, plan)
    place.write("vllm.yaml", (place.folder / "vllm.yaml").read_text() + f"\n{line}\n")
    (broken,) = place.gate(ARGS).broken
    assert (broken.promise, broken.subject) == ("settings.allow", name.replace("-", "_"))
    assert "name it in `allow = [" in broken.note
    allowed = place.gate(f'{ARGS}allow = ["{name}"]')
    assert allowed.kept, allowed.broken
    (verdict,) = [v for v in allowed.verdicts if v.promise == "settings.allow"]
    assert (verdict.promised, verdict.note) == ("allowed", "not judged")


@pytest.mark.parametrize("line", ["dtype: auto", "seed: 3", "enforce-eager: false", "port: 1"])
def test_what_changes_nothing_needs_no_word(place, line):
    plan = prepare(place)
    commit(place, plan)
    place.write("vllm.yaml", (place.folder / "vllm.yaml").read_text() + f"\n{line}\n")
    assert place.gate(ARGS).kept


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("llama-3.1-8b", True),
        ("meta-llama/Llama-3.1-8B-Instruct", True),
        ("meta-llama/Llama-3.1-70B-Instruct", False),
        ("$MODEL", False),
    ],
)
def test_another_model_breaks_the_promise(place, model, kept):
    plan = prepare(place)
    words = emit(plan, Target.VLLM_ARGS).text
    place.write("a.txt", f"vllm serve {model} {words}")
    result = place.gate('[settings]\nfile = "a.txt"')
    assert result.kept is kept
    assert [v.subject for v in result.broken] == ([] if kept else ["model"])


def test_a_setting_that_is_judged_cannot_be_allowed(place):
    commit(place, prepare(place))
    with pytest.raises(InputError, match="max_num_seqs is compared with the plan"):
        place.gate(f'{ARGS}allow = ["max-num-seqs"]')


# -- would vLLM take it? -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "version", "said"),
    [
        ("max-num-partial-prefills: 4", "0.24", "refuses it"),
        ("max-num-partial-prefills: 4", "0.27", "does not know it any more"),
        ("num-scheduler-steps: 8", "0.24", "does not know it any more"),
        ("max-num-active-seqs: 8", "0.30", "since 0.31.0"),
        ("enable-chunked-prefill: false", "0.24", "drops"),
        ("max-num-seqs: many", "0.24", "no number"),
        ("bogus-flag-xyz: 3", "0.24", "has no such argument"),
        ("Max-Num-Seqs: 2", "0.24", "did you mean max-num-seqs?"),
        ("scheduling-policy: bogus", "0.24", "is none of fcfs, priority"),
        ("block-size: 3", "0.16", "is none of"),
        ("config: other.yaml", "0.24", "another file is not looked at"),
        ("max-model-len: 999999999", "0.24", "over the model's limit"),
        ("max-num-batched-tokens: 64\nmax-num-seqs: 65", "0.24", "must be >= max_num_seqs (65)"),
        ("no-enable-chunked-prefill: true\nmax-num-batched-tokens: 256", "0.24", "smaller than"),
        ("no-enable-chunked-prefill: true", "0.11.0", "ignores chunked prefill off"),
        ("gpu-memory-utilization: 1.01", "0.24", "not in (0, 1]"),
        ("max-model-len: 4096\nlong-prefill-token-threshold: 4097", "0.27", "over max_model_len"),
    ],
)
def test_what_the_named_version_refuses_breaks_the_promise(place, line, version, said):
    prepare(place)
    place.write("vllm.yaml", line)
    result = place.gate(f'{ARGS}vllm_version = "{version}"')
    broken = [v for v in result.broken if v.promise == "settings.accepted"]
    assert said in broken[0].note
    assert broken[0].promised == f"vLLM {version} takes it"


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("max-num-active-seqs: 8", "0.31"),
        ("no-enable-chunked-prefill: true", "0.24"),
        ("max-num-batched-tokens: 64\nmax-num-seqs: 64", "0.24"),
        ("gpu-memory-utilization: 1.0", "0.24"),
        ("max-model-len: 4096\nlong-prefill-token-threshold: 4097", "0.24"),
        ("max-model-len: 4096\nlong-prefill-token-threshold: 4096", "0.27"),
        ("max-model-len: auto", "0.24"),
        ("{}", "0.24"),
    ],
)
def test_what_it_takes_keeps_it(place, line, version):
    prepare(place)
    place.write("vllm.yaml", line)
    verdict = place.one(f'{ARGS}vllm_version = "{version}"', "settings.accepted")
    assert verdict.kept, verdict.note
    assert verdict.subject == "vllm.yaml"


def test_it_is_said_how_many_were_checked(place):
    prepare(place)
    place.write("vllm.yaml", "max-num-seqs: 1024\nport: 1\nenforce-eager: true")
    assert place.one(ARGS, "settings.accepted").found == "2 checked, 1 of no effect here"


def test_with_that_vllm_installed_its_own_parser_is_asked(place, monkeypatch):
    """It knows better which flags it has; what it takes still has to be allowed."""
    plan, asked = prepare(place), []

    def answer(accepted):
        def read(release, words, keywords):
            asked.append((release.text, words, keywords))
            message = "" if accepted else "Rejected: unrecognized arguments"
            return CheckAnswer(accepted=accepted, message=message, vllm_version=release.text)

        monkeypatch.setattr(settings, "read_by_vllm", read)

    commit(place, plan)
    place.write("vllm.yaml", (place.folder / "vllm.yaml").read_text() + "\nof-a-plugin: 1\n")
    answer(False)
    broken = [v for v in place.gate(ARGS).broken if v.promise == "settings.accepted"]
    assert [v.note for v in broken] == ["Rejected: unrecognized arguments"]
    answer(True)
    assert [v.promise for v in place.gate(ARGS).broken] == ["settings.allow"]
    assert place.gate(f'{ARGS}allow = ["of-a-plugin"]').kept
    version, words, keywords = asked[0]
    assert (version, words[-2:], keywords) == ("0.24.0", ("--of-a-plugin", "1"), None)


def test_the_version_is_the_plans_unless_named(place):
    prepare(place, vllm_version="0.27")
    place.write("vllm.yaml", "max-num-partial-prefills: 1")
    broken = place.one(ARGS, "settings.accepted")
    assert broken.promised == "vLLM 0.27 takes it"


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (f'{ARGS}vllm_version = "old"', "is no vLLM version"),
        (f'{ARGS}vllm_version = "0.1"', "older than"),
        (ARGS, "no such settings file"),
    ],
)
def test_a_mistake_in_the_table_is_an_error(place, budget, said):
    prepare(place)
    if "version" in budget:
        place.write("vllm.yaml", "{}")
    with pytest.raises(InputError, match=said) as error:
        place.gate(budget)
    assert error.value.exit_code == 3


def test_no_plan_is_an_error(place):
    place.save_profile()
    place.write("vllm.yaml", "{}")
    with pytest.raises(InputError, match=r"plan\.json, and it is not there"):
        place.gate(ARGS)


def test_a_plan_of_a_profile_that_is_gone_is_an_error(place):
    commit(place, prepare(place))
    assert place.gate(ARGS).kept
    (place.reports / "profile.json").unlink()
    with pytest.raises(InputError, match=r"profile\.json, and it is not there"):
        place.gate(ARGS)


def test_more_requests_than_the_memory_model_allows_break_the_promise(place):
    """The sampler of 2,560 requests takes nearly all of an L4: not one request would fit."""
    found = Profile.load(REPOSITORY / "reports" / "example" / "profile.json")
    found.save(place.reports / "profile.json")
    plan = recommend(found, model="qwen2.5-7b", gpu="l4", vllm_version="0.24", max_model_len=23_552)
    plan.save(place.reports / "plan.json")
    commit(place, plan, max_num_seqs=2_560, max_num_batched_tokens=4_096)
    verdict = about(place, "memory")
    assert not verdict.kept
    assert (verdict.found_value, verdict.promised_value) == (4_880, 23_552)
