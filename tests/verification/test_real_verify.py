"""`chunkscope verify` against a real engine: a tiny model with random weights, on the CPU.

Starting an engine takes half a minute, so each test asks as much of one as it can.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.hardware.calibration import Calibration
from chunkscope.hardware.step_time import StepModel
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import Profile
from chunkscope.models import find_model
from chunkscope.planning.recommend import recommend
from chunkscope.report.words.verdicts import verdict
from chunkscope.verification.calibrate import BURSTS
from chunkscope.verification.predicting import with_prediction
from chunkscope.verification.result import PromptSource, Verification
from chunkscope.vllm.log.failures import STARTING, Status, doing_in
from chunkscope.vllm.settings import EngineArgs
from tests.build import profile
from tests.processes import PATIENCE_S, started, wait_until
from tests.simulation.common import simulate
from tests.verification.weights import save_model

pytestmark = pytest.mark.real

TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 1024,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SHORT, LONG = [40, 60, 90, 120], [700, 1_000, 1_300]
# bfloat16 needs instructions not every CPU has
ENGINE = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 64 << 20}
MARK = "CHUNKSCOPE_TEST_RUN"
STEP = StepModel(
    fixed_s=1.0, per_token_s=0.0, per_prefill_pair_s=0.0, per_decode_context_s=0.0, origin="test"
)


def toml(value: object) -> str:
    """
    >>> toml({"eager": True})
    '{eager = true}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(part)}" for name, part in value.items()) + "}"
    return json.dumps(value)


