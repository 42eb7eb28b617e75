"""What `recommend` advises, and why: by simulation, by lengths, by force."""

import re
from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from chunkscope.artefacts.artefact import built, plain
from chunkscope.artefacts.note import note
from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.accuracy import nearest_measured
from chunkscope.hardware.gpus import find_gpu
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.models import MODELS, find_model
from chunkscope.planning.case import Case
from chunkscope.planning.plan import BEST, DEFAULT, AdviceKind, Basis, Plan
from chunkscope.planning.predict import SimulateOptions, predict
from chunkscope.planning.recommend import recommend
from chunkscope.planning.rule import LengthRule
from chunkscope.planning.search import WORTH, Search, advise
from chunkscope.planning.simulator import NEAR
from chunkscope.prompts.harness.log import AS_LOGGED, LONGEST_FIRST, LogSummary
from chunkscope.report.blocks import Headline, Text
from chunkscope.report.notes import sentence
from chunkscope.report.plan import cautions, plan_blocks
from chunkscope.report.plan import headline as advice
from chunkscope.simulation.outputs import OutputOrigin
from chunkscope.vllm.enums import Entry, Mode, Task
from chunkscope.vllm.flags import flags_of
from chunkscope.vllm.footprint import memory
from tests.build import LONG, MIXED, SHORT, advised, dataset, plan, profile
from tests.conftest import REPOSITORY

VERSIONS = [
    "0.12.0",
    "0.16.0",
    "0.20.0",
    "0.24.0",
    "0.28.0",
    "0.32.0",
]
TAIL = (*range(50, 1_550, 16), 2_500, 4_000)  # p95 is under 2,048: conservative
# Like the sample data: most prompts are short, a few have thousands of tokens.
SAMPLE = profile(
    data=[
        *([20] * 180),
        *(3 * [*range(60, 340, 4)]),
        *range(222, 1_400, 10),
        *range(2_000, 23_300, 600),
    ]
)


def why(made: Plan, argument: str) -> str:
    (code,) = [reason.code for reason in made.reasons if reason.argument == argument]
    return code


def codes(made: Plan) -> set[str]:
    return {note.code for note in made.notes}


def test_a_setting_that_pays_is_set_with_what_it_gains():
    made = advised(MIXED * 12, model="qwen2.5-1.5b", gpu="l4")
    assert made.advice.kind is AdviceKind.SET
    assert made.settings.max_num_seqs > 256, (
        "an L4 holds more of them than vLLM's own 256"
    )
    default, ours = made.default_run.figures, made.run.figures
    assert made.advice.gain == pytest.approx(default.makespan_s / ours.makespan_s - 1)
    assert made.advice.gain >= WORTH
    assert made.advice.least_gain > 0
    assert why(made, "max_num_seqs") == "why_gains"


@pytest.mark.parametrize(
    ("data", "model", "gpu", "output"),
    [
        (SAMPLE, "qwen2.5-1.5b", "l4", None),
        (SAMPLE, "deepseek-v2-lite", "a100", None),
        (profile(data=[700] * 60), "qwen2.5-1.5b", "l4", 16),
    ],
    ids=["l4", "a100", "budgets tie, gaps differ"],
)
def test_what_is_chosen_is_not_beaten_by_a_row_of_its_own_table(
    data, model, gpu, output
):
    """In the aim, unless it gains too little or not in every case; and then in the
    longest gap."""
    made = recommend(data, model=model, gpu=gpu, vllm_version="0.32", max_output=output)
    assert [run.setting for run in made.tried] == [DEFAULT, BEST]
    (theirs,), ours = (
        [run.figures for run in made.tried if run is not made.run],
        made.run.figures,
    )
    beats = theirs.makespan_s < ours.makespan_s
    assert not beats or made.advice.gain < WORTH or made.advice.least_gain <= 0
    case = Case.of(data, made.request, made.deployment)
    search = Search(replace(case, needed=made.advice.needed))
    advise(search)
    part, best = search.part, made.tried[-1].settings
    gap = part.attempt(best).figures.itl_s.max
    running = {settings: run for settings, run in part.runs.items() if run}
    assert len(running) > 5
    for other, run in running.items():
        times = part.cost(other) / part.cost(best)
        assert times >= 1 / (1 + NEAR), "of all that was searched"
        assert times > 1 or run.figures.itl_s.max >= gap, (
            f"a tie has the longer gap: {other}"
        )


