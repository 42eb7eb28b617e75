"""Each rule on lines that vLLM writes."""

from dataclasses import replace

import pytest

import chunkscope
from chunkscope.diagnosis.doctor import NOTHING, Context, diagnosed
from chunkscope.diagnosis.rules import SMALLEST_DEFAULT
from chunkscope.hardware.gpus import find_gpu
from chunkscope.vllm.enums import Entry
from chunkscope.vllm.flags import release
from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.log.start import Bound, EngineStart
from tests.vllm.log_lines import START, TROUBLES, engine, periodic, stamped

BEGUN = stamped(
    START.format(version="0.24.0").replace("enforce_eager=True", "enforce_eager=False")
)
EAGER = stamped(START.format(version="0.24.0"))
ON_CPU = BEGUN.replace("max_seq_len", "device_config=cpu, max_seq_len")


def report(*lines: str, context: Context = NOTHING) -> EngineStart:
    return diagnosed(engine(*lines), context)


def rules(start: EngineStart) -> list[str]:
    return [symptom.rule for symptom in start.symptoms]


def at(second: int) -> str:
    return f"10-23 10:{second // 60:02}:{second % 60:02}"


def repeated(count: int = 4, **figures: float) -> list[str]:
    """The same line every ten seconds."""
    return [periodic(at(10 * number), **figures) for number in range(count)]


WELL_USED = repeated(8, prompt=500.0, running=60, kv=60.0)


def test_an_engine_that_is_well_used_has_no_symptoms() -> None:
    assert report(BEGUN, *WELL_USED).symptoms == ()


# -- what ended an engine, what was lost ---------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "figures"), TROUBLES, ids=[kind.name for kind, _, _ in TROUBLES]
)
def test_what_ended_an_engine_comes_first(kind, text, figures) -> None:
    loaded = stamped("Model loading took 15.0 GiB and 1.6 seconds")
    symptom = report(BEGUN, loaded, stamped(text)).symptoms[0]
    assert symptom.title.code == f"ended_{kind}"
    assert symptom.lines == (3,)
    assert len(symptom.evidence) == len(figures)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, text, _ in TROUBLES])
def test_on_a_cpu_other_things_make_room(kind, text) -> None:
    expected = "change_oom_cpu"
    if kind in (Failure.NO_CACHE_BLOCKS, Failure.CONTEXT_TOO_LONG):
        expected = "change_more_kv_cpu"
    elif kind is Failure.DIED:
        expected = "change_died"
    assert report(ON_CPU, stamped(text)).symptoms[0].change.code == expected


REFUSED = stamped(
    "The decoder prompt (length 2100) is longer than the maximum model length of 2048."
)


def test_symptoms_are_ordered_by_their_effect() -> None:
    few = periodic("10-23 10:51:34", kv=0.0)
    symptoms = report(EAGER, REFUSED, few).symptoms
    assert [(symptom.rule, symptom.effect) for symptom in symptoms] == [
        ("refused-prompts", 0.95),
        ("client-bound", 0.9),
        ("eager", 0.25),
    ]


def test_answers_400_are_told_once_where_a_line_explains_them() -> None:
    answer = '(APIServer pid=1) INFO: 1.1.1.1 - "POST / HTTP/1.1" 400 Bad Request'
    assert rules(report(BEGUN, answer)) == ["bad-requests"]
    assert rules(report(BEGUN, REFUSED, answer)) == ["refused-prompts"]


# -- what the time went into ---------------------------------------------------


def test_the_kv_cache_was_full() -> None:
    (symptom,) = report(*repeated(running=4, waiting=34, kv=90.0)).symptoms
    assert (symptom.rule, symptom.change.code) == ("kv-bound", "change_more_kv")
    assert symptom.evidence[0].values == {"seconds": 40.0, "part": 1.0}
    assert symptom.lines == (1, 4)


@pytest.mark.parametrize(
    "argument", ["num_gpu_blocks_override", "kv_cache_memory_bytes"]
)
def test_an_argument_that_fixes_the_kv_cache_is_to_be_left_out(argument) -> None:
    arguments = stamped(f"non-default args: {{'{argument}': 1024}}")
    full = repeated(running=4, waiting=34, kv=90.0)
    change = report(arguments, BEGUN, *full).symptoms[0].change
    assert change.code == "change_fixed_size"
    assert change.values["argument"] == f"--{argument.replace('_', '-')}"


