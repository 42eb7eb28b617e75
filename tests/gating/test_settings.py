"""[gate.settings]: committed engine arguments against what `recommend` says today."""

from dataclasses import replace

import pytest

from chunkscope.errors import InputError
from chunkscope.planning import simulator
from chunkscope.planning.emit import emit
from chunkscope.simulation.slo import read_slo
from chunkscope.vllm.enums import Target
from chunkscope.vllm.settings import Settings
from tests.build import LONG, MIXED, SHORT

ARGS = '[settings]\nfile = "vllm.yaml"\n'
AS_GOOD, EQUAL = "settings.as-good", "settings.equal"
TIME = "simulation"
PINNED = Settings(long_prefill_token_threshold=2_000, max_model_len=8_192)


def prepare(place, lengths=MIXED, pinned=PINNED, slo=None, **options):
    """A profile, and a plan with these settings: what `recommend` would choose is not the point."""
    plan = place.save_plan(place.save_profile(data=lengths), **options)
    if slo:  # limits for requests that come by themselves
        request = replace(plan.request, slo=read_slo(slo), arrivals="1/s", requests=200)
        plan = replace(plan, request=request)
    plan = replace(plan, settings=pinned.over(plan.request.settings))
    plan.save(place.reports / "plan.json")
    return plan


def commit(place, plan, **changed):
    """What was recommended, with a line changed or (None) taken out."""
    lines = emit(plan, Target.VLLM_YAML).text.splitlines()
    rest = [x for x in lines if x.split(":")[0].replace("-", "_") not in changed]
    new = [f"{name}: {value}" for name, value in changed.items() if value is not None]
    place.write("vllm.yaml", "\n".join([*rest, *new, "port: 8000"]))


def about(place, subject, name=AS_GOOD):
    must_be = name.removeprefix("settings.")
    return place.one(f'{ARGS}must_be = "{must_be}"\n', name, subject)


@pytest.mark.parametrize("must_be", ["equal", "as-good"])
@pytest.mark.parametrize(
    "lengths", [SHORT, MIXED, LONG], ids=["short", "mixed", "long"]
)
@pytest.mark.parametrize(
    ("target", "name"),
    [
        *(
            (Target.VLLM_YAML, "vllm.yaml"),
            (Target.VLLM_ARGS, "a.txt"),
            (Target.LM_EVAL, "b.txt"),
        ),
        *((Target.KUBERNETES, "c.yaml"), (Target.DOCKER_COMPOSE, "d.yml")),
    ],
)
def test_what_was_recommended_passes(place, lengths, must_be, target, name):
    plan = place.save_plan(place.save_profile(data=lengths))
    place.write(name, emit(plan, target).text)
    result = place.gate(f'[settings]\nfile = "{name}"\nmust_be = "{must_be}"')
    assert result.passed, result.failed


def test_one_token_more_is_not_equal_and_a_default_written_out_is(place):
    plan = prepare(place)
    commit(place, plan, max_model_len=8_193)
    check = about(place, "max_model_len", EQUAL)
    assert (check.passed, check.limit, check.value) == (False, 8_192, 8_193)
    commit(place, plan, max_num_batched_tokens=8_192)
    assert about(place, "max_num_batched_tokens", EQUAL).passed
    commit(place, plan, data_parallel_size=1)
    assert place.gate(f'{ARGS}must_be = "equal"').passed, (
        "one replica is what there is anyway"
    )
    commit(place, plan, data_parallel_size=2)
    assert about(place, "data_parallel_size", EQUAL).value == 2


def test_what_is_as_fast_as_the_plan_or_changes_nothing_is_as_good(place):
    commit(place, prepare(place), max_num_seqs=1_000, max_model_len=4_608)
    assert place.gate(ARGS).passed
    commit(place, prepare(place), dtype="auto", seed=3, port=1)
    assert place.gate(ARGS).passed


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"gpu_memory_utilization": 1.0}, "memory"),
        ({"max_num_batched_tokens": 4_000_000}, "memory"),
        ({"max_num_b": 512}, TIME),
        ({"max_num_seqs": 2}, TIME),
        ({"gpu_memory_utilization": 0.125}, TIME),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype"),
    ],
)
def test_what_does_not_fit_or_is_slower_or_another_engine_is_not_as_good(
    place, changes, subject
):
    commit(place, prepare(place), **changes)
    check = about(place, subject)
    assert not check.passed
    if subject == TIME:
        assert any(
            name.startswith(tuple(changes)) for name in check.reason.values["names"]
        )


def test_a_shorter_context_that_refuses_no_prompt_is_as_good(place):
    plan = prepare(place, max_output=256)
    commit(place, plan, max_model_len=4_256)
    assert about(place, "max_model_len").passed
    commit(place, plan, max_model_len=4_255)
    assert (
        about(place, "max_model_len").passed,
        about(place, "max_model_len").value,
    ) == (False, 1)


def test_for_likelihoods_what_is_not_profiled_must_fit(place):
    pinned = replace(PINNED, max_model_len=16_384)
    plan = prepare(place, LONG, pinned, task="loglikelihood", model="qwen2.5-7b")
    commit(place, plan, gpu_memory_utilization=0.99)
    assert about(place, "memory").reason.code == "gate_logprobs_do_not_fit"


def test_a_plan_for_limits_is_judged_by_the_tightest_limit(place):
    """Requests that come by themselves take as long with any setting that keeps up."""
    pinned = replace(PINNED, max_model_len=16_384)
    plan = prepare(place, [12_000] * 40, pinned, slo="itl_p99=5s")
    commit(place, plan, max_num_batched_tokens=65_536, long_prefill_token_threshold=0)
    larger = about(place, TIME)
    assert not larger.passed
    assert larger.value > larger.limit
    commit(place, plan, max_num_seqs=1_000)
    assert about(place, TIME).passed


