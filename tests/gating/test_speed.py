"""[gate.speed]: measured figures against limits, and against a committed verify.json."""

from dataclasses import replace

import pytest

from chunkscope.errors import InputError
from chunkscope.simulation.workload import Request
from chunkscope.verification.result import Machine, Subject
from tests.gating.helpers import figures, latency, out_of_memory, run, verification


@pytest.mark.parametrize(
    ("key", "kept", "broken"),
    [
        ("ttft_p50", "100ms", "99.9ms"),
        ("ttft_p95", "200ms", "199.9ms"),
        ("ttft_p99", "0.3s", "299ms"),
        ("ttft_max", "0.4s", "399ms"),
        ("itl_p95", "20ms", "19.9ms"),
        ("itl_max", "40ms", "39.9ms"),
        ("e2e_p95", "2s", "1.99s"),
        ("makespan", "10s", "9.99s"),
    ],
)
def test_a_time_may_be_as_long_as_promised(place, key, kept, broken):
    place.save_verification(run(found=figures(ttft=0.2, itl=0.02)))
    assert place.one(f'[speed]\n{key} = "{kept}"').kept
    verdict = place.one(f'[speed]\n{key} = "{broken}"')
    assert not verdict.kept
    assert verdict.subject == "plan"


@pytest.mark.parametrize(
    ("key", "rate"), [("input_tokens_per_s", 9000), ("output_tokens_per_s", 1000)]
)
def test_throughput_may_be_as_low_as_promised(place, key, rate):
    place.save_verification()
    assert place.one(f"[speed]\n{key} = {rate}").kept
    verdict = place.one(f"[speed]\n{key} = {rate + 1}")
    assert (verdict.kept, verdict.found) == (False, f"{rate:,} tokens/s")


def test_short_and_long_prompts_have_limits_of_their_own(place):
    place.save_verification(run(found=figures(ttft=0.2)))
    assert place.one('[speed.short]\nttft_p95 = "100ms"').kept
    broken = place.one('[speed.short]\nttft_p95 = "99ms"')
    assert (broken.kept, broken.subject) == (False, "plan, short prompts")
    unmeasured = place.one('[speed.long]\nttft_p95 = "99h"')
    assert (unmeasured.kept, unmeasured.found) == (False, "not known")


def test_a_figure_that_was_never_measured_breaks_its_promise(place):
    place.save_verification(run(found=figures(itl=None)))
    broken = place.one('[speed]\nitl_p95 = "99h"')
    assert (broken.kept, broken.found) == (False, "not known")
    assert "did not measure" in broken.note


def test_a_run_that_died_breaks_its_promises_and_says_why(place):
    place.save_verification(out_of_memory())
    broken = place.one("[speed]\noutput_tokens_per_s = 1")
    assert not broken.kept
    assert "out of memory at 32768 tokens" in broken.note


def test_a_setting_that_was_not_run_breaks_its_promises(place):
    place.save_verification(run("default"))
    broken = place.one('[speed]\nttft_p95 = "99h"')
    assert "no run is called plan; there are: default" in broken.note
    assert place.one('[speed]\nsetting = "default"\nttft_p95 = "99h"').kept


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ttft_s": latency(-5.0)}, "in no time"),
        ({"ttft_s": latency(9.0)}, "which its parts contradict"),
        ({"ttft_s": replace(latency(0.2), short=None, long=latency(0.3).short)}, "contradict"),
        ({"itl_s": replace(latency(0.02), all=replace(latency(0.02).all, p95=0.1))}, "at most"),
        ({"e2e_s": latency(9.0)}, "and all of them 10.000 s"),
        ({"makespan_s": 0.0}, "no time"),
        ({"output_tokens_per_s": 1e300}, "output tokens per second"),
        ({"output_tokens_per_s": -1.0}, "output tokens per second"),
        ({"input_tokens_per_s": 9001.0}, "input tokens per second"),
    ],
)
def test_what_cannot_be_true_is_no_evidence(place, changes, said):
    """Also where the repeats were changed alike."""
    place.save_verification(run(found=replace(figures(), **changes)))
    broken = place.gate('[speed]\nttft_p95 = "99h"\noutput_tokens_per_s = 1').broken
    assert len(broken) == 2
    assert all("contradicts itself" in v.note and said in v.note for v in broken)


