"""`chunkscope verify` against a real engine: a tiny model, on the CPU.

Starting an engine takes half a minute, so each test asks as much of one as it can.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.console import Progress
from chunkscope.diagnosis.doctor import doctor
from chunkscope.hardware.calibration import Calibration
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import Profile
from chunkscope.models import find_model
from chunkscope.planning.recommend import recommend
from chunkscope.planning.rule import LengthRule
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.workload import BATCH, Session, Turn, Workload
from chunkscope.verification.calibrate import BURSTS
from chunkscope.verification.engine_run import EngineJob, measure
from chunkscope.verification.result import PromptSource, Verification
from chunkscope.verification.settings import SettingRow
from chunkscope.verification.task import warm_up
from chunkscope.verification.verify import (
    ALWAYS,
    simulated_as_measured,
    with_prediction,
)
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry, Task
from chunkscope.vllm.flags import release
from chunkscope.vllm.log.failures import Status
from chunkscope.vllm.settings import Settings
from tests.build import profile, verification
from tests.processes import PATIENCE_S, members, named, started, wait_until

pytestmark = pytest.mark.real

TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 1024,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SHORT, LONG = [40, 60, 90, 120], [700, 1_000, 1_300]
ONLY_PLAN = ("--against", "none", "--requests", "11", "--repeats", "1")


class Workplace:
    """A folder with a tiny model, a profile and a plan.

    And every process started from it.
    """

    def __init__(self, folder: Path, vllm_python: str, version: str) -> None:
        self.folder = folder
        self.groups: set[int] = set()
        self.output = folder / "reports" / "verify.json"
        (folder / "tiny").mkdir()
        (folder / "tiny" / "config.json").write_text(json.dumps(TINY))
        made = profile(short=SHORT * 2, long=LONG)
        made.save(folder / "reports" / "profile.json")
        self.profile = made
        self.version = version
        self.plan()
        self.environment = {
            **os.environ,
            "CHUNKSCOPE_VLLM_PYTHON": vllm_python,
            "COLUMNS": "100",
        }

    def plan(self, **request: str) -> None:
        planned = recommend(
            self.profile,
            model=str(self.folder / "tiny"),
            vllm_version=self.version,
            max_output=8,
            mode="aggressive",
            rule=LengthRule(aggressive_factor=0.26),  # a threshold of about 300
            **request,
        )
        planned.save(self.folder / "reports" / "plan.json")

    def start(
        self, *words: str, load_format: str = "dummy", kv_bytes: int = 64 << 20
    ) -> "AbstractContextManager[subprocess.Popen[str]]":
        # bfloat16 needs instructions not every CPU has
        engine = (
            "dtype=float32",
            "enforce_eager=true",
            f"kv_cache_memory_bytes={kv_bytes}",
        )
        words += tuple(word for text in engine for word in ("--engine-arg", text))
        return started(
            [
                sys.executable,
                "-m",
                "chunkscope",
                "verify",
                "--load-format",
                load_format,
                *words,
            ],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, code: int = 0, **how: object) -> Verification:
        with self.start(*words, **how) as process:
            _, told = process.communicate(timeout=2 * PATIENCE_S)
        assert process.returncode == code, told
        return Verification.load(self.output)

    def processes(self, name: str = "") -> list[int]:
        """Everything alive in our guards' groups.

        With a name, those that have it, and no guard.
        """
        self.groups |= named("chunkscope_guard", str(self.folder))  # its log is there
        ours = {process for group in self.groups for process in members(group)}
        return sorted((ours & named(name)) - self.groups if name else ours)

    def wait_for_engine(self) -> int:
        wait_until(lambda: self.processes("EngineCore"))
        return self.processes("EngineCore")[0]

    def wait_until_nothing_is_left(self) -> None:
        wait_until(lambda: not self.processes())


def wait_for(process: "subprocess.Popen[str]", words: str) -> str:
    """Read what it says until it says that."""
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    pytest.fail(f"{words!r} was never said:\n{said}")


# Random weights, so large that one token clearly wins: of those that vLLM makes for
# `--load-format dummy` all tokens are all but equally likely, and rounding decides.
SAVE_MODEL = """
import json, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM

