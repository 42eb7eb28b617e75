import dataclasses
import subprocess
import sys

import pytest
from chunkscope.planning.policy import Cuts, Rate
from chunkscope.report.sentences import refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chunkscope.artefacts.labels import Label
from chunkscope.errors import InputError, MissingError, UsageError
from chunkscope.lengths.analyze import analyze
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.models import find_model
from chunkscope.planning.problem import WORTH
from chunkscope.planning.recommend import recommend
from chunkscope.prefixes.reuse import PrefixReuse
from chunkscope.prompts.harness.log import LONGEST_FIRST, LogSummary
from chunkscope.vllm.enums import Entry, Mode, Objective, SendOrder, Task
from chunkscope.vllm.flags import NEWEST, command_line, dotted
from tests.build import FITTING, LONG, MIXED, SHORT, advised, dataset, plan, profile
from tests.conftest import REPOSITORY

VERSIONS = [
    "0.10.2",
    "0.11.0",
    "0.11.1",
    "0.16.0",
    "0.20.0",
    "0.24.0",
    "0.27.0",
    "0.28.0",
    "0.32.0",
]


# -- off ---------------------------------------------------------------------------------------


def test_off_comes_with_a_budget_of_at_least_max_model_len_and_no_threshold():
    made = plan(SHORT)
    assert made.mode is Mode.OFF
    assert made.settings.enable_chunked_prefill is False
    assert made.settings.max_num_batched_tokens >= made.settings.max_model_len
    assert made.settings.long_prefill_token_threshold is None


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0"])
def test_a_version_that_ignores_off_is_told_the_truth(version):
    made = plan(SHORT, vllm_version=version)
    assert made.mode is Mode.OFF
    assert made.settings.enable_chunked_prefill is None
    assert made.settings.max_num_batched_tokens >= made.settings.max_model_len
    assert any("ignores" in loss for loss in made.lost)


def test_off_that_does_not_fit_becomes_conservative_and_says_why():
    made = plan([900] * 100, model="llama-3.1-8b", gpu=None, gpu_memory="17GiB",
                max_output=1_000)  # fmt: skip
    assert made.decision.mode is Mode.OFF
    assert made.mode is Mode.CONSERVATIVE
    assert "unchunked step" in made.adjustments[0].text


def test_off_that_does_not_fit_and_was_asked_for_is_a_contradiction():
    with pytest.raises(UsageError, match="--mode off is not possible"):
        plan(LONG, mode=Mode.OFF, gpu=None, gpu_memory="19GiB")


def test_off_for_long_prompts_can_be_forced_where_it_fits():
    made = plan(LONG, mode=Mode.OFF)
    assert made.mode is Mode.OFF
    assert made.settings.max_num_batched_tokens >= made.settings.max_model_len > 14_000
    assert "the policy says aggressive" in made.decision.reason


def test_a_model_with_mamba_like_layers_keeps_chunking_where_vllm_requires_it():
    hybrid = dataclasses.replace(
        find_model("llama-3.1-8b"),
        attention=dataclasses.replace(find_model("llama-3.1-8b").attention, stateful_layers=24),
    )
    assert plan(SHORT, model=hybrid, vllm_version="0.25.0").mode is Mode.OFF
    made = plan(SHORT, model=hybrid, vllm_version="0.26.0")
    assert made.mode is Mode.CONSERVATIVE
    assert "mamba" in made.adjustments[0].text


# -- chunking ----------------------------------------------------------------------------------


def test_what_vllm_does_by_itself_is_left_to_it():
    """H200 and Llama-3.1-8B: serve's own 8192 is the budget that was measured to be enough."""
    made = advised(FITTING)
    budget = made.argument("max_num_batched_tokens")
    assert (budget.value, budget.default, budget.set) == (8_192, 8_192, False)
    assert "by itself" in budget.reason
    assert made.settings.given() == {}
    assert made.advice.startswith("Change nothing: ")


