"""[gate.settings]: committed engine arguments against what `recommend` says today."""

from dataclasses import replace

import pytest

from chunkscope.engine.choices import Objective, Target, Task
from chunkscope.errors import InputError
from chunkscope.gating.verdict import Verdict
from chunkscope.lengths.profile import Profile
from chunkscope.planning.emit import emit
from chunkscope.planning.recommend import recommend
from tests.conftest import REPOSITORY
from tests.plans import LONG, MIXED, SHORT

ARGS = '[settings]\nfile = "vllm.yaml"\n'
AS_GOOD, EQUAL = "settings.as-good", "settings.equal"


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


@pytest.mark.parametrize(
    ("name", "kept", "broken"),
    [
        pytest.param("max_model_len", 0, -1, id="a longer context"),
        pytest.param("max_num_batched_tokens", 0, -1, id="a larger step"),
        pytest.param("max_num_seqs", 0, -1, id="more requests"),
        pytest.param("gpu_memory_utilization", 0.01, -0.01, id="more memory"),
    ],
)
def test_for_throughput_more_is_as_good_and_less_is_not(place, name, kept, broken):
    plan = prepare(place)
    value = plan.argument(name).value
    commit(place, plan, **{name: value + kept})
    assert about(place, name).kept
    commit(place, plan, **{name: value + broken})
    assert not about(place, name).kept


def test_for_latency_smaller_steps_are_as_good_and_larger_are_not(place):
    plan = prepare(place, objective=Objective.LATENCY, max_itl_ms=60)
    for name in ("max_num_batched_tokens", "max_num_seqs"):
        value = plan.argument(name).value
        commit(place, plan, **{name: value - 1})
        assert about(place, name).kept
        commit(place, plan, **{name: value + 1})
        assert not about(place, name).kept


def test_for_likelihoods_neither_chunk_nor_memory_may_grow(place):
    plan = prepare(place, LONG, task=Task.LOGLIKELIHOOD, model="qwen2.5-7b")
    for name in ("max_num_batched_tokens", "long_prefill_token_threshold"):
        value = plan.argument(name).value
        commit(place, plan, **{name: value - 1})
        assert about(place, name).kept
        commit(place, plan, **{name: value + 1})
        assert not about(place, name).kept
    commit(place, plan, gpu_memory_utilization=0.99)
    assert not about(place, "gpu_memory_utilization").kept


@pytest.mark.parametrize(
    ("factor", "kept"), [(1.1, True), (0.9, True), (1.11, False), (0.89, False), (0, False)]
)
def test_a_threshold_may_be_a_tenth_off_either_way_but_not_absent(place, factor, kept):
    plan = prepare(place)
    wanted = plan.settings.long_prefill_token_threshold
    assert wanted == 2000
    commit(place, plan, long_prefill_token_threshold=round(wanted * factor))
    assert about(place, "long_prefill_token_threshold").kept is kept


def test_the_tolerance_of_the_threshold_can_be_chosen(place):
    plan = prepare(place)
    commit(
        place,
        plan,
        long_prefill_token_threshold=plan.settings.long_prefill_token_threshold + 1,
    )
    name, none = "long_prefill_token_threshold", 'threshold_tolerance = "0%"'
    assert about(place, name).kept
    assert not about(place, name, extra=none).kept


def test_chunking_must_be_as_recommended(place):
    plan = prepare(place)
    commit(place, plan)
    assert about(place, "enable_chunked_prefill").kept
    commit(place, plan, no_enable_chunked_prefill="true", max_num_batched_tokens=131072)
    broken = about(place, "enable_chunked_prefill")
    assert (broken.kept, broken.promised, broken.found) == (False, "on", "off")


def test_a_step_so_large_that_no_request_fits_is_not_as_good(place):
    plan = prepare(place)
    commit(place, plan)
    assert about(place, "KV cache").kept
    commit(place, plan, max_num_batched_tokens=4_000_000)
    broken = about(place, "KV cache")
    assert not broken.kept
    assert broken.found.endswith("(predicted)")


def test_lm_eval_sets_a_memory_share_of_its_own(place):
    plan = prepare(place)
    place.write("b.txt", f"pretrained=m,max_model_len={plan.settings.max_model_len}")
    verdicts = place.gate('[settings]\nfile = "b.txt"').verdicts
    share = next(v for v in verdicts if v.subject == "gpu_memory_utilization")
    assert (share.kept, share.found) == (False, "0.9 (default)")


def test_what_vllm_takes_by_itself_is_not_known_without_a_gpu(place):
    plan = prepare(place, model=None, gpu=None)
    commit(place, plan)
    kept = about(place, "max_num_seqs")
    assert (kept.kept, kept.promised, kept.found) == (True, "left to vLLM", "left to vLLM")
    commit(place, plan, max_num_seqs=8)
    broken = about(place, "max_num_seqs")
    assert not broken.kept
    assert "not known without" in broken.note
    commit(place, plan, max_model_len=None)
    assert not about(place, "max_model_len").kept


def test_a_plan_of_other_data_is_not_what_recommend_says_today(place):
    plan = prepare(place)
    commit(place, plan)
    assert place.gate(ARGS).kept
    place.save_profile(data=[5, 6])
    result = place.gate(ARGS)
    assert not result.kept
    assert all("run `chunkscope recommend` again" in v.note for v in result.broken)


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
        ("some-flag-of-tomorrow: 1", "0.24"),
        ("{}", "0.24"),
    ],
)
def test_what_it_takes_keeps_it(place, line, version):
    prepare(place)
    place.write("vllm.yaml", line)
    verdict = place.one(f'{ARGS}vllm_version = "{version}"', "settings.accepted")
    assert verdict.kept, verdict.note
    assert verdict.subject == "vllm.yaml"


def test_flags_nobody_knows_here_are_said_to_be_unchecked(place):
    prepare(place)
    place.write("vllm.yaml", "max-num-seqs: 1024\nsome-flag: 1")
    assert place.one(ARGS, "settings.accepted").found == "1 checked, 1 not known here"


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
    verdict = about(place, "KV cache")
    assert not verdict.kept
    assert (verdict.found_value, verdict.promised_value) == (4_608, 23_552)