def test_as_many_ran_as_may_run_in_each_engine() -> None:
    arguments = stamped("non-default args: {'max_num_seqs': 32}")
    for line in repeated(running=32, waiting=9, kv=20.0):
        two = line.replace("Engine 000", "2 Engines Aggregated")
        two = two.replace("Running: 32", "Running: 64")
        for engines in (line, two):
            symptom = report(arguments, BEGUN, engines).symptoms[0]
            assert symptom.rule == "max-num-seqs"
            assert symptom.change.values == {"running": 32}


BUDGET = "Chunked prefill is enabled with max_num_batched_tokens={}."


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        pytest.param([], ["change_queue_budget_unknown"], id="not known"),
        pytest.param([stamped(BUDGET.format(2_048))], ["change_queue"], id="usual"),
        pytest.param(
            [stamped(BUDGET.format(128))],
            ["change_small_step"],
            id="small",
        ),
    ],
)
def test_a_budget_that_is_not_known_is_not_said_to_be_fine(lines, changes) -> None:
    symptoms = report(*lines, *repeated(running=8, waiting=52, kv=0.3)).symptoms
    assert [symptom.change.code for symptom in symptoms] == changes


def test_a_small_budget_is_not_blamed_where_no_prompt_waited() -> None:
    assert report(stamped(BUDGET.format(128)), *WELL_USED).symptoms == ()


def test_the_smallest_default_is_vllms() -> None:
    budgets = []
    for gpu in map(find_gpu, ("t4", "a100", "h100", "b200")):
        for version in ("0.12", "0.24", "0.32"):
            for entry in Entry:
                default = release(version).batch_defaults(gpu, entry)
                budgets.append(default.max_num_batched_tokens)
    assert min(budgets) == SMALLEST_DEFAULT


def test_several_engines_are_as_long_busy_as_each_of_them() -> None:
    lines = []
    for line in repeated():
        lines += [line, line.replace("Engine 000", "Engine 001")]
    start = report(*lines)
    assert (start.busy_s, start.seconds_of(Bound.CLIENT)) == (40.0, 40.0)
    assert start.symptoms[0].evidence[0].values == {"seconds": 40.0, "part": 1.0}
    assert start.peak_running == 2


@pytest.mark.parametrize(
    ("preemptions", "finished", "effect"),
    [
        (300, 100, 1.0),
        (30, 100, 0.3),
        (5, 100, 0.05),
        (3, None, 1.0),
    ],
)
def test_preemptions_that_a_server_counted(preemptions, finished, effect) -> None:
    start = replace(engine(BEGUN, *WELL_USED), preemptions=preemptions)
    (symptom,) = diagnosed(start, finished=finished).symptoms
    assert (symptom.rule, symptom.effect) == ("preemptions", effect)


@pytest.mark.parametrize(("preemptions", "finished"), [(4, 100), (0, 9), (None, 9)])
def test_few_preemptions_are_no_symptom(preemptions, finished) -> None:
    start = replace(engine(BEGUN, *WELL_USED), preemptions=preemptions)
    assert diagnosed(start, finished=finished).symptoms == ()


# -- what was set --------------------------------------------------------------


@pytest.fixture(scope="module")
def sharing(tmp_path_factory) -> Context:
    """A profile of prompts that begin alike."""
    path = tmp_path_factory.mktemp("data") / "a.jsonl"
    beginning = "the same beginning of every prompt, " * 40
    rows = [f'{{"prompt": "{beginning} {number}"}}\n' for number in range(40)]
    path.write_text("".join(rows), encoding="utf-8")
    return Context(profile=chunkscope.analyze(path))


def test_a_hit_rate_is_low_where_the_profile_promises_more(sharing) -> None:
    start = report(BEGUN, *WELL_USED, context=sharing)
    (symptom,) = start.symptoms
    assert (symptom.rule, symptom.change.code) == ("hit-rate", "change_hit_rate")
    assert symptom.evidence[0].values["rate"] == start.hit_rate == 0.125


def test_eager_mode_is_told_unless_there_is_no_other() -> None:
    assert rules(report(EAGER)) == ["eager"]
    on_cpu = EAGER.replace("max_seq_len", "device_config=cpu, max_seq_len")
    assert rules(report(on_cpu)) == []