def test_a_setting_under_which_the_cache_overflows_is_lowered():
    """Prompts are read so fast that the KV cache runs over, and some are read again: fewer at once
    or less in a step, whichever the model of step times finds better, keeps that from happening."""
    made = advised(MIXED, max_output=512)
    budget, seqs = map(made.argument, ("max_num_batched_tokens", "max_num_seqs"))
    assert budget.set or seqs.set
    assert (budget.value, seqs.value) < (budget.default, seqs.default) == (8_192, 1_024)
    assert made.forecast.gain >= WORTH


def test_a_budget_that_pays_is_set_over_a_small_default():
    made = advised(MIXED, model="qwen2.5-1.5b", gpu="a100")
    budget = made.argument("max_num_batched_tokens")
    assert budget.default == 2_048
    assert budget.value > 2_048
    assert budget.set
    assert budget.label is Label.PREDICTED


def test_a_default_that_does_not_fit_is_lowered():
    made = plan(MIXED, model="llama-3.1-8b", gpu=None, gpu_memory="17.7GiB", entry=Entry.LLM)
    assert made.argument("max_num_batched_tokens").default == 8_192
    assert made.settings.max_num_batched_tokens < 8_192
    assert made.memory.holds(made.settings.max_model_len)


def test_a_threshold_is_set_only_where_it_bites():
    assert plan(MIXED).settings.long_prefill_token_threshold == 2_048
    nobody = plan([1_500] * 10)
    assert nobody.settings.long_prefill_token_threshold is None
    assert "no prompt" in nobody.argument("long_prefill_token_threshold").reason
    capped = plan(LONG)  # 0.8 x p95 is over the budget of 8192
    assert capped.settings.long_prefill_token_threshold is None
    assert "ends a chunk before" in capped.argument("long_prefill_token_threshold").reason
    assert capped.chunks.size == 8_192


def test_the_chunks_of_the_plan_follow_its_arguments():
    made = plan(MIXED)
    assert (made.chunks.size, made.chunks.prompts, made.chunks.rate) == (2_048, 21, Rate.SELECTIVE)
    assert (made.chunks.median, made.chunks.longest) == (2, 2)


def test_cut_offs_reach_the_plan():
    made = plan(MIXED, cuts=Cuts(conservative_threshold=1_500))
    assert made.decision.threshold == 1_500
    assert made.settings.long_prefill_token_threshold == 1_500


def test_fewer_requests_where_that_frees_kv_cache():
    made = plan([6_000] * 50, model="gemma-2-9b", gpu="l4", max_output=64)
    seqs = made.argument("max_num_seqs")
    assert seqs.value < seqs.default == 256


def test_a_step_is_never_larger_than_what_the_running_requests_can_fill():
    """vLLM warns of such a budget, and lowers its own default the same way."""
    made = advised([100] * 5_000, model="gpt2", gpu="b200", entry=Entry.OTHER, max_output=1)
    budget, seqs = (made.argument(n).value for n in ("max_num_batched_tokens", "max_num_seqs"))
    assert 2_048 < budget <= seqs * 256


# -- lengths and outputs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("longest", "output", "expected"),
    [
        (100, 256, 512),
        (1_000, 24, 1_024),
        (1_000, 25, 1_280),
        (9_000, 100, 9_216),
        (70_000, 1, 73_728),
    ],
)
def test_max_model_len_holds_prompt_and_output_rounded_up(longest, output, expected):
    assert plan([longest], max_output=output).settings.max_model_len == expected


def test_refused_prompts_are_counted_exactly():
    lengths = [*[100] * 14_039, 32_512, 32_513, 32_514, 40_000]
    made = plan(lengths, model="qwen2.5-7b-instruct", max_output=256)
    assert made.argument("max_model_len").value == 32_768
    assert not made.argument("max_model_len").set
    assert (made.refused.prompts, made.refused.of, made.refused.room_tokens) == (3, 14_043, 32_512)
    assert made.refused.too_long == 1, "the others leave room for fewer tokens than asked for"
    said = refused(made)
    assert "1 of 14,043 prompts (<0.1 %) fill the context of 32,768 tokens or are longer" in said
    assert "2 of 14,043 prompts (<0.1 %) are over 32,512 tokens" in said
    assert "no room for 256 output tokens: a server refuses them" in said