@pytest.mark.parametrize(
    ("planned", "actual", "passed"), [(0.9, 0.92, True), (0.99, 1.01, False)]
)
def test_a_limit_that_the_plan_keeps_may_not_break(
    place, monkeypatch, planned, actual, passed
):
    plan = prepare(place, [3_000] * 40, slo="itl_p99=5s")
    commit(place, plan, max_num_seqs=1_000)
    uses = {1_024: planned, 1_000: actual}
    monkeypatch.setattr(
        simulator.Simulator, "used", lambda _, one: uses[one.max_num_seqs]
    )
    assert about(place, TIME).passed is passed


def test_without_a_gpu_only_the_plans_own_settings_are_as_good(place):
    plan = place.save_plan(place.save_profile(data=MIXED), model=None, gpu=None)
    commit(place, plan)
    assert place.gate(ARGS).passed
    commit(place, plan, max_num_seqs=8)
    for subject in ("memory", "simulation"):
        assert not about(place, subject).passed
    assert not about(place, "max_num_seqs", EQUAL).passed


def test_a_plan_of_other_data_is_not_what_recommend_says_today(place):
    commit(place, prepare(place))
    assert place.gate(ARGS).passed
    place.save_profile(data=[5, 6])
    result = place.gate(ARGS)
    assert not result.passed
    assert all(check.cause.code == "made_from_another" for check in result.failed)


def test_what_is_offered_writes_yaml_and_overwrites_no_script(place):
    prepare(place)
    for name, text, end in (
        ("vllm.yaml", "max-num-seqs: 2", "--emit vllm-yaml > {}"),
        ("start.sh", "vllm serve llama-3.1-8b --max-num-seqs 2", "--emit vllm-args"),
        ("eval.sh", "lm_eval -M vllm -b auto -a max_num_seqs=2", "--emit lm-eval"),
    ):
        path = place.write(name, text)
        offered = {
            check.remedy for check in place.gate(f'[settings]\nfile = "{name}"').failed
        }
        assert len(offered) == 1
        assert offered.pop().endswith(end.format(path))


UNJUDGED = (
    "num-gpu-blocks-override: 2",
    "quantization: fp8",
    "pipeline-parallel-size: 8",
)
UNJUDGED += (
    "speculative-config: {method: ngram}",
    "enforce-e: true",
    "model: another/model",
)


@pytest.mark.parametrize("line", UNJUDGED)
def test_what_nobody_judges_has_to_be_allowed(place, line):
    name = line.partition(":")[0]
    name = {"enforce-e": "enforce-eager"}.get(name, name)
    commit(place, prepare(place))
    place.write("vllm.yaml", (place.folder / "vllm.yaml").read_text() + f"\n{line}\n")
    (check,) = place.gate(ARGS).failed
    assert (check.name, check.subject) == ("settings.allow", name.replace("-", "_"))
    result = place.gate(f'{ARGS}allow = ["{name}"]')
    assert result.passed
    assert [c.reason for c in result.checks if c.name == check.name] == [None]


def test_another_model_fails(place):
    words = emit(prepare(place), Target.VLLM_ARGS).text
    others = ("Instruct", 70), ("$MODEL", 0), ("other/llama-3.1-8b", 0)
    for model, size in (("llama-3.1-8b", 8), ("Instruct", 8), *others):
        name = (
            f"meta-llama/Llama-3.1-{size}B-Instruct" if model == "Instruct" else model
        )
        place.write("a.txt", f"vllm serve {name} {words}")
        result = place.gate('[settings]\nfile = "a.txt"')
        assert [check.subject for check in result.failed] == (
            [] if size == 8 else ["model"]
        )


@pytest.mark.parametrize(
    ("line", "version", "accepted"),
    [
        ("max-num-partial-prefills: 4", "0.27", False),
        ("max-num-active-seqs: 8", "0.30", False),
        ("max-num-active-seqs: 8", "0.31", True),
        ("config: other.yaml", "0.24", False),
        ("max-num-batched-tokens: 64\nmax-num-seqs: 65", "0.24", False),
        ("{}", "0.24", True),
    ],
)
def test_what_the_named_version_refuses_fails_and_nothing_else(
    place, line, version, accepted
):
    prepare(place)
    place.write("vllm.yaml", line)
    result = place.gate(f'{ARGS}vllm_version = "{version}"')
    checks = [check for check in result.checks if check.name == "settings.accepted"]
    assert all(check.passed is accepted and check.limit == version for check in checks)
    assert checks


def test_a_flag_of_a_vllm_newer_than_those_known_has_to_be_allowed(place):
    commit(place, prepare(place))
    place.write(
        "vllm.yaml", (place.folder / "vllm.yaml").read_text() + "\nbrand-new-flag: 3\n"
    )
    newer = f'{ARGS}vllm_version = "0.99"\n'
    assert "brand_new_flag" in {check.subject for check in place.gate(ARGS).failed}
    (check,) = place.gate(newer).failed
    assert (check.name, check.subject) == ("settings.allow", "brand_new_flag")
    assert place.gate(f'{newer}allow = ["brand-new-flag"]').passed


def test_no_plan_and_a_wrong_table_are_errors(place):
    place.save_profile(data=MIXED)
    place.write("vllm.yaml", "max-num-seqs: 8")
    with pytest.raises(InputError, match=r"plan\.json"):
        place.gate(ARGS)
    prepare(place)
    wrong = ('must_be = "better"', 'vllm_version = "new"', "threshold = 3")
    for line in (*wrong, 'allow = ["max-num-seqs"]'):  # which is judged
        with pytest.raises(InputError, match="settings"):
            place.gate(f"{ARGS}{line}")
