"""`chunkscope simulate` as a user meets it: stdout, stderr, exit codes, the artefact."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.planning.plan import Plan
from chunkscope.simulation.result import Simulation
from chunkscope.vllm.settings import Settings
from tests.commands.test_recommend import chunkscope
from tests.conftest import REPOSITORY
from tests.hardware.test_cost_model import calibration
from tests.processes import ended_by_ctrl_c, hears_ctrl_c, members, started, wait_until

TRACE = (
    '{"timestamp": 0, "input_length": 4000, "output_length": 20}\n'
    '{"timestamp": 40, "input_length": 100, "output_length": 30}\n'
    '{"timestamp": 900, "input_length": 9000, "output_length": 5}\n'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile of the sample data and a plan for an H200 in reports/."""
    place = tmp_path_factory.mktemp("simulate")
    for words in (
        ["analyze", str(REPOSITORY / "sample_data")],
        [
            "recommend",
            "-m",
            "llama-3.1-8b",
            "--gpu",
            "h200",
            "--vllm-version",
            "0.28.0",
            "--policy",
            "lengths",
        ],
    ):
        done = chunkscope(*words, cwd=place)
        assert done.returncode == 0, done.stderr
    calibration().save(place / "calibration.json")
    (place / "trace.jsonl").write_text(TRACE)
    return place


def simulated(folder: Path, *words: str) -> Simulation:
    run = chunkscope("simulate", *words, "-o", "simulation.json", cwd=folder)
    assert run.returncode == 0, run.stderr
    return Simulation.load(folder / "simulation.json")


def test_requests_are_sent_in_the_datas_order_unless_asked_otherwise(folder: Path) -> None:
    found = {words: simulated(folder, *words) for words in ((), ("--order", "longest"))}
    assert [one.workload.order for one in found.values()] == ["data", "longest"]
    usual, longest = (one.run for one in found.values())
    assert usual.input_tokens == longest.input_tokens
    assert usual.figures.ttft_s != longest.figures.ttft_s
    assert 0 < usual.cached_tokens < 0.05 * usual.input_tokens
    assert "in the data's order" in chunkscope("simulate", "-o", "s.json", cwd=folder).stdout


def test_the_plans_order_and_prefix_are_those_of_its_simulation(folder: Path) -> None:
    words = ["-m", "llama-3.1-8b", "--gpu", "h200", "--order", "shuffled", "--shared-prefix", "32"]
    run = chunkscope("recommend", *words, "-o", "shuffled.json", cwd=folder)
    assert run.returncode == 0, run.stderr
    profile = ("--profile", "reports/profile.json")
    found = simulated(folder, "shuffled.json", *profile)
    assert (found.workload.order, found.workload.shared_prefix) == ("shuffled", 32)
    assert (
        simulated(folder, "shuffled.json", *profile, "--shared-prefix", "0").run.cached_tokens == 0
    )


def test_a_trace_has_an_order_of_its_own(folder: Path) -> None:
    run = chunkscope("simulate", "--trace", "a.jsonl", "--order", "longest", cwd=folder)
    assert run.returncode == 2
    assert "a trace has its own" in run.stderr


def test_the_plan_stands_beside_vllms_own_setting(folder: Path) -> None:
    found = simulated(folder)
    assert [run.setting for run in found.runs] == ["plan", "default"]
    assert found.run.requests == 850
    assert found.run.args.long_prefill_token_threshold == 2_303
    assert found.runs[1].args.long_prefill_token_threshold == 0
    assert found.cost_model.source == "roofline"


def test_what_the_length_policy_says_is_a_row_where_it_differs(folder: Path) -> None:
    """The plan here was made by that policy, so it shares the plan's row."""
    assert simulated(folder).run.same_as == ("length-policy",)
    words = ("--max-num-seqs", "64", "--requests", "100")
    found = simulated(folder, *words)
    assert [run.setting for run in found.runs] == ["asked", "default", "length-policy"]
    assert [run.args.long_prefill_token_threshold for run in found.runs] == [2_303, 0, 2_303]
    assert [run.args.max_num_seqs for run in found.runs] == [64, 1_024, 1_024]
    assert simulated(folder, *words, "--trace", "trace.jsonl").runs[2].setting == "length-policy"


