"""[gate.outputs]: promises on what `verify --check-outputs` compared."""

from typing import Any

import pytest

from chunkscope.errors import InputError
from chunkscope.simulation.workload import Request, Workload
from chunkscope.verification.result import RunOutputs, Subject
from chunkscope.vllm.enums import Task
from tests.gating.helpers import run
from tests.gating.test_init import start

REAL = Subject(name="llama-3.1-8b", load_format="auto")


def rows(differ: int, again: int = 0, prompts: int = 100) -> list[Any]:
    answers, noise = ((5,),) * prompts, 1 - again / prompts
    equal = 1 - differ / prompts
    plan = RunOutputs(answers=answers, again=noise, reference="off", equal=equal)
    return [run(outputs=plan), run("off", outputs=RunOutputs(answers=answers, again=noise))]


def sent(task: Task = Task.GENERATE, prompts: int = 100) -> Workload:
    each = Request(prompt_tokens=90_000 // prompts, output_tokens=1_000_000 // prompts)
    return Workload(
        requests=(each,) * prompts, seed=0, arrivals="batch", task=task, long_over=2_048
    )


def save(place: Any, *found: Any, task: Task = Task.GENERATE, **more: Any) -> None:
    place.save_verification(*found, **{"model": REAL, "workload": sent(task), **more})


@pytest.mark.parametrize(("differ", "kept"), [(0, True), (1, True), (2, False), (100, False)])
def test_the_share_of_equal_outputs(place, differ, kept):
    save(place, *rows(differ))
    verdict = place.one('[outputs]\nequal = "99%"\n')
    assert (verdict.promise, verdict.subject) == ("outputs.equal", "plan")
    assert verdict.kept is kept
    assert verdict.found_value == pytest.approx(1 - differ / 100)


def test_the_noise_of_batching_stands_beside_it(place):
    save(place, *rows(5, again=3))
    verdict = place.one('[outputs]\nequal = "99%"\n')
    assert not verdict.kept
    assert verdict.told == (
        "promised at least 99 %, found 95 % (97 % when the same setting is sent again)"
    )


@pytest.mark.parametrize(
    ("found", "more", "budget", "why"),
    [
        ([run()], {}, 'equal = "99%"', "outputs were not compared"),
        (rows(0), {}, 'setting = "off"\nequal = "99%"', "compared with it, and it with none"),
        (
            rows(0),
            {"model": Subject(name="llama-3.1-8b", load_format="dummy")},
            'equal = "99%"',
            "random weights: ties decide",
        ),
        ([], {}, 'setting = "gone"\nequal = "99%"', "no run is called gone"),
    ],
)
def test_what_was_not_compared_is_not_kept(place, found, more, budget, why):
    save(place, *(found or rows(0)), **more)
    verdict = place.one(f"[outputs]\n{budget}\n")
    assert not verdict.kept
    assert verdict.found_value is None
    assert why in verdict.note


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("equal = 0.99", "has no unit"),
        ('equal = "0%"', "promises nothing"),
        ("", "promises nothing"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(place, line, said):
    save(place, *rows(0))
    with pytest.raises(InputError) as error:
        place.gate(f"[outputs]\n{line}\n")
    assert said in f"{error.value.message} {error.value.hint}"


# -- the starting file ----------------------------------------------------------------------------


def test_a_starting_file_promises_them_where_there_is_evidence(place):
    save(place, *rows(1))
    text, result = start(place)
    assert '\n[gate.outputs]\nequal = "99%"  # as those of off; today 99.0 %\n' in text
    assert result.kept, result.broken


def test_what_is_broken_today_is_only_a_comment(place):
    save(place, *rows(30))
    text, result = start(place)
    assert '\n# [gate.outputs]\n# equal = "99%"  # as those of off; today 70.0 %; broken' in text
    assert result.kept


@pytest.mark.parametrize("load_format", ["dummy", "auto"])
def test_without_evidence_there_is_no_promise(place, load_format):
    model = Subject(name="llama-3.1-8b", load_format=load_format)
    save(place, *(rows(0) if load_format == "dummy" else [run()]), model=model)
    text, _ = start(place)
    assert "gate.outputs" not in text
