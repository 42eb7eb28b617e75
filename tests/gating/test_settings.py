"""[gate.settings]: committed settings beside what `recommend` says today."""

from dataclasses import replace

import pytest

from chunkscope.errors import InputError
from chunkscope.planning import simulator
from chunkscope.planning.emit import emit
from chunkscope.simulation.slo import read_slo
from chunkscope.vllm.enums import Target
from chunkscope.vllm.settings import Settings
from tests.build import LONG, MIXED, SHORT

TABLE = '[settings]\nfile = "vllm.yaml"\n'
EQUAL_TABLE = f'{TABLE}must_be = "equal"\n'
PLANNED = Settings(long_prefill_token_threshold=2_000, max_model_len=8_192)


def save_plan(place, lengths=MIXED, settings=PLANNED, **options):
    """A plan with these settings: what `recommend` would choose is not the point."""
    plan = place.save_plan(place.save_profile(data=lengths), **options)
    plan = replace(plan, settings=settings.over(plan.request.settings))
    plan.save(place.reports / "plan.json")
    return plan


def save_plan_for_limits(place, lengths, settings, slo):
    """A plan for requests that come by themselves, with limits on their latency."""
    plan = save_plan(place, lengths, settings)
    request = replace(plan.request, slo=read_slo(slo), arrivals="1/s", requests=200)
    plan = replace(plan, request=request)
    plan.save(place.reports / "plan.json")
    return plan


def commit(place, plan, **changed):
    """What was recommended, with these lines changed or added."""
    lines = []
    for line in emit(plan, Target.VLLM_YAML).text.splitlines():
        name = line.split(":")[0].replace("-", "_")
        if name not in changed:
            lines.append(line)
    for name, value in changed.items():
        lines.append(f"{name}: {value}")
    place.write("vllm.yaml", "\n".join([*lines, "port: 8000"]))


def as_good(place, subject):
    return place.one(TABLE, "settings.as-good", subject)


def equal(place, subject):
    return place.one(EQUAL_TABLE, "settings.equal", subject)


# -- what passes -----------------------------------------------------------------------


@pytest.mark.parametrize("must_be", ["equal", "as-good"])
@pytest.mark.parametrize(
    "lengths", [SHORT, MIXED, LONG], ids=["short", "mixed", "long"]
)
@pytest.mark.parametrize(
    ("target", "name"),
    [(Target.VLLM_YAML, "vllm.yaml"), (Target.VLLM_ARGS, "args.txt")],
)
def test_what_was_recommended_passes(place, lengths, must_be, target, name):
    plan = place.save_plan(place.save_profile(data=lengths))
    place.write(name, emit(plan, target).text)
    result = place.gate(f'[settings]\nfile = "{name}"\nmust_be = "{must_be}"')
    assert result.passed, result.failed


@pytest.mark.parametrize("must_be", ["equal", "as-good"])
def test_the_model_args_of_the_recommended_command_pass(place, must_be):
    plan = place.save_plan(place.save_profile(data=MIXED))
    words = emit(plan, Target.LM_EVAL).text.split()
    place.write("args.txt", words[words.index("--model_args") + 1])
    result = place.gate(f'[settings]\nfile = "args.txt"\nmust_be = "{must_be}"')
    assert result.passed, result.failed


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"max_num_seqs": 1_000, "max_model_len": 4_608}, id="as fast"),
        pytest.param({"dtype": "auto", "seed": 3, "port": 1}, id="without effect"),
    ],
)
def test_settings_that_do_as_well_are_as_good(place, changes):
    commit(place, save_plan(place), **changes)
    assert place.gate(TABLE).passed


# -- equal -----------------------------------------------------------------------------


def test_one_token_more_is_not_equal(place):
    commit(place, save_plan(place), max_model_len=8_193)
    check = equal(place, "max_model_len")
    assert (check.passed, check.limit, check.value) == (False, 8_192, 8_193)


def test_a_default_that_is_written_out_is_equal(place):
    commit(place, save_plan(place), max_num_batched_tokens=8_192, data_parallel_size=1)
    assert place.gate(EQUAL_TABLE).passed


# -- as good ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size"),
        ({"data_parallel_size": 2}, "data_parallel_size"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype"),
    ],
)
def test_other_gpus_and_another_kv_cache_are_not_as_good(place, changes, subject):
    commit(place, save_plan(place), **changes)
    assert not as_good(place, subject).passed


