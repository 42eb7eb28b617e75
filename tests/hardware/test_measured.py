"""Predictions of memory and step time against an H200 that nobody fitted them to.

Kinds: reports/h200/kinds, of the models of tests/benchmarks/kinds.py. The held-out rows were
measured while nobody knew them who could set a constant; predicted.jsonl was on main before.

Dense models: measured on 2026-11-15 with vLLM 0.24.0 as torch saw them (peaks while one prompt of
32,704 tokens and 32 of 400 run), random bf16 weights, max_model_len 32768, gpu_memory_utilization
0.9, eager, max_num_seqs 1024.
"""

import json
import re
from dataclasses import replace

import pytest

from chunkscope.hardware.accuracy import MEASURED, traits_of, unlike_measured
from chunkscope.hardware.gpus import find_gpu
from chunkscope.models import find_model
from chunkscope.planning.request import PlanRequest
from chunkscope.planning.simulator import Simulator
from chunkscope.simulation.result import GAPS
from chunkscope.verification.result import Verification
from chunkscope.verification.verify import with_prediction
from chunkscope.vllm.deployment import Deployment
from chunkscope.vllm.flags import release
from chunkscope.vllm.settings import Settings
from tests.benchmarks import kinds_accuracy, measure_kinds
from tests.benchmarks.kinds import CONFIGS, shape_of
from tests.benchmarks.kinds_accuracy import (
    FOLDER,
    LIMITS,
    errors,
    key_of,
    measured,
    rows,
    table,
)
from tests.verification.test_real_verify import TINY

FIT = {key_of(row): row for row in rows(kinds_accuracy.FIT)}
HELD_OUT = {key_of(row): row for row in rows(kinds_accuracy.HELD_OUT)}
# What is further off than was asked for: mostly the host is the limit, and it is not steady.
TIMES = {name for name in LIMITS if name.endswith("_s")}
MISSED = {
    ("gpt-oss-20b", 2_048): TIMES,
    ("qwen3-15b-a2b", 2_048): TIMES,
    ("granite-3.1-1b-a400m", 2_048): TIMES,
    ("granite-3.1-1b-a400m", 8_192): {"ttft_p50_s", "ttft_p95_s"},
    ("olmoe-1b-7b", 2_048): {"activation_gib"},
    ("llama-3.2-1b", 2_048): {"makespan_s"},
    ("youtu-llm-2b", 2_048): TIMES,
    (
        "ernie-4.5-21b-a3b",
        8_192,
    ): TIMES,  # random weights chose experts neither alike nor evenly
    ("ernie-4.5-21b-a3b", 2_048): {"itl_p50_s"},
    ("phi-3.5-moe", 8_192): {"makespan_s", "itl_p50_s"},  # nor here
    ("phi-3.5-moe, even", 8_192): {"itl_p50_s"},  # where gaps beside prompts begin
    ("ernie-4.5-21b-a3b, even", 2_048): TIMES,
    ("moonlight-16b-a3b, even", 2_048): {"itl_p50_s"},
    ("phi-3.5-moe", 2_048): {"makespan_s"},
    ("granite-3.1-3b-a800m", 8_192): {"makespan_s", "ttft_p95_s"},
    ("deepseek-v3-medium", 2_048): {"itl_p50_s"},
}


def too_far(off):
    return {name for name, error in off.items() if abs(error) > LIMITS[name]}


@pytest.mark.parametrize("key", [*HELD_OUT, *FIT])
def test_rows_come_as_near_as_asked_but_for_what_is_named(key):
    """The KV cache of every one within a percent."""
    assert too_far(errors(HELD_OUT.get(key) or FIT[key])) == MISSED.get(key, set())


def test_33_of_42_rows_that_set_no_constant_are_as_near_as_asked():
    """Of a row that was measured again with experts drawn evenly, as predictions assume, that."""
    rows = [key for key in HELD_OUT if (f"{key[0]}, even", key[1]) not in HELD_OUT]
    assert (sum(key not in MISSED for key in rows), len(rows)) == (33, 42)