def test_a_row_that_cannot_take_the_requests_is_left_out_with_a_note(folder: Path) -> None:
    plan = Plan.load(folder / "reports" / "plan.json")
    narrow = replace(plan, rule=Settings(max_model_len=64))
    narrow.save(folder / "narrow.json")
    found = simulated(folder, "narrow.json", "--profile", "reports/profile.json")
    assert [run.setting for run in found.runs] == ["plan", "default"]
    assert any(line.startswith("length-policy is left out: ") for line in found.warnings)


def test_json_is_the_artefact_and_nothing_else(folder: Path) -> None:
    run = chunkscope("simulate", "--json", "-o", "s.json", cwd=folder)
    document = json.loads(run.stdout)
    assert document == json.loads((folder / "s.json").read_text())
    assert document["schema"] == "chunkscope/simulation/2"
    assert document["cost_model"]["coefficients"]["fixed_s"] > 0
    first = document["runs"][0]
    figures = first["figures"]
    assert {"makespan_s", "itl_s", "e2e_s", "steps", "chunked_prompts"} <= set(figures)
    assert set(figures["ttft_s"]) >= {"p50", "p95", "p99", "max"}
    assert {"args", "kv_peak_tokens"} <= set(first)


def test_a_seed_decides_to_the_byte(folder: Path) -> None:
    def bytes_of(*words: str) -> bytes:
        simulated(folder, *words)
        made = (folder / "simulation.json").read_bytes()
        assert b"created" not in made  # no date, so that it also holds tomorrow
        return made

    poisson = ("--arrivals", "20/s", "--requests", "300")
    assert bytes_of(*poisson) == bytes_of(*poisson)
    assert bytes_of(*poisson) != bytes_of(*poisson, "--seed", "1")


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize(
    "words",
    [["--timeline", "6"], ["--max-num-seqs", "64"], ["--sweep"]],
    ids=["one", "three", "sweep"],
)
def test_no_line_is_wider_than_the_terminal(folder: Path, columns: int, words: list[str]) -> None:
    run = chunkscope("simulate", *words, "-o", "s.json", cwd=folder, columns=columns)
    assert run.returncode == 0, run.stderr
    assert max(len(line.rstrip()) for line in run.stdout.splitlines()) <= columns
    assert "predicted" in run.stdout
    assert "roofline" in run.stdout


def test_a_sweep_marks_the_front_and_names_the_knee(folder: Path) -> None:
    run = chunkscope("simulate", "--sweep", "-o", "simulation.json", cwd=folder)
    assert "* knee" in run.stdout
    assert "The knee is" in " ".join(run.stdout.split())
    found = Simulation.load(folder / "simulation.json")
    assert len(found.runs) == 12, "eleven points, and the plan, whose threshold is none of them"
    assert {"plan", "default"} <= {
        name for run in found.runs for name in (run.setting, *run.same_as)
    }
    assert found.knee in found.pareto


def test_arguments_on_the_command_line_replace_the_plans(folder: Path) -> None:
    words = ("--max-num-batched-tokens", "512", "--long-prefill-token-threshold", "0",
             "--max-num-seqs", "64", "--kv-cache-tokens", "50000")  # fmt: skip
    found = simulated(folder, *words)
    args = found.run.args
    assert found.run.setting == "asked"
    assert (args.max_num_batched_tokens, args.max_num_seqs) == (512, 64)
    assert (args.long_prefill_token_threshold, args.kv_cache_tokens) == (0, 50_000)
    assert found.runs[1].args.max_num_batched_tokens == 8_192


def test_requests_can_be_replayed_from_a_trace(folder: Path) -> None:
    found = simulated(folder, "--trace", "trace.jsonl")
    assert found.run.requests == 3
    assert found.run.figures.makespan_s > 0.9
    assert found.workload.arrivals == "as in the trace"