folder, config = sys.argv[1], json.loads(sys.argv[2])
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**config))
for name, weights in model.named_parameters():
    if weights.dim() == 2:
        scale = 3.0 if "lm_head" in name else 2.0
        spread = 1.0 if "embed" in name else scale / weights.shape[-1] ** 0.5
        weights.data.normal_(0, spread)
model.save_pretrained(folder)
"""


def save_model(folder: Path, vllm_python: str) -> None:
    """Weights that decide the answers, made by the Python that has torch."""
    words = [vllm_python, "-c", SAVE_MODEL, str(folder), json.dumps(TINY)]
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture(scope="session")
def version(installed):
    return installed[0]


@pytest.fixture
def place(tmp_path, vllm_python, version):
    made = Workplace(tmp_path, vllm_python, version)
    yield made
    for process in made.processes():
        os.kill(process, signal.SIGKILL)


@pytest.fixture(scope="module")
def measured(tmp_path_factory, vllm_python, version):
    """Two settings, measured once for several tests.

    Weights that make one token clearly win.
    """
    place = Workplace(tmp_path_factory.mktemp("verify"), vllm_python, version)
    save_model(place.folder / "tiny", vllm_python)
    result = place.run(
        *("--check-outputs", "--against", "off"),
        *("--requests", "11", "--repeats", "2", "--max-output", "4"),
        load_format="auto",
    )
    return place, result


def test_each_setting_is_a_row_and_nothing_is_left_running(measured) -> None:
    place, result = measured
    assert [run.setting for run in result.runs] == ["plan", "off"]
    assert all(run.ok and len(run.repeats) == 2 for run in result.runs)
    assert (result.machine.device, result.verdict is not None) == ("cpu", True)
    lengths = Counter(request.prompt_tokens for request in result.workload.requests)
    assert lengths == Counter(SHORT * 2 + LONG)
    place.wait_until_nothing_is_left()


def test_every_token_that_was_asked_for_came_and_none_out_of_the_cache(
    measured,
) -> None:
    _, result = measured
    for repeat in (repeat for run in result.runs for repeat in run.repeats):
        assert round(repeat.output_tokens_per_s * repeat.makespan_s) == 11 * 4
        computed = repeat.tokens_per_step * repeat.steps
        assert (
            round(computed) == sum(SHORT * 2 + LONG) + 11 * 3
        )  # the last is not fed back
        assert repeat.prefix_hit_rate == 0.0


def test_the_steps_are_kept_to_calibrate_a_simulation(measured) -> None:
    place, result = measured
    steps = Calibration.load(
        place.folder / "reports" / "calibration-cpu-tiny.json"
    ).steps
    assert set(steps.setting) == {*(run.setting for run in result.runs), BURSTS}
    burst = [
        n
        for s, n in zip(steps.setting, steps.decode_requests, strict=True)
        if s == BURSTS
    ]
    assert {1, 8} <= set(
        burst
    )  # lone requests and several, whatever the workload shows
    assert max(burst) > 11
    off = [
        n
        for s, n in zip(steps.setting, steps.prefill_tokens, strict=True)
        if s == "off"
    ]
    assert max(off) >= max(LONG)
    assert all(duration > 0 for duration in steps.duration_s)


def test_the_simulator_makes_the_steps_that_the_engine_made(measured) -> None:
    """All requests wait in the engine when the clock starts: repeats are alike."""
    place, result = measured
    version = release(result.machine.vllm)
    tiny = Engine(release=version, shape=find_model(place.folder / "tiny"))
    for run in result.runs:
        assert run.notes == ()
        is_off = run.is_called("off")
        assert run.engine["enable_chunked_prefill"] is (not is_off)
        simulated = simulated_as_measured(run, result, tiny)
        for name in ("steps", "chunked_prompts", "chunks_max", "preemptions"):
            expected = {getattr(simulated.figures, name)}
            assert {getattr(repeat, name) for repeat in run.repeats} == expected
        assert bool(run.figures.chunked_prompts) is (not is_off)


def test_outputs_are_compared_with_those_without_chunks(measured) -> None:
    """How many are equal depends on the CPU. That the weights decide does not."""
    _, result = measured
    plan, off = result.runs
    assert (plan.outputs.reference, off.outputs.reference) == ("off", None)
    assert plan.outputs.equal >= 0.5
    assert all(r.outputs.again >= 0.5 for r in result.runs)
    answers = off.outputs.answers
    assert (len(answers), {len(answer) for answer in answers}) == (11, {32})
    assert len(set(answers)) > 5, "each prompt has an answer of its own"


def test_a_killed_engine_is_a_row_ctrl_c_is_resumed_and_nothing_outlives_chunkscope(
    place,
) -> None:
    """Likelihoods: one token each, and no cache is read."""
    place.plan(task="loglikelihood")
    words = (
        *ONLY_PLAN,
        "--also",
        "max-num-seqs=8",
        "--check-outputs",
        "--arrivals",
        "2/s",
    )
    with place.start(*words) as process:
        wait_for(process, "measuring")
        os.kill(place.wait_for_engine(), signal.SIGKILL)
        wait_for(process, "(2 of 2)")
        place.wait_for_engine()
        assert len(place.processes()) >= 3  # the guard, vLLM, its engine
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    place.wait_until_nothing_is_left()
    (died,) = Verification.load(place.output).runs
    assert (died.status, died.failure.values["phase"]) == (Status.DIED, "measuring")
    assert (place.output.parent / died.log).stat().st_size > 0
    with place.start(*words, "--resume") as process:
        wait_for(process, "(2 of 2)")
        place.wait_for_engine()
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    place.wait_until_nothing_is_left()
    (run,) = Verification.load(place.output).runs
    assert round(run.figures.output_tokens_per_s * run.figures.makespan_s) == 11
    assert (run.figures.prefix_hit_rate, run.figures.itl_s) == (0.0, None)
    assert {len(answer) for answer in run.outputs.answers} == {32}
    place.run(*words[:-2], "--resume", code=3)  # another workload


def test_what_vllm_refuses_and_what_does_not_fit_are_rows_too(place) -> None:
    """A KV cache that is too small for one request of max_model_len."""
    also = ("--also", "max-num-batched-tokens=16,max-num-seqs=32")
    too_small, refused = place.run(*ONLY_PLAN, *also, kv_bytes=100_000, code=5).runs
    assert too_small.status is Status.OUT_OF_MEMORY
    assert "KV cache" in too_small.failure.values["detail"]
    assert refused.status is Status.REFUSED
    assert "max_num_seqs" in refused.failure.values["detail"]
    told = [
        doctor(place.output.parent / run.log).symptoms[0].title
        for run in (too_small, refused)
    ]
    assert [title.code for title in told] == [
        "ended_context_too_long",
        "ended_refused_arguments",
    ]
    assert "max_num_seqs (32)" in told[1].values["reason"]
    place.environment["HF_HUB_OFFLINE"] = "1"
    before = place.output.read_bytes()
    place.run(
        "--model", "llama-3.1-8b", load_format="auto", code=4
    )  # no other setting is tried
    assert place.output.read_bytes() == before


def test_hits_of_real_prompts_are_predicted_as_an_engine_measures_them(place) -> None:
    """Few-shot prompts of eight tasks in turn: more than this KV cache remembers."""
    # The model's vocabulary is the default tokenizer's.
    config = {**TINY, "vocab_size": 131_072}
    (place.folder / "tiny" / "config.json").write_text(json.dumps(config))
    shots = [
        f"Task {n}: how many corners has a cube, and how many sides? " * 30
        for n in range(8)
    ]
    asked = "what is it? "
    rows = [f"{shots[n % 8]} Question {n}: {asked * (7 * n % 40)}" for n in range(40)]
    lines = (json.dumps({"prompt": row}) + "\n" for row in rows)
    (place.folder / "data.jsonl").write_text("".join(lines))
    for words in (["analyze", "data.jsonl"], ["recommend", "--model", "tiny"]):
        subprocess.run(
            [sys.executable, "-m", "chunkscope", *words],
            cwd=place.folder,
            env=place.environment,
            capture_output=True,
            check=True,
        )
    words = (
        "--against",
        "none",
        "--data",
        "data.jsonl",
        "--requests",
        "40",
        "--repeats",
        "2",
    )
    result = place.run(*words, "--max-output", "4", kv_bytes=2_306_867)
    assert result.source == PromptSource(datasets=("data",))
    counted = Profile.load(place.folder / "reports" / "profile.json").overall
    lengths = LengthHistogram.of(
        request.prompt_tokens for request in result.workload.requests
    )
    assert lengths == counted
    (run,) = result.runs
    off_by = [
        abs(r.prefix_hit_rate - run.predicted_prefix_hit_rate) for r in run.repeats
    ]
    assert sum(off_by) / len(off_by) <= 0.003
    assert max(off_by) <= 0.01
    ample = replace(run, engine={**run.engine, "num_gpu_blocks": 10_000})
    shape = find_model(place.folder / "tiny")
    ideal = with_prediction(ample, shape, result)
    assert 0 < run.predicted_prefix_hit_rate < ideal.predicted_prefix_hit_rate


# -- sessions --------------------------------------------------------------------------

BLOCK = 128  # tokens, as vLLM has it on a CPU
# Each keeps all that was said; the last one keeps only a part of it.
GROWING = Session(
    turns=(
        Turn(prompt_tokens=700, output_tokens=20),
        Turn(prompt_tokens=1_000, output_tokens=30, kept_tokens=720, think_s=0.1),
        Turn(prompt_tokens=1_500, output_tokens=5, kept_tokens=1_030),
    ),
    stretch=0,
)
SHORTENED = Session(
    turns=(
        Turn(prompt_tokens=500, output_tokens=40),
        Turn(prompt_tokens=800, output_tokens=10, kept_tokens=300),
    ),
    stretch=0,
)
SESSIONS = Workload(
    sessions=(GROWING, SHORTENED, GROWING),
    stretches=(Stretch(parent=-1, tokens=256),),
    samples_at_once=1,
    seed=0,
    arrivals=BATCH,
    task=Task.GENERATE,
)


@pytest.fixture(scope="module")
def talked(tmp_path_factory, vllm_python):
    """Sessions that follow each other on a real engine, and the model's folder."""
    folder = tmp_path_factory.mktemp("sessions")
    (folder / "config.json").write_text(json.dumps(TINY))
    engine = {
        **ALWAYS,
        "model": str(folder),
        "load_format": "dummy",
        "dtype": "float32",
        "enforce_eager": True,
        "kv_cache_memory_bytes": 64 << 20,
    }
    job = EngineJob(
        python=vllm_python,
        engine=engine,
        entry=Entry.SERVE,
        workload=SESSIONS,
        warm_up=warm_up(SESSIONS, longest_prompt=1_500),
        repeats=2,
        timeout_s=PATIENCE_S,
    )
    row = SettingRow(name="plan", settings=Settings())
    run, record = measure(row, job, folder / "verify-plan.log", Progress())
    assert run.ok, record.log_text[-3_000:]
    return folder, run, record.machine