def test_no_held_out_row_is_predicted_worse_than_before_it_was_measured():
    lines = (FOLDER / "predicted.jsonl").read_text().splitlines()
    before = {key_of(one): one for one in map(json.loads, lines)}
    assert len({model for model, _ in HELD_OUT} - {model for model, _ in FIT}) >= 5
    for key, row in HELD_OUT.items():
        seen = measured(row)
        for name, error in errors(row).items():
            worst = max(LIMITS[name], abs(before[key][name] / seen[name] - 1))
            assert abs(error) <= worst + 0.02, (key, name)


def test_dense_models_that_nothing_was_fitted_to_come_as_near_on_first_starts():
    """The table of the README: KV within 0.4 %, makespans 2 %, p95 first tokens 4 %."""
    readme = (FOLDER.parent / "README.md").read_text()
    for file in sorted(FOLDER.parent.glob("first-starts/verify-*.json")):
        v = Verification.load(file)
        for run in v.runs:
            bare = replace(run, predicted=None, predicted_figures=None)
            model = find_model(v.model.name)
            today = with_prediction(bare, model, v.machine, v.workload)
            now, then = today.predicted_figures, run.figures
            off = {
                "KV cache": (
                    today.predicted.kv_cache_tokens,
                    run.kv_cache_tokens,
                    0.004,
                ),
                "makespan": (now.makespan_s, then.makespan_s, 0.02),
                "p50": (now.ttft_s.p50, then.ttft_s.p50, 0.09),
                "p95": (now.ttft_s.p95, then.ttft_s.p95, 0.04),
                "gap": (now.itl_s.p99, then.itl_s.p99, None),
            }
            budget, requests = (
                run.engine["max_num_batched_tokens"],
                len(v.workload.requests),
            )
            cells = [f"{v.model.name}, {budget:,}", str(requests)]
            for predicted, was, most in off.values():
                assert most is None or predicted == pytest.approx(was, rel=most), (
                    file,
                    run,
                )
                size = f"{was:,}" if isinstance(was, int) else f"{was:.3g} s"
                cells.append(f"{size} ({100 * (predicted / was - 1):+.1f} %)")
            assert f"| {' | '.join(cells)} |\n" in readme


@pytest.mark.parametrize(
    "traits", [t for t in MEASURED if t], ids=lambda t: "+".join(sorted(t))
)
def test_the_range_of_a_kind_is_that_of_its_rows(traits):
    """A faster host is no part of it: a plan's range begins at one that takes no time."""
    alike = {
        key: errors(row)["makespan_s"]
        for key, row in (FIT | HELD_OUT).items()
        if "repeats" in row and traits_of(shape_of(row["model"])) == traits
    }
    most = max(
        error for key, error in alike.items() if "makespan_s" not in MISSED.get(key, ())
    )
    assert MEASURED[traits] == pytest.approx((min(alike.values()), most), abs=0.006)


def test_how_much_longer_measured_gaps_were_than_predicted():
    most = [dict.fromkeys(GAPS[0], 0.0) for _ in GAPS]
    for file in FOLDER.parent.glob("**/verify*.json"):
        v = Verification.load(file)
        there = Deployment(
            release=release(v.machine.vllm),
            shape=find_model(v.model.name.removeprefix("./")),
            gpu=find_gpu("h200"),
        )
        simulator = Simulator(
            request=PlanRequest(), deployment=there, workload=v.workload
        )
        for run in v.runs if not v.workload.likelihoods else ():
            settings = Settings.of(run.engine).over(run.settings)
            predicted = simulator.run(settings).figures.itl_s
            gaps, worst = run.figures.itl_s, most[v.workload.arrivals != "batch"]
            worst["p99"] = max(worst["p99"], gaps.p99 / predicted.p99)
            worst["longest"] = max(worst["longest"], gaps.max / predicted.max)
    assert most == [pytest.approx(gaps, rel=0.05) for gaps in GAPS]


def test_the_readme_shows_every_row():
    text = (FOLDER.parent / "README.md").read_text()
    number = re.compile(r"[+-]\d+\.\d %")
    for file in (kinds_accuracy.FIT, kinds_accuracy.HELD_OUT):
        for line in table(file):
            shown = next(
                x for x in text.splitlines() if x.split("(")[0] == line.split("(")[0]
            )
            pairs = zip(number.findall(shown), number.findall(line), strict=True)
            assert all(abs(float(a[:-2]) - float(b[:-2])) <= 0.3 for a, b in pairs), (
                line
            )