def test_a_calibration_of_this_engine_is_used_as_it_is(folder: Path) -> None:
    found = simulated(folder, "--calibration", "calibration.json")
    assert found.cost_model.source == "calibrated"
    assert not [note for note in found.warnings if "assumed to have 256" not in note]


def test_a_calibration_of_another_version_is_scaled_with_a_warning(folder: Path) -> None:
    words = ("--calibration", "calibration.json", "--vllm-version", "0.32.0")
    run = chunkscope("simulate", *words, "-o", "simulation.json", cwd=folder)
    assert "note: the calibration is of vLLM 0.28.0, not 0.32.0" in run.stderr
    assert Simulation.load(folder / "simulation.json").cost_model.source == "scaled"


def test_a_sweep_leaves_out_what_has_no_room_for_a_request(folder: Path) -> None:
    """Steps of 65,536 tokens leave an L4 no KV cache beside an 8B model."""
    words = ("-m", "llama-3.1-8b", "--gpu", "l4", "--max-model-len", "30000", "-o", "l4.json")
    assert chunkscope("recommend", *words, cwd=folder).returncode == 0
    words = ("l4.json", "--profile", "reports/profile.json", "--requests", "50", "--sweep")
    found = simulated(folder, *words)
    assert max(run.args.max_num_batched_tokens for run in found.runs) < 65_536
    assert any("65,536 tokens a step is left out: request" in line for line in found.warnings)


def test_no_figure_of_a_sweep_is_cut_at_80_columns(folder: Path) -> None:
    words = ("recommend", "-m", "llama-3.1-8b", "--gpu", "h200", "-o", "own.json")
    assert chunkscope(*words, cwd=folder).returncode == 0
    words = ("--profile", "reports/profile.json", "--sweep", "-o", "s.json")
    shown = chunkscope("simulate", "own.json", *words, cwd=folder).stdout
    table = shown.split("* No other setting")[0]
    assert "plan = vLLM's" in table
    assert "…" not in table
    assert [line[0] for line in table.splitlines() if line[:2].rstrip() in list("abcdefghijk")] == [
        *"abcdefghijk"
    ]


def test_an_experiment_says_that_vllm_cannot_run_it(folder: Path) -> None:
    run = chunkscope("simulate", "--policy", "by-length", "-o", "s.json", cwd=folder)
    assert "an experiment, vLLM cannot" in " ".join(run.stdout.split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["nope.json"], 3, "chunkscope recommend", id="no plan yet"),
        pytest.param(["trace.jsonl"], 3, "trace.jsonl is data, not a plan", id="data"),
        pytest.param(["--profile", "nope.json"], 3, "chunkscope analyze", id="no profile yet"),
        pytest.param(["--trace", "nope.jsonl"], 3, "no such file", id="no trace"),
        pytest.param(["--calibration", "trace.jsonl"], 3, "damaged", id="no calibration"),
        pytest.param(["--kv-cache-tokens", "2000"], 3, "can never fit", id="a cache too small"),
        pytest.param(["--max-num-batched-tokens", "0"], 2, "0", id="no budget"),
        pytest.param(
            ["--max-num-batched-tokens", "64", "--max-num-seqs", "128"], 2, "vLLM refuses",
            id="more requests than tokens",
        ),
        pytest.param(["--arrivals", "often"], 2, "--arrivals", id="no rate"),
        pytest.param(["--policy", "magic"], 2, "by-length", id="no such policy"),
        pytest.param(["--vllm-version", "0.9"], 2, "older", id="a version too old"),
    ],
)  # fmt: skip
def test_a_mistake_gets_a_sentence_and_its_exit_code(
    folder: Path, words: list[str], code: int, said: str
) -> None:
    run = chunkscope("simulate", *words, "-o", "none.json", cwd=folder)
    assert run.returncode == code, run.stderr
    assert said in run.stderr
    assert "Traceback" not in run.stderr
    assert not run.stdout
    assert not (folder / "none.json").exists(), "nothing half-written"