@pytest.mark.parametrize(
    "changes",
    [
        {"max_num_b": 512},
        {"max_num_seqs": 2},
        {"gpu_memory_utilization": 0.125},
    ],
)
def test_what_is_slower_is_not_as_good_and_its_arguments_are_named(place, changes):
    commit(place, save_plan(place), **changes)
    check = as_good(place, "simulation")
    assert not check.passed
    (name,) = changes
    assert any(changed.startswith(name) for changed in check.reason.values["names"])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"gpu_memory_utilization": 1.0}, "refused_utilization"),
        ({"max_num_batched_tokens": 4_000_000}, "refused_no_memory"),
        ({"gpu_memory_utilization": 0.12}, "refused_kv_cache"),
    ],
)
def test_what_does_not_fit_is_refused(place, changes, code):
    commit(place, save_plan(place), **changes)
    failed = place.gate(TABLE).failed
    refusals = [check for check in failed if check.name == "settings.accepted"]
    assert code in [check.reason.code for check in refusals]


def test_what_cannot_run_is_not_as_good(place):
    commit(place, save_plan(place), max_num_batched_tokens=4_000_000)
    check = as_good(place, "simulation")
    assert (check.passed, check.reason.code) == (False, "gate_cannot_run")


def test_likelihoods_that_would_run_out_of_memory_are_refused(place):
    settings = replace(PLANNED, max_model_len=16_384)
    plan = save_plan(place, LONG, settings, task="loglikelihood", model="qwen2.5-7b")
    commit(place, plan, gpu_memory_utilization=0.99)
    check = place.one(TABLE, "settings.accepted")
    assert (check.passed, check.reason.code) == (False, "refused_logprobs")


@pytest.mark.parametrize(
    ("context", "refused"),
    [
        pytest.param(4_256, 0, id="the longest prompt and its answer"),
        pytest.param(4_255, 1, id="one token less"),
    ],
)
def test_a_shorter_context_is_as_good_if_it_refuses_no_prompt(place, context, refused):
    commit(place, save_plan(place, max_output=256), max_model_len=context)
    check = as_good(place, "max_model_len")
    assert (check.passed, check.value) == (refused == 0, refused)


def test_a_plan_for_limits_is_judged_by_the_tightest_limit(place):
    """Requests at a rate take as long with any setting that keeps up."""
    settings = replace(PLANNED, max_model_len=16_384)
    plan = save_plan_for_limits(place, [12_000] * 40, settings, "itl_p99=5s")
    commit(place, plan, max_num_batched_tokens=65_536, long_prefill_token_threshold=0)
    larger_steps = as_good(place, "simulation")
    assert not larger_steps.passed
    assert larger_steps.value > larger_steps.limit
    commit(place, plan, max_num_seqs=1_000)
    assert as_good(place, "simulation").passed


@pytest.mark.parametrize(
    ("planned", "actual", "passed"),
    [
        pytest.param(0.9, 0.92, True, id="both keep it"),
        pytest.param(0.99, 1.01, False, id="only the plan keeps it"),
    ],
)
def test_a_limit_that_the_plan_keeps_may_not_break(
    place, monkeypatch, planned, actual, passed
):
    plan = save_plan_for_limits(place, [3_000] * 40, PLANNED, "itl_p99=5s")
    commit(place, plan, max_num_seqs=1_000)
    uses = {1_024: planned, 1_000: actual}
    monkeypatch.setattr(
        simulator.Simulator, "use", lambda _, settings: uses[settings.max_num_seqs]
    )
    assert as_good(place, "simulation").passed is passed


def test_without_a_gpu_only_the_plans_own_settings_pass(place):
    plan = place.save_plan(place.save_profile(data=MIXED), model=None, gpu=None)
    commit(place, plan)
    assert place.gate(TABLE).passed
    commit(place, plan, max_num_seqs=8)
    assert not as_good(place, "simulation").passed
    assert not equal(place, "max_num_seqs").passed


def test_a_plan_of_other_data_is_not_what_recommend_says_today(place):
    commit(place, save_plan(place))
    assert place.gate(TABLE).passed
    place.save_profile(data=[5, 6])
    result = place.gate(TABLE)
    assert not result.passed
    assert all(check.cause.code == "made_from_another" for check in result.failed)