def test_a_context_that_is_set_says_what_it_does_even_where_it_does_nothing():
    made = advised(SHORT, gpu="l4")
    assert made.settings.max_model_len
    assert refused(made).startswith("No prompt is refused, cut or stopped early")
    assert refused(made).endswith("for 256 output tokens (assumed).")
    assert refused(plan(SHORT, model=None, gpu=None, max_model_len=None)) is None, "nobody knows"


def test_every_prompt_over_the_limit_is_an_input_error():
    for made in (plan, advised):
        with pytest.raises(InputError, match="every prompt is longer"):
            made([5_000, 6_000], model="llama-2-7b")


def test_an_output_over_the_limit_is_a_usage_error():
    with pytest.raises(UsageError, match="no room for a prompt"):
        plan([100], model="llama-2-7b", max_output=4_096)


@pytest.mark.parametrize(
    ("outputs", "asked", "tokens", "origin"),
    [
        ((None,), None, 256, "assumed"),
        (([10, 700],), None, 700, "data"),
        (([10, 20],), None, 20, "data"),
        (([10, 20], None), None, 256, "assumed"),
        (([700], None), None, 700, "data"),
        (([700],), 64, 64, "--max-output"),
    ],
)
def test_room_for_the_output_is_asked_for_or_in_the_data_or_256(outputs, asked, tokens, origin):
    sets = tuple(
        dataset(f"d{i}", [100], output_lengths=LengthHistogram.of(x) if x else None)
        for i, x in enumerate(outputs)
    )
    made = recommend(dataclasses.replace(profile(), datasets=sets), max_output=asked)
    assert made.inputs.output.tokens == tokens
    assert origin in made.inputs.output.origin


# -- datasets ----------------------------------------------------------------------------------


def test_the_plan_is_for_all_datasets_unless_one_is_picked():
    data = profile(short=SHORT, mixed=MIXED, long=LONG)
    together = recommend(data)
    assert [d.decision.mode for d in together.decisions] == [
        Mode.OFF, Mode.CONSERVATIVE, Mode.AGGRESSIVE,
    ]  # fmt: skip
    assert sum(d.share_of_prompts for d in together.decisions) == pytest.approx(1)
    assert sum(d.share_of_tokens for d in together.decisions) == pytest.approx(1)
    assert together.mode is Mode.AGGRESSIVE
    assert recommend(data, dataset="short").mode is Mode.OFF
    assert recommend(data, dataset="mixed").mode is Mode.CONSERVATIVE


def test_an_unknown_dataset_names_the_nearest():
    with pytest.raises(UsageError) as error:
        recommend(profile(gsm8k=SHORT), dataset="gsm8")
    assert "gsm8k" in error.value.hint


@pytest.mark.parametrize("data", [profile(), profile(empty=[])])
def test_a_profile_without_prompts_is_an_input_error(data):
    with pytest.raises(InputError, match="no prompts"):
        recommend(data)


# -- without model or GPU ----------------------------------------------------------------------


def test_without_model_and_gpu_what_is_not_known_is_none():
    made = plan(MIXED, model=None, gpu=None)
    assert (made.memory, made.capacity, made.step, made.model, made.gpu) == (None,) * 5
    assert made.argument("max_num_batched_tokens").value is None
    assert made.settings.given() == {"max_model_len": 4_352, "long_prefill_token_threshold": 2_048}


def test_off_without_a_gpu_still_names_its_budget():
    made = plan(SHORT, model=None, gpu=None, mode=Mode.OFF)
    assert made.settings.max_num_batched_tokens == 8_192
    assert made.settings.enable_chunked_prefill is False


def test_short_prompts_without_a_gpu_change_nothing():
    made = advised(SHORT, model=None, gpu=None)
    assert made.settings.given() == {}
    assert made.advice.startswith("Change nothing: the longest prompt has 419 tokens")