def test_a_plan_without_a_gpu_says_what_is_missing(folder: Path) -> None:
    done = chunkscope("recommend", "-o", "bare.json", cwd=folder)
    assert done.returncode == 0
    run = chunkscope("simulate", "bare.json", "-o", "none.json", cwd=folder)
    assert run.returncode == 4
    assert "--gpu h200" in run.stderr
    words = ("--calibration", "calibration.json", "--kv-cache-tokens", "500000",
             "--max-num-batched-tokens", "8192", "--max-num-seqs", "256")  # fmt: skip
    run = chunkscope("simulate", "bare.json", *words, "-o", "s.json", cwd=folder)
    assert run.returncode == 0, run.stderr


def test_ctrl_c_ends_a_sweep_soon_and_leaves_nothing(folder: Path) -> None:
    rows = "".join(
        json.dumps({"timestamp": n, "input_length": 900, "output_length": 400}) + "\n"
        for n in range(30_000)
    )
    (folder / "long.jsonl").write_text(rows)
    with started(
        [sys.executable, "-m", "chunkscope", "simulate", "--sweep", "--trace", "long.jsonl"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        # It is deaf while it starts the processes of the sweep, so that they are.
        wait_until(lambda: len(members(process.pid)) > 2 and hears_ctrl_c(process.pid))
        ended_by_ctrl_c(process)
        wait_until(lambda: not members(process.pid))


def test_a_sweep_can_watch_the_plans_first_steps_too(folder: Path) -> None:
    found = simulated(folder, "--sweep", "--timeline", "5")
    watched = [run for run in found.runs if run.timeline]
    assert [(run.setting, len(run.timeline)) for run in watched] == [("plan", 5)]
    assert watched[0].args.long_prefill_token_threshold == 2_303


def test_the_artefact_says_which_command_made_it(folder: Path) -> None:
    found = simulated(folder, "--requests", "20")
    assert found.command[:4] == ("chunkscope", "simulate", "--requests", "20")


def test_an_asked_setting_is_called_so_in_a_sweep(folder: Path) -> None:
    found = simulated(folder, "--sweep", "--timeline", "5", "--max-num-seqs", "64")
    assert [run.setting for run in found.runs if run.timeline] == ["asked"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--max-num-batched-tokens", "1024"], False, id="it is 1,024 anyway"),
        pytest.param(["--max-num-batched-tokens", "512"], True, id="fewer tokens than requests"),
        pytest.param(
            ["--max-num-batched-tokens", "512", "--max-num-seqs", "512"], False, id="asked"
        ),
    ],
)
def test_lowered_is_said_only_of_what_was_lowered(
    folder: Path, words: list[str], *, said: bool
) -> None:
    found = simulated(folder, *words, "--requests", "50")
    assert any("max_num_seqs is lowered" in note for note in found.warnings) is said


def test_another_version_has_its_own_defaults(folder: Path) -> None:
    """Since 0.28 a B200 takes twice as many tokens per step as before."""
    plan = ("recommend", "-m", "llama-3.1-8b", "--gpu", "b200", "-o", "b200.json")
    chunkscope(*plan, "--vllm-version", "0.32", cwd=folder)
    data = ("b200.json", "--profile", "reports/profile.json", "--requests", "50")
    budgets = {}
    for version in ("0.32", "0.24"):
        default = simulated(folder, *data, "--vllm-version", version).runs[-1]
        budgets[version] = default.args.max_num_batched_tokens
    assert budgets == {"0.32": 16_384, "0.24": 8_192}


def test_the_kv_cache_is_the_memory_models(folder: Path) -> None:
    """4,096 requests at once need room for their logits: the same answer, whoever asks."""
    found = simulated(folder, "--max-num-seqs", "4096", "--requests", "50").run.args
    there = Plan.load(folder / "reports" / "plan.json").deployment
    assert there.memory(found).kv_cache_tokens == found.kv_cache_tokens
    assert found.kv_cache_tokens < 905_000


# -- limits and rates ----------------------------------------------------------------------------


def test_limits_are_shown_with_room_and_goodput(folder: Path) -> None:
    words = ("--arrivals", "4/s", "--slo", "ttft_p95=1s,itl_p99=1ms")
    run = chunkscope("simulate", *words, "-o", "s.json", cwd=folder)
    said = " ".join(run.stdout.split())
    assert "itl_p99, limit 1 ms ! " in said
    assert "goodput, requests per second 0 0" in said
    assert "With the plan limits are broken: itl_p99 is" in said
    found = Simulation.load(folder / "s.json")
    assert found.run.slo is not None
    assert found.run.slo.tightest.name == "itl_p99"


def test_the_highest_rate_of_each_setting_is_found(folder: Path) -> None:
    words = ("--find-rate", "--slo", "ttft_p95=1s,itl_p99=50ms", "--requests", "1000")
    run = chunkscope("simulate", *words, "-o", "s.json", cwd=folder, columns=80)
    assert run.returncode == 0, run.stderr
    assert max(len(line.rstrip()) for line in run.stdout.splitlines()) <= 80
    assert "saturation" in run.stdout
    assert "p95 time to first token (logarithmic; dotted: the limit)" in run.stdout
    assert "p99 gap between tokens (logarithmic; dotted: the limit)" in run.stdout
    found = Simulation.load(folder / "s.json")
    settings = [run.setting for run in found.runs]
    assert settings[:2] == ["plan", "default"]
    assert len(settings) == 5
    for one in found.runs:
        assert one.requests == 1_000
        assert one.slo is not None
        assert one.slo.is_met
        assert one.rate is not None
        assert one.rate.saturation_per_s is not None
        assert one.rate.saturation_per_s > (one.rate.rate_per_s or 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--slo", "ttft_p95"], "write it like"),
        (["--find-rate", "--arrivals", "4/s"], "leave --arrivals out"),
        (["--find-rate", "--concurrency", "8"], "leave --concurrency out"),
        (["--find-rate", "--sweep"], "leave --sweep out"),
        (["--find-rate", "--requests", "999"], "at least 1,000 requests"),
        (["--concurrency", "0"], "x>=1"),
    ],
)
def test_limits_and_rates_that_make_no_sense_are_a_usage_error(
    folder: Path, words: list[str], said: str
) -> None:
    run = chunkscope("simulate", *words, "-o", "never.json", cwd=folder)
    assert run.returncode == 2
    assert said in run.stderr
    assert not (folder / "never.json").exists()