# -- what nobody judges ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("num-gpu-blocks-override: 2", "num_gpu_blocks_override"),
        ("quantization: fp8", "quantization"),
        ("pipeline-parallel-size: 8", "pipeline_parallel_size"),
        ("speculative-config: {method: ngram}", "speculative_config"),
        ("enforce-e: true", "enforce_eager"),
        ("model: another/model", "model"),
    ],
)
def test_what_nobody_judges_has_to_be_allowed(place, line, name):
    commit(place, save_plan(place))
    place.write("vllm.yaml", (place.folder / "vllm.yaml").read_text() + f"\n{line}\n")
    (check,) = place.gate(TABLE).failed
    assert (check.name, check.subject) == ("settings.allow", name)
    allowed = place.gate(f'{TABLE}allow = ["{name.replace("_", "-")}"]')
    assert allowed.passed
    reasons = [c.reason for c in allowed.checks if c.name == "settings.allow"]
    assert reasons == [None]


@pytest.mark.parametrize(
    ("model", "is_planned"),
    [
        ("llama-3.1-8b", True),
        ("meta-llama/Llama-3.1-8B-Instruct", True),
        ("meta-llama/Llama-3.1-70B-Instruct", False),
        ("other/llama-3.1-8b", False),
    ],
)
def test_another_model_than_the_plans_fails(place, model, is_planned):
    flags = emit(save_plan(place), Target.VLLM_ARGS).text
    place.write("args.txt", f"vllm serve {model} {flags}")
    failed = place.gate('[settings]\nfile = "args.txt"').failed
    assert [check.subject for check in failed] == ([] if is_planned else ["model"])


def test_a_judged_argument_cannot_be_allowed(place):
    commit(place, save_plan(place))
    with pytest.raises(InputError, match="max_num_seqs is compared with the plan"):
        place.gate(f'{TABLE}allow = ["max-num-seqs"]')


# -- versions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version", "accepted"),
    [
        pytest.param("max-num-partial-prefills: 4", "0.27", False, id="never worked"),
        pytest.param("max-num-active-seqs: 8", "0.30", False, id="not yet there"),
        pytest.param("max-num-active-seqs: 8", "0.31", True, id="there"),
        pytest.param("config: other.yaml", "0.24", False, id="a second file"),
        pytest.param(
            "max-num-batched-tokens: 64\nmax-num-seqs: 65", "0.24", False, id="too many"
        ),
        pytest.param("{}", "0.24", True, id="nothing"),
    ],
)
def test_what_the_named_version_refuses_fails(place, text, version, accepted):
    save_plan(place)
    place.write("vllm.yaml", text)
    result = place.gate(f'{TABLE}vllm_version = "{version}"')
    checks = [check for check in result.checks if check.name == "settings.accepted"]
    assert checks
    for check in checks:
        assert (check.passed, check.limit) == (accepted, version)


def test_a_flag_of_a_vllm_newer_than_those_known_has_to_be_allowed(place):
    commit(place, save_plan(place), brand_new_flag=3)
    newer = f'{TABLE}vllm_version = "0.99"\n'
    assert "brand_new_flag" in {check.subject for check in place.gate(TABLE).failed}
    (check,) = place.gate(newer).failed
    assert (check.name, check.subject) == ("settings.allow", "brand_new_flag")
    assert place.gate(f'{newer}allow = ["brand-new-flag"]').passed


# -- remedies and mistakes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "end"),
    [
        ("vllm.yaml", "max-num-seqs: 2", "--emit vllm-yaml > {path}"),
        ("args.txt", "vllm serve m --max-num-seqs 2", "--emit vllm-args"),
        ("args.txt", "max_num_seqs=2", "--emit lm-eval"),
    ],
)
def test_the_remedy_writes_yaml_and_overwrites_nothing_else(place, name, text, end):
    save_plan(place)
    path = place.write(name, text)
    failed = place.gate(f'[settings]\nfile = "{name}"').failed
    remedies = {check.remedy for check in failed if check.name != "settings.allow"}
    assert remedies == {f"chunkscope recommend {end.format(path=path)}"}


def test_a_script_is_an_error_that_names_it(place):
    save_plan(place)
    place.write("start.sh", "set -e\nvllm serve llama-3.1-8b --max-num-seqs 2")
    with pytest.raises(InputError, match=r"start\.sh is neither"):
        place.gate('[settings]\nfile = "start.sh"')


@pytest.mark.parametrize(
    "line", ['must_be = "better"', 'vllm_version = "new"', "threshold = 3"]
)
def test_a_wrong_line_is_an_error_that_names_the_table(place, line):
    save_plan(place)
    place.write("vllm.yaml", "max-num-seqs: 8")
    with pytest.raises(InputError, match="settings"):
        place.gate(f"{TABLE}{line}")