def test_a_finalist_must_gain_in_every_variation():
    """512 requests at once gain over 3 % with the outputs assumed, and lose with longer
    ones."""
    made = advised(range(50, 1_050), gpu="a100-80gb")
    assert made.settings.given() == {}
    assert (made.advice.doubt, made.advice.gain >= WORTH) == ("longer_outputs", True)
    assert made.advice.least_gain <= 0
    known = advised(range(50, 1_050), gpu="a100-80gb", max_output=256)
    assert known.settings.max_num_seqs == 512, "nothing to vary where it is known"


def test_where_vllms_own_does_not_fit_what_fits_is_needed_and_in_the_headline():
    smaller = replace(find_gpu("a10"), memory_gib=19.3)
    how = {"model": "mistral-7b-v0.3", "gpu": smaller, "vllm_version": "0.32"}
    made = recommend(SAMPLE, entry=Entry.LLM, **how)
    assert made.default_run.settings.max_num_batched_tokens == 4_096
    assert {"max_model_len", "max_num_batched_tokens"} <= set(
        made.advice.needed.given()
    )
    for name, value in made.advice.needed.given().items():
        assert f"{name} {value:,}" in advice(made)


@pytest.mark.parametrize("entry", Entry)
def test_where_the_models_own_context_does_not_fit_it_is_what_fits_with_some_room(
    entry,
):
    """Memory is only predicted; and answers may be longer than what is assumed."""
    made = advised(
        [300, 21_313], model="qwen3-8b", gpu="l4", entry=entry, max_output=256
    )
    context = made.advice.needed.max_model_len
    assert context == made.settings.max_model_len >= 21_569
    assert made.memory.holds(round(1.05 * context))
    assert not made.memory.holds(round(1.1 * context))
    assert why(made, "max_model_len") == "why_needed_max_model_len"
    made = advised(
        [300, 1_000], model="gemma-2-9b", gpu="l4"
    )  # some layers keep a window
    assert made.memory.holds(made.settings.max_model_len)


def test_what_fits_only_from_the_second_start_on_is_no_plan():
    """A first start compiles, and refuses a context for which it has too little room
    then."""
    how = {"model": "llama-3.1-8b", "gpu": "l4"}
    assert advised([300, 30_000], **how).settings.max_model_len >= 30_256
    with pytest.raises(InputError, match="does not fit"):
        advised([300, 35_000], **how)


STARTS = {
    "the KV cache holds just the context": ("qwen3-32b", "h100", "0.12", 32_768),
    "the same, a newer version": ("qwen3-32b", "h100", "0.24", 34_000),
    "a small GPU": ("gemma-2-9b", "a10g", "0.28", None),
    "experts": ("qwen3-30b-a3b", "h100", "0.19", None),
    "a latent": ("deepseek-v2-lite", "l40s", "0.24", None),
    "8-bit KV cache": ("llama-3.1-8b", "l4", "0.32", None),
}