@pytest.mark.parametrize("repeats", [(), (figures(ttft=0.3),), (figures(), figures(rate=1200.0))])
def test_figures_that_their_repeats_contradict_are_no_evidence(place, repeats):
    place.save_verification(run(repeats=repeats))
    broken = place.one('[speed]\nttft_p95 = "99h"')
    assert (broken.kept, broken.found) == (False, "not known")
    assert "repeats" in broken.note
    place.save_verification(run(repeats=repeats), name="old.json")
    place.save_verification()
    with pytest.raises(InputError, match="contradicts itself"):
        place.gate(COMPARED.format("ttft_p95"))


def test_two_runs_of_one_name_are_no_evidence(place):
    place.save_verification(run(), run("other", same_as=("plan",)))
    broken = place.one('[speed]\nttft_p95 = "99h"')
    assert "2 runs are called plan" in broken.note


COMPARED = '[speed]\nbaseline = "old.json"\ntolerance = "5%"\ncompare = ["{}"]'


@pytest.mark.parametrize(
    ("name", "kept", "broken"),
    [
        ("ttft_p95", {"ttft": 0.21}, {"ttft": 0.2101}),
        ("itl_p95", {"itl": 0.021}, {"itl": 0.02101}),
        ("output_tokens_per_s", {"rate": 950.0}, {"rate": 949.0}),
    ],
)
def test_a_baseline_may_be_missed_by_the_tolerance(place, name, kept, broken):
    place.save_verification(run(found=figures()), name="old.json")
    place.save_verification(run(found=figures(**kept)))
    assert place.one(COMPARED.format(name)).kept
    place.save_verification(run(found=figures(**broken)))
    assert not place.one(COMPARED.format(name)).kept
    place.save_verification(run(found=figures(ttft=0.01, itl=0.001, rate=90_000.0)))
    assert place.one(COMPARED.format(name)).kept, "faster is no fault"


def test_both_numbers_and_the_baseline_are_shown(place):
    place.save_verification(name="old.json")
    place.save_verification(run(found=figures(rate=900.0)))
    verdict = place.one(COMPARED.format("output_tokens_per_s"))
    assert verdict.promised == "at least 950 tokens/s (1,000 tokens/s - 5 %)"
    assert verdict.found == "900 tokens/s"


def test_a_figure_that_only_the_baseline_has_is_broken(place):
    place.save_verification(name="old.json")
    place.save_verification(run(found=figures(itl=None)))
    assert not place.one(COMPARED.format("itl_p95")).kept


def test_three_figures_are_compared_unless_said_otherwise(place):
    place.save_verification(name="old.json")
    place.save_verification()
    verdicts = place.gate('[speed]\nbaseline = "old.json"').verdicts
    assert [v.promise.removeprefix("speed.baseline.") for v in verdicts] == [
        "ttft_p95", "itl_p95", "output_tokens_per_s",
    ]  # fmt: skip


def test_a_baseline_without_the_figure_is_an_error(place):
    place.save_verification(run(found=figures(itl=None)), name="old.json")
    place.save_verification()
    with pytest.raises(InputError, match="has no itl_p95"):
        place.gate(COMPARED.format("itl_p95"))
    place.save_verification(out_of_memory(), name="old.json")
    with pytest.raises(InputError, match="no figures of plan: the run ended as out_of_memory"):
        place.gate(COMPARED.format("ttft_p95"))


WORKLOAD = verification().workload


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": Subject(name="qwen3-8b", load_format="dummy")}, "another model"),
        ({"machine": Machine(device="cuda", gpu="NVIDIA L4", gpus=1)}, "another GPU"),
        ({"machine": Machine(device="cpu")}, "another device"),
        ({"machine": None}, "another device"),
        ({"workload": replace(WORKLOAD, arrivals="4/s")}, "another arrivals"),
        (
            {
                "workload": replace(
                    WORKLOAD, requests=(Request(prompt_tokens=1, output_tokens=1),) * 2
                )
            },
            "another number of requests",
        ),
    ],
)
def test_a_baseline_of_something_else_is_an_error(place, changes, said):
    place.save_verification(name="old.json", **changes)
    place.save_verification()
    with pytest.raises(InputError, match="not comparable") as error:
        place.gate(COMPARED.format("ttft_p95"))
    assert said in error.value.message


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "chunkscope/verify/2"}', "\x00"])
def test_a_damaged_baseline_is_an_error_that_names_it(place, text):
    place.save_verification()
    place.write("old.json", text)
    with pytest.raises(InputError, match=r"old\.json") as error:
        place.gate(COMPARED.format("ttft_p95"))
    assert error.value.exit_code == 3


def test_no_verify_file_is_an_error(place):
    place.save_profile()
    with pytest.raises(InputError, match=r"verify\.json, and it is not there"):
        place.gate('[speed]\nttft_p95 = "1s"')