def test_a_short_trace_is_sent_again_and_again(folder: Path) -> None:
    found = simulated(folder, "--find-rate", "--trace", "trace.jsonl", "--requests", "1000")
    assert found.run.requests == 1_000


def test_an_overload_is_said(folder: Path) -> None:
    run = chunkscope("simulate", "--sweep", "--arrivals", "400/s", "-o", "s.json", cwd=folder)
    said = " ".join(run.stdout.split())
    assert "Overloaded: requests come at 400/s, and the queue grows with a, b" in said
    assert "p95 time to first token" in said
    assert "makespan" not in said


def test_an_overload_by_a_trace_is_said(folder: Path) -> None:
    lines = (
        {"timestamp": 2 * n, "input_length": 2_000, "output_length": 64, "hash_ids": []}
        for n in range(400)
    )
    (folder / "busy.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run = chunkscope("simulate", "--trace", "busy.jsonl", "-o", "s.json", cwd=folder)
    said = " ".join(run.stdout.split())
    assert "Overloaded: requests come as in the trace, and the queue grows with" in said, run.stderr


def test_an_output_length_that_nobody_knows_is_called_assumed(folder: Path) -> None:
    said = "answers are assumed to have 256 tokens"
    assert said in chunkscope("simulate", cwd=folder).stderr
    assert said not in chunkscope("simulate", "--max-output", "256", cwd=folder).stderr