class Workplace:
    """A folder with a tiny model, a profile and a plan; and every process started from it."""

    def __init__(self, folder: Path, vllm_python: str, version: str) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.sessions: set[int] = set()
        self.output = folder / "reports" / "verify.json"
        (folder / "tiny").mkdir()
        (folder / "tiny" / "config.json").write_text(json.dumps(TINY))
        made = profile(short=SHORT * 2, long=LONG)
        made.save(folder / "reports" / "profile.json")
        plan = recommend(made, model=str(folder / "tiny"), vllm_version=version, max_output=8)
        plan.save(folder / "reports" / "plan.json")
        self.environment = {
            **os.environ,
            "CHUNKSCOPE_VLLM_PYTHON": vllm_python,
            MARK: self.mark,
            "COLUMNS": "100",
        }

    def start(
        self, *words: str, load_format: str = "dummy", **options: object
    ) -> "AbstractContextManager[subprocess.Popen[str]]":
        """`options` stand in chunkscope.toml."""
        options = {"load_format": load_format, "engine_args": ENGINE, **options}
        given = (f"{name} = {toml(value)}" for name, value in options.items())
        (self.folder / "chunkscope.toml").write_text("\n".join(["[verify]", *given]))
        return started(
            [sys.executable, "-m", "chunkscope", "verify", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **options: object) -> "subprocess.CompletedProcess[str]":
        with self.start(*words, **options) as process:
            out, err = process.communicate(timeout=2 * PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def result(self) -> Verification:
        return Verification.load(self.output)

    def processes(self, name: str = "") -> list[int]:
        """Everything alive in our guards' sessions; vLLM overwrites its own environment.

        With a name, those that have it in their command, and no guard: it has all of it in its own.
        """
        alive = [process for process in map(_look_at, Path("/proc").iterdir()) if process]
        mark = f"{MARK}={self.mark}".encode()
        guards = [p for p in alive if mark in p["environ"] and b"chunkscope_guard" in p["words"]]
        self.sessions |= {guard["session"] for guard in guards}
        ours = [p for p in alive if p["session"] in self.sessions]
        named = [p for p in ours if p not in guards and name.encode() in p["words"]]
        return [p["id"] for p in (named if name else ours)]

    def wait_until_nothing_is_left(self) -> None:
        wait_until(lambda: not self.processes())


def _look_at(entry: Path) -> "dict | None":
    """A live process, as the kernel shows it."""
    if not entry.name.isdecimal():
        return None
    try:
        state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        words, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
    except OSError:
        return None
    if state in "ZX":
        return None
    return {"id": int(entry.name), "session": int(session), "words": words, "environ": environ}


def wait_for(process: "subprocess.Popen[str]", words: str) -> str:
    """Read what it says until it says that."""
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    pytest.fail(f"{words!r} was never said:\n{said}")


def signal_engine(place: Workplace, what: signal.Signals, name: str = "EngineCore") -> None:
    """Send it to the process that runs the engine, as soon as there is one."""
    wait_until(lambda: place.processes(name))
    for engine in place.processes(name):
        os.kill(engine, what)


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
    """Three settings, measured once for several tests; weights that make one token clearly win."""
    place = Workplace(tmp_path_factory.mktemp("verify"), vllm_python, version)
    save_model(place.folder / "tiny", TINY)
    done = place.run(
        *("--check-outputs", "--against", "off", "--also", "long-prefill-token-threshold=300"),
        *("--requests", "11", "--repeats", "2", "--max-output", "4"),
        load_format="auto",
    )
    assert done.returncode == 0, done.stderr
    return place, done


def test_each_setting_is_a_row_and_nothing_is_left_running(measured) -> None:
    place, done = measured
    result = place.result()
    names = ["plan", "off", "long-prefill-token-threshold=300"]
    assert [run.setting for run in result.runs] == names
    assert all(run.ok and len(run.repeats) == 2 for run in result.runs)
    assert result.machine.device == "cpu"
    assert verdict(result).partition(":")[0] in " ".join(done.stdout.split())
    place.wait_until_nothing_is_left()


def test_chunks_are_as_many_as_the_scheduler_must_make(measured) -> None:
    """The budget is ample, so only the threshold cuts: ceil(tokens / 300) steps per prompt."""
    place, _ = measured
    result = place.result()
    lengths = [request.prompt_tokens for request in result.workload.requests]
    assert Counter(lengths) == Counter(SHORT * 2 + LONG)
    off, capped = result.run("off"), result.run("long-prefill-token-threshold=300")
    assert off.engine["enable_chunked_prefill"] is False
    assert {repeat.chunked_prompts for repeat in off.repeats} == {0}
    assert {repeat.chunks_max for repeat in off.repeats} == {1}
    assert {repeat.chunked_prompts for repeat in capped.repeats} == {len(LONG)}
    assert {repeat.chunks_max for repeat in capped.repeats} == {-(-max(LONG) // 300)}


def test_every_token_that_was_asked_for_came(measured) -> None:
    place, _ = measured
    for run in place.result().runs:
        for repeat in run.repeats:
            made = repeat.output_tokens_per_s * repeat.makespan_s
            assert round(made) == 11 * 4
            computed = repeat.tokens_per_step * repeat.steps
            assert round(computed) == sum(SHORT * 2 + LONG) + 11 * 3  # the last is not fed back


def test_no_repeat_finds_prompts_of_the_one_before_in_the_cache(measured) -> None:
    place, _ = measured
    rates = {r.prefix_hit_rate for run in place.result().runs for r in run.repeats}
    assert rates == {0.0}


def test_the_steps_are_kept_to_calibrate_a_simulation(measured) -> None:
    place, _ = measured
    calibration = Calibration.load(place.folder / "reports" / "calibration-cpu-tiny.json")
    steps = calibration.steps
    assert set(steps.setting) == {*(run.setting for run in place.result().runs), BURSTS}
    burst = [n for s, n in zip(steps.setting, steps.decode_requests, strict=True) if s == BURSTS]
    assert {1, 8} <= set(burst)  # lone requests and several, whatever the workload shows
    assert max(burst) > 11
    off = [n for s, n in zip(steps.setting, steps.prefill_tokens, strict=True) if s == "off"]
    assert max(off) >= max(LONG)
    assert all(duration > 0 for duration in steps.duration_s)


def test_the_simulator_makes_the_steps_that_the_engine_made(measured) -> None:
    """All requests wait in the engine when the clock starts, so that every repeat is the same."""
    place, _ = measured
    result = place.result()
    for run in result.runs:
        assert run.notes == ()
        found = simulate(
            result.workload.requests, args_of(run.engine), STEP, vllm=result.machine.vllm
        )
        for name in ("steps", "chunked_prompts", "chunks_max", "preemptions"):
            expected = {getattr(found.figures, name)}
            assert {getattr(repeat, name) for repeat in run.repeats} == expected


def test_outputs_are_compared_with_those_without_chunks(measured) -> None:
    """How many are equal depends on the CPU. That the weights decide does not."""
    place, _ = measured
    result = place.result()
    off, others = result.run("off"), [r for r in result.runs if r.setting != "off"]
    assert off.outputs.reference is None
    assert [r.outputs.reference for r in others] == ["off", "off"]
    assert all(r.outputs.equal >= 0.5 for r in others)
    assert all(r.outputs.again >= 0.5 for r in result.runs)
    answers = off.outputs.answers
    assert (len(answers), {len(answer) for answer in answers}) == (11, {32})
    assert len(set(answers)) > 5, "each prompt has an answer of its own"


def args_of(engine: dict) -> EngineArgs:
    same = ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold", "block_size")
    return EngineArgs(
        **{name: engine[name] for name in same},
        enable_chunked_prefill=engine["enable_chunked_prefill"],
        enable_prefix_caching=engine["enable_prefix_caching"],
        async_scheduling=bool(engine["async_scheduling"]),
        kv_cache_tokens=engine["num_gpu_blocks"] * engine["block_size"],
    )


def test_an_engine_that_is_killed_is_a_row_and_can_be_measured_again(place) -> None:
    words = ["--against", "none", "--also", "max-num-seqs=8", "--requests", "11", "--repeats", "1"]
    with place.start(*words, "--arrivals", "1/s", shared_prefix=256) as process:
        wait_for(process, "measuring")
        signal_engine(place, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 5
    died, fine = place.result().runs
    assert died.status is Status.DIED
    assert died.failure.values["phase"] == "measuring"
    assert fine.ok
    assert fine.figures.prefix_hit_rate > 0  # the long prompts begin alike
    assert (place.output.parent / died.log).stat().st_size > 0
    again = place.run(*words, "--arrivals", "1/s", "--resume", shared_prefix=256)
    assert again.returncode == 0, again.stderr
    resumed = place.result().runs
    assert all(run.ok for run in resumed)
    assert resumed[1] == fine
    other = place.run(*words, "--resume", shared_prefix=256)
    assert other.returncode == 3
    assert "workload" in other.stderr


def test_an_engine_that_hangs_is_ended_when_its_time_is_over(place) -> None:
    with place.start("--against", "none", "--requests", "11", timeout_s=30.0) as process:
        wait_for(process, "loading")
        # At once: on a busy machine all the time may be over before there is an EngineCore.
        signal_engine(place, signal.SIGSTOP, "chunkscope_engine.py")
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 5
    run = place.result().run("plan")
    assert run.status is Status.TIMEOUT
    assert run.failure.values["phase"] == "loading"
    assert "30 s" in said
    place.wait_until_nothing_is_left()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "a kill"])
def test_nothing_outlives_chunkscope(place, how) -> None:
    with place.start("--against", "none", "--requests", "11") as process:
        wait_for(process, "loading")
        signal_engine(place, signal.SIGCONT)  # that is: wait until there is one
        assert len(place.processes()) >= 3  # the guard, vLLM, its engine
        process.send_signal(how)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL)
    place.wait_until_nothing_is_left()


def test_what_vllm_refuses_and_what_does_not_fit_are_rows_too(place) -> None:
    """A KV cache that is too small for one request of max_model_len."""
    also = ["--also", "max-num-batched-tokens=16,max-num-seqs=32"]
    engine = {**ENGINE, "kv_cache_memory_bytes": 100_000}
    done = place.run("--against", "none", *also, "--requests", "3", engine_args=engine)
    assert done.returncode == 5
    too_small, refused = place.result().runs
    assert too_small.status is Status.OUT_OF_MEMORY
    assert "KV cache" in too_small.failure.values["detail"]
    assert refused.status is Status.REFUSED
    assert "max_num_seqs" in refused.failure.values["detail"]


def test_likelihoods_send_one_token_and_read_no_cache(place) -> None:
    words = ["--against", "none", "--requests", "11", "--repeats", "1", "--check-outputs"]
    done = place.run(*words, task="loglikelihood", shared_prefix=256)
    assert done.returncode == 0, done.stderr
    run = place.result().run("plan")
    assert len(run.outputs.answers) == 11
    assert {len(answer) for answer in run.outputs.answers} == {32}
    log = (place.output.parent / run.log).read_text(encoding="utf-8", errors="replace")
    # What is seen of it on the way depends on when one looks: a tiny model is loaded at once.
    assert doing_in(log) in STARTING, "what it did before it was ready"
    assert round(run.figures.output_tokens_per_s * run.figures.makespan_s) == 11
    assert run.figures.prefix_hit_rate == 0.0
    assert run.figures.itl_s is None


def analyzed(place: Workplace, rows: list[str]) -> None:
    """A profile and a plan of these prompts; the model's vocabulary is the default tokenizer's."""
    config = {**TINY, "vocab_size": 131_072}
    (place.folder / "tiny" / "config.json").write_text(json.dumps(config))
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


def test_hits_of_real_prompts_are_predicted_as_an_engine_measures_them(place) -> None:
    """Few-shot prompts of eight tasks in turn: more than this KV cache remembers."""
    shots = [f"Task {n}: how many corners has a cube, and how many sides? " * 30 for n in range(8)]
    asked = "what is it? "
    analyzed(place, [f"{shots[n % 8]} Question {n}: {asked * (7 * n % 40)}" for n in range(40)])
    words = ["--against", "none", "--data", "data.jsonl", "--requests", "40", "--repeats", "2"]
    engine = {**ENGINE, "kv_cache_memory_bytes": 2_306_867}
    done = place.run(*words, "--max-output", "4", engine_args=engine)
    assert done.returncode == 0, done.stderr
    result = place.result()
    assert result.source == PromptSource(datasets=("data",))
    counted = Profile.load(place.folder / "reports" / "profile.json").overall
    lengths = LengthHistogram.of(request.prompt_tokens for request in result.workload.requests)
    assert lengths == counted
    (run,) = result.runs
    off_by = [abs(r.prefix_hit_rate - run.predicted_prefix_hit_rate) for r in run.repeats]
    assert sum(off_by) / len(off_by) <= 0.003
    assert max(off_by) <= 0.01
    ample = replace(run, engine={**run.engine, "num_gpu_blocks": 10_000})
    shape = find_model(place.folder / "tiny")
    ideal = with_prediction(ample, shape, result.machine, result.workload)
    assert 0 < run.predicted_prefix_hit_rate < ideal.predicted_prefix_hit_rate