@pytest.mark.parametrize("case", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("prompts", [[128] * 400, [100] * 300 + [1_500] * 20])
def test_a_command_that_is_emitted_starts_by_the_word_of_memory(case, prompts):
    model, gpu, version, context = case
    how = {"max_model_len": context} if context else {}
    plan = advised(prompts, model=model, gpu=gpu, vllm_version=version, **how)
    word = memory(model, gpu, vllm_version=version, **plan.settings.given())
    assert not word.refusals
    assert plan.cost is not None


@settings(derandomize=True, deadline=None)
@given(
    model=st.sampled_from(sorted(MODELS)),
    gpu=st.sampled_from(["h100", "h200", "a100", "l4", "l40s", "rtx-4090", "b200"]),
    version=st.sampled_from(["0.12", "0.16", "0.19", "0.24", "0.28", "0.32"]),
    context=st.sampled_from([None, 4_096, 16_384]),
)
def test_a_command_for_any_machine_starts_by_the_word_of_memory(
    model, gpu, version, context
):
    limit = find_model(model).limit or 0
    how = {"max_model_len": context} if context and context <= limit else {}
    try:
        plan = advised([128] * 60, model=model, gpu=gpu, vllm_version=version, **how)
    except InputError:
        assume(False)  # it does not fit, and the error says so
    word = memory(model, gpu, vllm_version=version, **plan.settings.given())
    assert not word.refusals
    assert plan.cost is not None


def test_a_plan_is_the_same_every_time():
    how = {"model": "qwen2.5-1.5b", "gpu": "l4"}
    first, again, other = (
        recommend(profile(data=SHORT), seed=n, **how).digest() for n in (0, 0, 1)
    )
    assert first == again != other


def test_the_cost_is_known_before_the_run_with_its_range():
    made = advised(MIXED, model="qwen2.5-1.5b", gpu="l4", price_per_hour=0.8)
    cost = made.cost
    assert cost.input_tokens == sum(MIXED)
    assert cost.output_tokens == 256 * len(MIXED)
    assert cost.hours == made.run.figures.makespan_s / 3_600
    assert cost.least_hours < 0.8 * cost.hours, "outputs may be half as long"
    assert cost.most_hours > 1.3 * cost.hours, "or twice as long"
    assert made.request.price_per_hour == 0.8
    known = advised(MIXED, model="qwen2.5-1.5b", gpu="l4", max_output=256).cost
    seen = 1 / (
        1 + nearest_measured(find_model("qwen2.5-1.5b")).least
    )  # too short by so much
    assert known.most_hours < 1.2 * seen * known.hours, (
        "lengths, draws, prediction error"
    )


def test_more_prompts_than_are_simulated_cost_in_proportion(monkeypatch):
    monkeypatch.setattr("chunkscope.planning.drawing.MOST_REQUESTS", 400)
    machine = {"model": "qwen3-8b", "gpu": "h200", "max_output": 8}
    few = recommend(profile(data=[100] * 400), **machine)
    many = recommend(profile(data=[100] * 1_200), **machine)
    assert many.run.requests == few.run.requests == 400
    assert many.cost.input_tokens == 3 * few.cost.input_tokens
    assert many.cost.hours == pytest.approx(3 * few.cost.hours)


def test_what_all_prompts_share_is_read_once():
    """GSM8K with 8 shots: nearly all of each prompt is in vLLM's prefix cache."""
    shared, alone = (
        advised([1_693] * 200, model="qwen3-8b", shared_prefix=n) for n in (1_637, 0)
    )
    assert shared.run.figures.makespan_s < 0.6 * alone.run.figures.makespan_s
    assert "shared_prefixes" in codes(shared)
    assert "shared_prefixes" not in codes(alone)


@pytest.mark.parametrize(
    "where", [{"model": None, "gpu": None}, {"gpu": None}, {"model": None}], ids=str
)
def test_without_a_model_or_a_gpu_the_length_rule_answers_and_says_so(where):
    made = advised(TAIL, **where)
    assert made.advice.basis is Basis.LENGTHS
    assert made.settings.given() == {"long_prefill_token_threshold": 2_048}
    assert (made.tried, made.cost, made.memory) == ((), None, None)
    cut_off = advised(TAIL, **where, rule=LengthRule(conservative_threshold=1_500))
    assert cut_off.settings.long_prefill_token_threshold == 1_500


def test_nothing_is_said_of_times_that_were_not_simulated():
    """A GPU by its memory alone: how wrong predicted times were followed an answer
    without any."""
    assert not any("times" in text for text in cautions(advised(TAIL, gpu="80GiB")))


def test_the_profiles_own_model_is_planned_for():
    counted = replace(
        profile(data=MIXED),
        tokenizer=replace(profile().tokenizer, name="Qwen/Qwen3-8B"),
    )
    assert recommend(counted, gpu="h200").model.load_name == "Qwen/Qwen3-8B"
    assert (
        recommend(counted, gpu="h200", model="llama-3.1-8b").model.name
        == "llama-3.1-8b"
    )
    assert recommend(profile(data=MIXED), gpu="h200").model is None


def test_a_gpu_of_unknown_speed_gets_the_largest_budget_that_fits():
    how = {"model": "mistral-7b-v0.3", "gpu": "17.5GiB", "entry": Entry.LLM}
    made = advised(LONG, max_model_len=14_336, **how)
    assert made.advice.needed.max_num_batched_tokens == 4_096
    assert why(made, "max_num_batched_tokens") == "why_needed_max_num_batched_tokens"
    wide = advised(MIXED, gpu="40GiB", max_model_len=8_192)
    assert wide.settings.max_num_batched_tokens is None
    assert "unlike_measured" not in codes(wide), "no time is predicted"


def test_a_threshold_is_set_only_where_it_bites():
    assert plan(TAIL).settings.long_prefill_token_threshold == 2_048
    nobody = plan([1_500] * 10)
    assert nobody.settings.long_prefill_token_threshold is None
    assert why(nobody, "long_prefill_token_threshold") == "why_threshold_ends_nothing"
    capped = plan(LONG)  # 0.8 x p95 is over the budget of 8192
    assert capped.settings.long_prefill_token_threshold is None
    assert why(capped, "long_prefill_token_threshold") == "why_threshold_ends_nothing"
    assert capped.chunks.size == 8_192


@pytest.mark.parametrize("where", [{}, {"model": None, "gpu": None}], ids=str)
def test_off_comes_with_a_budget_of_at_least_max_model_len_and_no_threshold(where):
    made = plan(SHORT, mode=Mode.OFF, **where)
    assert (made.advice.kind, made.advice.basis) == (AdviceKind.SET, Basis.MODE)
    assert made.settings.enable_chunked_prefill is False
    assert made.effective.max_num_batched_tokens >= made.settings.max_model_len
    assert made.settings.long_prefill_token_threshold is None
    assert ("(simulated)" in advice(made)) is not bool(where), (
        "what it brings, by its table"
    )
    assert "vLLM to start" not in advice(made), (
        "it would, with a longer context and larger steps"
    )


def test_off_is_refused_where_it_does_not_fit_or_vllm_refuses_it():
    with pytest.raises(UsageError, match="--mode off"):
        plan(LONG, mode=Mode.OFF, gpu="20GiB")
    llama = find_model("llama-3.1-8b")
    hybrid = replace(llama, attention=replace(llama.attention, stateful_layers=24))
    assert plan(SHORT, mode=Mode.OFF, model=hybrid, vllm_version="0.25.0")
    with pytest.raises(UsageError, match="--mode off"):
        plan(SHORT, mode=Mode.OFF, model=hybrid, vllm_version="0.26.0")


def test_refused_prompts_are_counted_exactly_and_alike_by_simulate():
    lengths = [*[100] * 60, 32_512, 32_513, 32_514, 40_000]
    made = advised(lengths, model="qwen2.5-7b-instruct")
    notes = predict(made, profile(data=lengths), SimulateOptions()).notes
    assert [n.values["count"] for n in notes if n.code == "prompts_left_out"] == [3]
    assert made.effective.max_model_len == 32_768
    assert made.settings.max_model_len is None
    assert (made.refused.prompts, made.refused.of, made.refused.room_tokens) == (
        3,
        64,
        32_512,
    )


def test_a_dataset_of_which_nothing_fits_takes_no_time_and_is_no_rest_of_a_sample():
    data = profile(short=[100] * 60, long=[9_000] * 3)
    made = recommend(data, model="llama-2-7b", gpu="h100", vllm_version="0.24.0")
    assert (made.refused.prompts, list(made.cost.datasets), made.chunks.prompts) == (
        3,
        ["short"],
        0,
    )
    assert not any("sample" in said for said in cautions(made))


@pytest.mark.parametrize(
    ("lengths", "output"), [((5_000, 6_000), None), (MIXED, 4_096)]
)
def test_every_prompt_over_the_limit_is_an_input_error(lengths, output):
    with pytest.raises(InputError, match="4,096") as error:
        advised(lengths, model="llama-2-7b", max_output=output)
    assert ("lower --max-output" in str(error.value.hint)) is (lengths == MIXED), (
        "what helps"
    )


CAPPED = LogSummary(harness="x", documents=9, requests=9, output_caps={"64": 9})


@pytest.mark.parametrize(
    ("dataset_has", "asked", "tokens", "origin"),
    [
        ({}, {}, 256, OutputOrigin.ASSUMED),
        (
            {"output_lengths": LengthHistogram.of([10, 700])},
            {},
            700,
            OutputOrigin.DATA,
        ),
        (
            {"output_lengths": LengthHistogram.of([700])},
            {"max_output": 64},
            64,
            OutputOrigin.ASKED,
        ),
        ({}, {"output": "p50=30,p95=90"}, 90, OutputOrigin.ASKED),
        (
            {"output_lengths": LengthHistogram.of([700])},
            {"outputs": {"a": 64}},
            64,
            OutputOrigin.ASKED,
        ),
        ({"log": CAPPED}, {}, 64, OutputOrigin.TASK),
        ({"scored": True}, {}, 1, OutputOrigin.SCORED),
    ],
)
def test_room_for_an_output_is_asked_for_or_in_the_data_or_its_task_or_256(
    dataset_has, asked, tokens, origin
):
    sets = (dataset("a", [100], **dataset_has), dataset("b", [100]))
    made = recommend(replace(profile(), datasets=sets), **asked)
    first, second = made.outputs
    assert (first.tokens, first.origin) == (tokens, origin)
    of_all = "max_output" in asked or "output" in asked
    assert second.origin is (OutputOrigin.ASKED if of_all else OutputOrigin.ASSUMED)


def test_no_dataset_borrows_anothers_outputs_and_the_range_is_over_what_is_assumed():
    """One known dataset gave all others its longest answer, and nothing was said to be
    assumed."""
    known = dataset("known", [100] * 20, output_lengths=LengthHistogram.of([700]))
    data = replace(profile(), datasets=(known, dataset("unknown", [100] * 30)))
    made = recommend(data, model="llama-3.1-8b", gpu="h200", vllm_version="0.24")
    assert made.cost.output_tokens == 20 * 700 + 30 * 256
    alone = made.cost.datasets
    assert (alone["known"].requests, alone["known"].output_tokens) == (20, 14_000)
    assert (alone["unknown"].requests, alone["unknown"].output_tokens) == (30, 7_680)
    assert max(work.hours for work in alone.values()) < made.cost.hours
    assert [output.name for output in made.outputs if output.is_assumed] == ["unknown"]
    assert {"shorter_outputs", "longer_outputs"} <= set(made.cost.varied)
    (assumed,) = [note for note in made.notes if note.code == "assumed_output"]
    assert assumed.values == {"tokens": 256, "datasets": ["unknown"]}


def test_the_plan_is_for_all_datasets_unless_one_is_picked():
    data = profile(short=SHORT, mixed=TAIL, long=LONG)
    together = recommend(data)
    modes = [Mode.OFF, Mode.CONSERVATIVE, Mode.AGGRESSIVE]
    assert [one.mode for one in together.decisions.values()] == modes
    assert together.decision.mode is Mode.AGGRESSIVE
    assert recommend(data, dataset="short").decision.mode is Mode.OFF
    with pytest.raises(UsageError) as error:
        recommend(data, dataset="mixd")
    assert "mixed" in error.value.hint


@pytest.mark.parametrize("data", [profile(), profile(empty=[])])
def test_a_profile_without_prompts_is_an_input_error(data):
    with pytest.raises(InputError):
        recommend(data)


@pytest.mark.parametrize(
    ("harness", "order", "entry"),
    [
        ("lm-eval", LONGEST_FIRST, Entry.LLM),
        ("lighteval", AS_LOGGED, Entry.LLM),
        ("Inspect", AS_LOGGED, Entry.SERVE),
    ],
)
def test_requests_of_a_harness_are_planned_for_how_it_starts_vllm(
    harness, order, entry
):
    log = LogSummary(harness=harness, documents=40, requests=40, order=order)
    data = replace(profile(), datasets=(dataset("a", [400] * 40, log=log),))
    made = recommend(data, model="qwen3-8b", gpu="h200", vllm_version="0.32")
    assert made.deployment.entry is entry
    assert made.settings.given() == {}, (
        "its default is nothing to set, whoever starts it"
    )
    assert ("longest_first" in codes(made)) == (order is LONGEST_FIRST)
    assert recommend(data, entry="other").deployment.entry is Entry.OTHER


def test_what_cannot_fit_says_how_long_a_context_or_how_many_gpus_would():
    with pytest.raises(InputError, match="131,072") as error:
        advised(SHORT, gpu="l4", max_model_len=131_072)
    (most,) = re.findall(r"--max-model-len to (\d+), or", error.value.hint)
    assert advised(
        SHORT, gpu="l4", max_model_len=int(most)
    ).effective.max_model_len == int(most)
    with pytest.raises(
        InputError, match="never fit"
    ):  # windows count in full, in 0.19 alone
        advised([60_000], model="gemma-3-27b", gpu="a100", vllm_version="0.19")
    assert advised([60_000], model="gemma-3-27b", gpu="a100", vllm_version="0.18").tried
    with pytest.raises(InputError, match="70b") as error:
        advised(MIXED, model="llama-3.1-70b", gpu="h100")
    assert "--tp 2" in error.value.hint


def test_a_likelihood_eval_on_the_v1_runner_gets_a_chunk_whose_logits_fit():
    made = advised(LONG, model="qwen2.5-7b", gpu="24GiB", max_model_len=14_336,
                   task=Task.LOGLIKELIHOOD, vllm_version="0.16.0")  # fmt: skip
    assert made.settings.long_prefill_token_threshold < made.decision.threshold
    assert made.advice.needed.gpu_memory_utilization is None, (
        "vLLM's default is not needed"
    )
    assert made.memory.survives_logprobs
    assert not advised(LONG, model="qwen2.5-7b", gpu="h100").advice.needed.given()


def test_utilization_is_lowered_as_a_last_resort():
    made = advised([300] * 50, model="gemma-2-2b", gpu="9GiB",
                   task=Task.LOGLIKELIHOOD, vllm_version="0.16.0")  # fmt: skip
    assert made.advice.needed.gpu_memory_utilization < 0.9
    assert made.memory.survives_logprobs


def test_a_kv_cache_of_8_bits_holds_twice_as_much_and_is_set():
    default, small = (advised(MIXED, kv_cache_dtype=kind) for kind in ("auto", "fp8"))
    twice = 2 * default.memory.kv_cache_tokens
    assert small.memory.kv_cache_tokens == pytest.approx(twice, rel=1e-3)
    assert small.settings.kv_cache_dtype == "fp8"
    assert default.settings.kv_cache_dtype is None
    assert "unmeasured_kv_cache" in codes(small)


@pytest.mark.parametrize(
    "options",
    [
        {"max_output": 0},
        {"outputs": {"nobody": 9}},
        *({name: 0} for name in ("tp", "requests", "max_model_len", "price_per_hour")),
        *(
            {name: count}
            for name in ("requests", "shared_prefix")
            for count in (-1, 1.5)
        ),
        {"dp": 2, "entry": "llm"},
        {"max_model_len": 10**7},
        {"kv_cache_dtype": "fp4"},
        {"task": "speed"},
        {"arrivals": "4/s"},
        {"slo": "ttft=1s"},
        {"slo": "ttft_p95=1s", "arrivals": "often"},
        *(
            {"slo": "ttft_p95=1s", **other}
            for other in ({"model": None}, {"gpu": None})
        ),
        {"slo": "ttft_p95=1s", "mode": Mode.AGGRESSIVE},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_a_usage_error(options):
    with pytest.raises(UsageError):
        advised(MIXED, **options)


MODEL_NAMES = ["llama-3.1-8b", "qwen2.5-7b-instruct", "gemma-2-9b", "deepseek-v2-lite"]


@given(
    lengths=st.lists(st.integers(0, 30_000), min_size=1, max_size=20),
    version=st.sampled_from(VERSIONS),
    model=st.sampled_from([None, *MODEL_NAMES]),
    gpu=st.sampled_from([None, "h200", "a100", "l40s", "rtx-4090", "b200"]),
    mode=st.sampled_from([None, *Mode]),
    task=st.sampled_from(Task),
    output=st.integers(1, 200),
    entry=st.sampled_from(Entry),
)
@example(
    [757],
    "0.12.0",
    "gemma-2-9b",
    "rtx-4090",
    Mode.OFF,
    Task.LOGLIKELIHOOD,
    1,
    Entry.SERVE,
)
@example(
    [0, 0, 0, 0, 4093, 8192],
    "0.12.0",
    "gemma-2-9b",
    "h200",
    None,
    Task.LOGLIKELIHOOD,
    1,
    Entry.OTHER,
)
def test_any_plan_is_one_its_vllm_accepts(  # noqa: PLR0913  (all are drawn)
    lengths, version, model, gpu, mode, task, output, entry
):
    try:
        made = recommend(
            profile(data=lengths),
            model=model,
            gpu=gpu,
            vllm_version=version,
            mode=mode,
            task=task,
            max_output=output,
            entry=entry,
        )
    except (UsageError, InputError):
        return
    full = made.effective
    assert made.deployment.refusals(made.settings) == ()
    assert (
        made.settings.given().keys() <= flags_of(made.deployment.release.version).keys()
    )
    if made.memory:
        assert made.memory.holds(full.max_model_len)
    if full.enable_chunked_prefill is False:
        assert (full.max_num_batched_tokens or 0) >= full.max_model_len
        assert not full.long_prefill_token_threshold
    room = made.refused.room_tokens
    assert made.refused.prompts == sum(length > room for length in lengths)
    assert advice(made)
    assert all(map(sentence, (*made.reasons, *made.notes)))
    assert built(Plan, plain(made)) == made


# -- what has to be said first -------------------------------------------------------


def of(*datasets: DatasetProfile) -> Profile:
    return replace(profile(a=[1]), datasets=datasets)


def agent_log(**values) -> LogSummary:
    about = {"harness": "Inspect", "documents": 10, "requests": 200} | values
    return LogSummary(**about)


def test_the_time_is_that_of_the_client_in_the_log():
    logged = dataset("a", [500] * 200, log=agent_log(documents=200, concurrency=2))
    free = recommend(of(dataset("a", [500] * 200)), model="qwen3-8b", gpu="h100")
    made = recommend(of(logged), model="qwen3-8b", gpu="h100")
    assert made.cost.hours > 5 * free.cost.hours
    for saving in made.savings:
        assert saving.hours <= made.cost.hours


def test_prompts_that_are_refused_come_first():
    made = advised([300] * 50 + [9_000] * 20, max_model_len=8_192)
    assert first_sentences(made)[0].startswith("20 of 70 prompts do not fit")


def test_what_costs_nothing_is_named_where_the_defaults_stay():
    made = recommend(
        Profile.load(REPOSITORY / "reports" / "example" / "profile.json"),
        model="llama-3.1-8b",
        gpu="h100",
        together=True,
    )
    assert made.advice.kind is AdviceKind.KEEP
    assert "If you stream answers, set max_num_batched_tokens 2,048" in advice(made)


@pytest.mark.parametrize(
    ("field", "said"), [("n (lengths)", "lengths"), ("a", "texts")]
)
def test_how_the_answers_were_read_is_said(field, said):
    lengths = LengthHistogram({50: 40})
    answered = dataset("a", [100] * 40, output_field=field, output_lengths=lengths)
    made = recommend(of(answered), model="qwen3-8b", gpu="h100")
    assert f"answers_are_{said}" in {note.code for note in made.notes}


def test_a_time_without_images_says_so():
    pictured = dataset("a", [30] * 40, notes=(note("media_rows", count=40),))
    made = recommend(of(pictured), model="qwen3-8b", gpu="h100")
    assert "media_not_timed" in {one.code for one in made.notes}


def first_sentences(made: Plan) -> list[str]:
    blocks = plan_blocks(made)
    return [block.text for block in blocks if isinstance(block, Headline | Text)]