def test_a_gpu_of_unknown_speed_keeps_vllms_own_budget():
    made = plan(MIXED, gpu=None, gpu_memory="40GiB")
    assert made.step is None
    assert made.settings.max_num_batched_tokens is None, "nothing says that another would pay"
    assert "speed is not known" in made.argument("max_num_batched_tokens").reason


def test_a_gpu_of_unknown_speed_gets_the_largest_budget_that_fits():
    made = plan(LONG, gpu=None, gpu_memory="19GiB", entry=Entry.LLM)
    assert made.settings.max_num_batched_tokens == 4_096
    assert "8,192 does not fit" in made.argument("max_num_batched_tokens").reason


# -- memory ------------------------------------------------------------------------------------


def test_a_model_that_cannot_fit_says_how_many_gpus_would():
    with pytest.raises(InputError, match="does not fit") as error:
        plan(MIXED, model="llama-3.1-70b", gpu="h100")
    assert "--tp 2" in error.value.hint


def test_a_cache_too_small_for_one_request_is_an_input_error():
    with pytest.raises(InputError, match="KV cache"):
        plan([100_000], model="llama-3.1-8b", gpu="l4")


def test_heads_that_do_not_divide_are_a_usage_error():
    with pytest.raises(UsageError, match="cannot be split"):
        plan(MIXED, tp=3)


def test_tensor_parallel_is_part_of_the_arguments():
    assert plan(MIXED, model="llama-3.1-70b", tp=2).settings.tensor_parallel_size == 2
    assert plan(MIXED).settings.tensor_parallel_size is None


def test_capacity_counts_requests_of_each_length():
    made = plan(MIXED)
    tokens = made.memory.kv_cache_tokens
    assert made.capacity.longest == tokens // (4_000 + 256)
    assert made.capacity.p50 > made.capacity.p95 > made.capacity.longest


# -- likelihood evals --------------------------------------------------------------------------


def test_a_likelihood_eval_on_the_v1_runner_gets_a_chunk_whose_logits_fit():
    made = plan(LONG, model="qwen2.5-7b", gpu="h100", task=Task.LOGLIKELIHOOD)
    assert made.settings.long_prefill_token_threshold < made.threshold
    assert made.memory.survives_logprobs
    assert "logits" in made.argument("long_prefill_token_threshold").reason
    unsafe = plan(LONG, model="qwen2.5-7b", gpu="h100")
    assert unsafe.settings.long_prefill_token_threshold is None


def test_short_prompts_whose_logits_do_not_fit_unchunked_are_chunked():
    made = plan([950] * 40, model="qwen2.5-7b", gpu=None, gpu_memory="17.5GiB",
                task=Task.LOGLIKELIHOOD, vllm_version="0.16.0")  # fmt: skip
    assert made.decision.mode is Mode.OFF
    assert made.mode is Mode.CONSERVATIVE
    assert "logits" in made.adjustments[0].text
    assert made.memory.survives_logprobs


def test_the_v2_runner_needs_no_smaller_chunk():
    made = plan(LONG, model="llama-3.1-8b", gpu="h100", task=Task.LOGLIKELIHOOD)
    assert made.memory.line("logprobs").gib < 1


def test_utilization_is_lowered_as_a_last_resort():
    made = plan([300] * 50, model="gemma-2-2b", gpu=None, gpu_memory="9GiB", mode=Mode.CONSERVATIVE,
                task=Task.LOGLIKELIHOOD, vllm_version="0.16.0")  # fmt: skip
    assert made.settings.gpu_memory_utilization < 0.9
    assert made.memory.survives_logprobs


# -- latency -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [30, 60, 120, 500])
def test_the_slowest_step_stays_under_the_limit(limit):
    made = plan(MIXED, objective=Objective.LATENCY, max_itl_ms=limit)
    assert made.step.slowest_step_ms <= limit
    assert "estimate" in made.argument("max_num_batched_tokens").reason