@pytest.mark.real
@pytest.mark.usefixtures("vllm_python")
def test_one_command_measures_a_row_and_another_says_how_near(
    tmp_path, monkeypatch, capsys
):
    """On a CPU, where nothing is predicted well: a line, its table, and the host's times."""
    monkeypatch.setitem(CONFIGS, "tiny", {**TINY, "max_position_embeddings": 512})
    small = ("dtype=float32", "enforce_eager=true", "kv_cache_memory_bytes=67108864")
    words = [word for argument in small for word in ("--engine-arg", argument)]
    monkeypatch.setattr("sys.argv", ["", str(tmp_path), "tiny:1024", *words])
    measure_kinds.main()
    capsys.readouterr()
    rows, raw = tmp_path / "rows.jsonl", tmp_path / "raw" / "tiny-1024.json.gz"
    monkeypatch.setattr("sys.argv", ["", str(rows), str(raw), "tiny:1024"])
    kinds_accuracy.main()
    *_, row, predicted = capsys.readouterr().out.splitlines()
    assert row.startswith("| tiny, eager | 1,024 | 131,072 (")
    assert json.loads(predicted)["host"]["ungraphed_s"] > 0


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "unlike"),
    [
        (
            "deepseek-v3",
            "h200",
            1,
            {"kind": ", ".join(traits_of(find_model("deepseek-v3")))},
        ),
        ("llama-3.1-8b", "a100", 1, {"gpu": "NVIDIA A100-SXM4-80GB"}),
        ("qwen3-30b-a3b", "h200", 2, {"gpus": 2}),
        ("gemma-2-9b", "h200", 1, {}),
    ],
)
def test_what_was_never_measured_is_named_with_the_nearest_that_was(
    model, gpu, gpus, unlike
):
    note = unlike_measured(find_model(model), find_gpu(gpu), gpus)
    values = note.values if note else {}
    assert {
        name: values[name] for name in ("kind", "gpu", "gpus") if values.get(name)
    } == unlike
    if note:
        assert (values["least"], values["most"]) in MEASURED.values()


#  model               budget  weights GiB  activation GiB  KV tokens
DENSE = [
    ("llama-3.1-8b", 8192, 15.00, 0.912, 898_784),
    ("qwen2.5-7b", 2048, 14.32, 0.271, 2_043_056),
    ("qwen2.5-7b", 16384, 14.32, 2.172, 2_041_280),
    ("mistral-7b-v0.3", 2048, 13.51, 0.228, 916_224),
    ("mistral-7b-v0.3", 16384, 13.51, 1.688, 904_128),
    ("qwen3-8b", 2048, 15.27, 0.248, 796_624),
    ("qwen3-8b", 16384, 15.27, 1.625, 791_312),
    ("llama-3.2-1b", 2048, 2.32, 0.117, 4_014_016),
    ("qwen3-30b-a3b", 2048, 56.88, 0.226, 725_680),
    ("qwen3-30b-a3b", 16384, 56.88, 1.407, 715_520),
]


@pytest.mark.parametrize(("model", "budget", "weights", "activation", "tokens"), DENSE)
def test_memory_of_other_models_is_what_was_measured(
    model, budget, weights, activation, tokens
):
    """KV tokens within 0.25 %, weights within 1 %, large activation peaks within 10 %."""
    release_, shape = release("0.24"), find_model(model)
    there = Deployment(
        shape=shape, gpu=find_gpu("h200"), release=release_, cuda_graphs=False
    )
    bill = there.memory_model().memory(budget=budget, seqs=1024, utilization=0.9)
    assert bill.kv_cache_tokens == pytest.approx(tokens, rel=0.0025)
    assert bill.line("weights").gib == pytest.approx(weights, rel=0.01)
    if budget >= 8192 and shape.experts is None:
        assert bill.line("activation").gib == pytest.approx(activation, rel=0.1)