def test_a_turn_finds_all_full_blocks_of_what_was_said_before(talked):
    _, run, _ = talked
    rows = run.requests[0]
    # The last token of an answer is never computed.
    second, third = (719 // BLOCK * BLOCK, 1_029 // BLOCK * BLOCK)
    assert list(rows.turn) == [0, 1, 2, 0, 1, 0, 1, 2]
    assert list(rows.cached_tokens[:3]) == [0, second, third]
    assert rows.cached_tokens[4] == 300 // BLOCK * BLOCK


def test_sessions_find_in_the_cache_what_the_simulator_finds(talked):
    folder, run, machine = talked
    tiny = Engine(release=release(machine.vllm), shape=find_model(folder))
    sent = verification(workload=SESSIONS)
    simulated = simulated_as_measured(run, sent, tiny).rows
    for rows in run.requests:
        assert rows.prompt_tokens == simulated.prompt_tokens
        assert rows.cached_tokens == simulated.cached_tokens
        assert rows.output_tokens == simulated.output_tokens


def test_one_session_at_a_time_waits_and_follows_the_one_before(talked):
    _, run, _ = talked
    rows = run.requests[0]
    assert rows.start_us[1] - rows.end_us[0] >= 100_000
    assert rows.start_us[3] >= rows.end_us[2]