def test_a_looser_limit_allows_a_larger_budget():
    budgets = [
        plan(MIXED, objective=Objective.LATENCY, max_itl_ms=ms)
        .argument("max_num_batched_tokens")
        .value
        for ms in (30, 60, 120, 500)
    ]
    assert budgets == sorted(budgets)
    assert budgets[0] < budgets[-1]


def test_a_limit_no_step_can_meet_is_a_usage_error():
    with pytest.raises(UsageError, match="cannot be met") as error:
        plan(MIXED, objective=Objective.LATENCY, max_itl_ms=5)
    assert "allow at least" in error.value.hint


def test_off_gives_way_to_latency():
    made = plan(SHORT, model="llama-3.1-8b", gpu="l4", objective=Objective.LATENCY, max_itl_ms=200)
    assert made.decision.mode is Mode.OFF
    assert made.settings.enable_chunked_prefill is None, "left on"
    assert made.step.slowest_step_ms <= 200


@pytest.mark.parametrize(
    "options",
    [
        {"objective": Objective.LATENCY},
        {"objective": Objective.LATENCY, "max_itl_ms": 0},
        {"objective": Objective.LATENCY, "max_itl_ms": 50, "model": None},
        {"objective": Objective.LATENCY, "max_itl_ms": 50, "gpu": None, "gpu_memory": "80GiB"},
        {"max_itl_ms": 50},
        {"max_output": 0},
        {"tp": 0},
        {"tp": 0, "model": None},
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(options):
    with pytest.raises(UsageError):
        plan(MIXED, **options)


def test_an_unknown_model_is_something_missing():
    with pytest.raises(MissingError):
        plan(MIXED, model="no-such-model")


# -- everything --------------------------------------------------------------------------------

MODELS = ["llama-3.1-8b", "qwen2.5-7b-instruct", "gemma-2-9b", "qwen3-30b-a3b", "deepseek-v2-lite"]
lengths = st.lists(st.integers(0, 30_000), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lengths=lengths,
    version=st.sampled_from(VERSIONS),
    model=st.sampled_from([None, *MODELS]),
    gpu=st.sampled_from([None, "h200", "h100", "a100", "l40s", "rtx-4090", "b200"]),
    mode=st.sampled_from([None, *Mode]),
    task=st.sampled_from(Task),
    itl=st.sampled_from([None, 20, 100, 1_000]),
    output=st.integers(1, 2_000),
    entry=st.sampled_from(Entry),
)
def test_any_plan_is_one_its_vllm_accepts(
    lengths, version, model, gpu, mode, task, itl, output, entry
):
    aim = {"objective": Objective.LATENCY, "max_itl_ms": itl} if itl else {}
    try:
        made = plan(lengths, model=model, gpu=gpu, vllm_version=version, mode=mode, task=task,
                    max_output=output, entry=entry, **aim)  # fmt: skip
    except (UsageError, InputError):
        return
    assert made.deployment.refusals(made.settings) == ()
    command_line(made.settings, made.release.version)  # every argument is known to that version
    if made.memory:
        assert made.memory.holds(made.argument("max_model_len").value)
    off = made.settings.enable_chunked_prefill is False
    if off:
        assert made.settings.max_num_batched_tokens >= made.argument("max_model_len").value
        assert made.settings.long_prefill_token_threshold is None
    room = made.argument("max_model_len").value - output
    assert made.refused.prompts == sum(length > room for length in lengths)


def test_recommend_loads_no_heavy_library():
    code = (
        "import sys; from chunkscope.vllm import check;"
        "from chunkscope.planning import emit, predict, recommend;"
        "heavy = {'torch', 'vllm', 'transformers', 'datasets', 'pandas', 'huggingface_hub'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_newest_known_version_is_the_default_without_vllm(monkeypatch):
    monkeypatch.setattr("chunkscope.vllm.flags.installed_version", lambda: None)
    made = plan(MIXED, vllm_version=None)
    assert made.release.text == dotted(NEWEST)
    assert any("no vLLM is installed" in warning for warning in made.warnings)


def test_scored_requests_have_no_answer_to_assume() -> None:
    """A log of a task that generates and one that scores choices."""
    logged = analyze(REPOSITORY / "reports" / "example" / "lm_eval")
    made = recommend(logged, model="mistral-nemo-12b", gpu="h100")
    assert made.inputs.output.origin == "the longest output in the data"
    scored = recommend(logged, model="mistral-nemo-12b", gpu="h100", dataset="knowledge_quiz")
    assert (scored.inputs.output.tokens, scored.refused.prompts) == (1, 0)
    assert not [line for line in scored.warnings if "finds them in vLLM's prefix cache" in line]


def few_shot_profile(shared: int, *, unread: int = 0):
    """Forty prompts of 400 tokens, of which an earlier one has so many."""
    reuse = PrefixReuse(
        prompts=40,
        tokens=16_000,
        common_tokens=0,
        cached_tokens=40 * shared,
        best_order_cached_tokens=40 * shared,
        working_set_tokens=16_000,
        unread_tokens=40 * unread,
    )
    made = dataset("a", [400] * 40, prefixes=reuse)
    return dataclasses.replace(profile(a=[400]), datasets=(made,))


@pytest.mark.parametrize(
    ("made", "options", "said"),
    [
        (few_shot_profile(300), {}, "75 % of the prompts' tokens are those of an earlier prompt: "),
        (few_shot_profile(10), {}, None),
        (few_shot_profile(0, unread=300), {}, "; vLLM reads them again"),
        (few_shot_profile(300), {"task": Task.LOGLIKELIHOOD}, "; vLLM reads them again"),
        (few_shot_profile(300), {"shared_prefix": 64}, "begin with the same 64 tokens: "),
        (few_shot_profile(300), {"shared_prefix": 0}, None),
    ],
)
def test_the_plan_says_what_prompts_share_and_that_it_counts(made, options, said):
    notes = " ".join(recommend(made, model="qwen3-8b", gpu="h200", **options).warnings)
    assert (said in notes) if said else ("earlier prompt" not in notes)


@pytest.mark.parametrize(
    ("options", "said"), [({}, "as lm-eval sends"), ({"order": "longest"}, "as asked")]
)
def test_the_plan_says_that_requests_are_sent_longest_first(options, said):
    log = LogSummary(harness="lm-eval", documents=40, requests=40, order=LONGEST_FIRST)
    made = dataset("a", [400] * 40, log=None if options else log)
    options = {name: SendOrder(value) for name, value in options.items()}
    given = dataclasses.replace(profile(a=[400]), datasets=(made,))
    plan = recommend(given, model="qwen3-8b", gpu="h200", **options)
    assert plan.inputs.order is SendOrder.LONGEST
    assert any(f"longest first, {said}" in line for line in plan.warnings)


def test_a_context_that_was_asked_for_and_fits_no_setting() -> None:
    with pytest.raises(InputError, match="no setting fits: one request of 131,072 tokens"):
        advised([100] * 50, gpu="l4", max_model_len=131_072)


# -- the numbers of the KV cache ---------------------------------------------------------------


def test_a_kv_cache_of_8_bits_holds_twice_as_much_is_read_faster_and_is_set():
    own, small = (plan(MIXED, kv_cache_dtype=kind) for kind in ("auto", "fp8"))
    assert small.memory.kv_cache_tokens == pytest.approx(2 * own.memory.kv_cache_tokens, rel=1e-3)
    assert small.memory.kv_cache_bytes == own.memory.kv_cache_bytes
    assert small.capacity.p50 >= 2 * own.capacity.p50
    assert small.forecast.makespan_s < own.forecast.makespan_s
    assert command_line(small.settings, small.release.version)[-2:] == ["--kv-cache-dtype", "fp8"]
    assert own.settings.kv_cache_dtype is None
    assert [w for w in small.warnings if "fp8 was never measured" in w]


def test_a_kv_cache_of_unknown_numbers_is_refused():
    with pytest.raises(UsageError, match="kv_cache_dtype is 'fp4'"):
        plan(MIXED, kv_cache_dtype="fp4")
