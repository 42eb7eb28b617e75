"""What ended an engine, by the lines of its log."""

import pytest

from chunkscope.vllm.log.failures import Failure, Status, cause_in, doing_in
from tests.vllm.log_lines import (
    BEGUN,
    CACHE,
    CONTEXT_TOO_LONG,
    FATAL,
    LOADED,
    OUT_OF_MEMORY,
    READY,
    SAMPLER,
    SERVING,
    TROUBLES,
    engine,
    errors,
    stamped,
    starts,
)

LOADING = stamped("Using max model len 64")
DIED = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
DIED_REASON = DIED.removeprefix("torch.")
DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace"
)
FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed: {}"
)
MISSED = "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client."
HARMLESS = stamped("ValueError: no chat template", level="ERROR")
STOPPED = stamped("[shutdown] MPClient: complete")
FRAME = '  File "a.py", line 9, in '


@pytest.mark.parametrize(
    ("kind", "text", "figures"), TROUBLES, ids=[kind.name for kind, _, _ in TROUBLES]
)
def test_the_first_cause_of_an_end_is_found(kind, text, figures) -> None:
    failed = "EngineCore failed to start."
    failure = engine(BEGUN, stamped(LOADED), stamped(text), stamped(failed)).failure
    assert (failure.kind, failure.line) == (kind, 3)
    assert failure.figures == pytest.approx(figures)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, text, _ in TROUBLES])
def test_an_engine_of_ours_has_the_status_of_what_ended_it(kind, text) -> None:
    assert cause_in(stamped(text), started=False)[0] is kind.status


def test_the_samplers_error_counts_more_than_the_one_it_came_from() -> None:
    """As tracebacks of 0.11 to 0.32 have them."""
    lines = errors("EngineCore failed to start.", OUT_OF_MEMORY, SAMPLER)
    failure = engine(BEGUN, *lines).failure
    assert (failure.kind, failure.line) == (Failure.OOM_SAMPLER, 4)
    assert failure.figures == {"asked_gib": 7.04, "left_gib": 7.02, "requests": 1_024}


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        pytest.param(Failure.OOM_LOADING, [BEGUN], id="not a matter of the budget"),
        pytest.param(Failure.OOM_START, [BEGUN, stamped(LOADED)], id="profiling"),
        pytest.param(Failure.OOM_RUNNING, [SERVING], id="serving"),
        pytest.param(
            Failure.OOM_RUNNING, [BEGUN, stamped(READY)], id="the LLM class is ready"
        ),
        pytest.param(
            Failure.OOM_LOGPROBS,
            [SERVING, f"{FRAME}_get_prompt_logprobs_dict", "    x = y"],
            id="of the V1 runner",
        ),
        pytest.param(
            Failure.OOM_LOGPROBS,
            [SERVING, f"{FRAME}compute_prompt_logprobs_with_chunking"],
            id="of the V2 runner",
        ),
    ],
)
def test_what_ran_out_of_memory(kind, before) -> None:
    assert engine(*before, stamped(OUT_OF_MEMORY)).failure.kind is kind


@pytest.mark.parametrize(
    "text",
    [
        "Killed",
        "a.sh: line 2: 48 Killed      vllm serve m",
        "Out of memory: Killed process 48",
        "Reason: OOMKilled",
        "vllm-1 exited with code 137",
        "JOB 8 CANCELLED DUE TO TIME LIMIT",
        "Detected 1 oom_kill event in StepId=1.0.",
        MISSED,
        "died unexpectedly (exit code: -9), x",
        "Engine core initialization failed. Failed core proc(s): {'EngineCore': -9}",
        "vllm.service: Main process exited, code=killed, status=9/KILL",
    ],
)
def test_an_engine_was_killed(text) -> None:
    failure = engine(LOADING, text, *errors(DEAD)).failure
    assert (failure.kind, failure.reason, failure.line) == (Failure.KILLED, None, 2)


@pytest.mark.parametrize(
    ("lines", "reason", "at"),
    [
        pytest.param(
            ["EngineCore failed to start.", "Traceback", DIED, DEAD],
            DIED_REASON,
            4,
            id="the cause comes after the consequence",
        ),
        pytest.param([DEAD], None, 2, id="a consequence alone"),
        pytest.param([FAILED], None, 2, id="a failed start alone"),
        pytest.param(["Bus error (core dumped)"], None, 2, id="a shell"),
        pytest.param(
            [DIED, *["x"] * 99, FAILED], DIED_REASON, 2, id="long before the end"
        ),
        pytest.param(
            ["OSError: port is in use"], "OSError: port is in use", 2, id="an error"
        ),
        pytest.param([DIED, DEAD, MISSED], DIED_REASON, 2, id="and then missed"),
    ],
)
def test_an_engine_that_died_of_something_else(lines, reason, at) -> None:
    failure = engine(LOADING, *errors(*lines)).failure
    assert (failure.kind, failure.reason, failure.line) == (Failure.DIED, reason, at)


def test_an_error_of_the_driver_is_told_while_serving() -> None:
    assert engine(SERVING, *errors(DIED, DEAD)).failure.reason == DIED_REASON


def test_an_error_of_vllm_needs_no_engine_that_began() -> None:
    frame = '  File "/usr/local/bin/vllm", line 5, in <module>'
    start = engine(frame, "ImportError: libcudart.so.12")
    assert start.failure.error == "ImportError"


def test_an_error_of_something_else_is_no_engine() -> None:
    assert not starts("Traceback", "ImportError: libcudart.so.12")


def test_an_error_after_which_no_server_came_up_ended_it() -> None:
    assert engine(stamped(READY), HARMLESS).failure.error == "ValueError"


def test_an_error_is_the_cause_of_a_failed_start() -> None:
    failure = engine(BEGUN, HARMLESS, STOPPED, stamped(FAILED)).failure
    assert failure.reason == "ValueError: no chat template"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            [
                LOADING,
                "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-11-15T22:48 ***",
            ],
            id="a job that was ended",
        ),
        pytest.param([LOADING, HARMLESS, CACHE], id="the start went on"),
        pytest.param(
            [stamped(READY), HARMLESS, 'INFO: 1.1 - "POST /v1 HTTP/1.1" 500'],
            id="it answered",
        ),
        pytest.param(
            [SERVING, HARMLESS, STOPPED, stamped(DEAD)], id="stopped and missed"
        ),
        pytest.param([STOPPED, stamped(DEAD)], id="the rest of a log"),
    ],
)
def test_errors_that_ended_nothing(lines) -> None:
    assert engine(*lines).failure is None


# -- engines of ours -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "text"),
    [
        pytest.param(
            "(EngineCore pid=9) ERROR [core.py:2] Traceback (most recent call last):\n"
            "(EngineCore pid=9) ERROR [core.py:2] AssertionError: Chunks are required\n"
            "RuntimeError: Engine core initialization failed. See root cause above.",
            "AssertionError: Chunks are required",
            id="the cause and not its consequence",
        ),
        pytest.param(
            "pydantic_core.ValidationError: 1 validation error for SchedulerConfig\n"
            "  Value error, max_num_batched_tokens (16) must be greater than "
            "max_num_seqs (32). [type=value_error, input_value=ArgsKwargs((), "
            "{'runner_t...}), input_type=x]\n",
            "max_num_batched_tokens (16) must be greater than max_num_seqs (32).",
            id="in vLLM's own sentence",
        ),
        pytest.param(
            "  Value error, World size (8) is larger than 4. If this is intentional, "
            "use:\n- ray\n",
            "World size (8) is larger than 4",
            id="without the beginning of a list",
        ),
    ],
)
def test_a_refusal_is_told_by_its_cause(log, text) -> None:
    assert cause_in(log, started=False) == (Status.REFUSED, text)


@pytest.mark.parametrize(("before", "cause"), [(59, "odd"), (60, "fatal")])
def test_an_error_that_was_long_survived_is_not_the_cause(before, cause) -> None:
    log = ["AssertionError: odd", *["INFO x"] * (before - 1), FATAL]
    assert cause in cause_in("\n".join(log), started=True)[1]


def test_what_a_client_misses_is_the_last_that_is_known() -> None:
    gone = "MPClient: engine core exited unexpectedly"
    assert cause_in(stamped(f"[shutdown] {gone}"), started=True) == (Status.DIED, gone)


def test_a_log_without_failures_says_no_cause() -> None:
    assert cause_in(CACHE, started=True) is None


def test_a_cause_is_no_longer_than_two_sentences() -> None:
    _, text = cause_in(CONTEXT_TOO_LONG, started=False)
    assert len(text) <= 240
    assert text.endswith("[...]")


# -- what it was at --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "doing"),
    [
        ("[gpu_model_runner.py:4959] Starting to load model /m...", "loading weights"),
        (
            "Loading safetensors checkpoint shards:  50% Completed | 2",
            "loading weights",
        ),
        ("[backends.py:1148] Dynamo bytecode transform time: 6.52 s", "compiling"),
        (
            "DeepGEMM warmup:  12%|#         | 120/1000 [00:10<01:10]",
            "building kernels",
        ),
        (
            "[autotuner.py:262] [Autotuner]: Autotuning process starts",
            "autotuning kernels",
        ),
        (
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   2%|1 | 1/51",
            "capturing CUDA graphs",
        ),
        ("Enforce eager set, disabling torch.compile and CUDAGraphs.", None),
        ("Skipping FlashInfer autotune because it is disabled.", None),
        ("Graph capturing finished in 12 secs, took 0.46 GiB", None),
    ],
)
def test_a_line_tells_what_an_engine_is_doing(line, doing) -> None:
    assert doing_in(line) == doing
    assert doing_in(f"{line}\nINFO something else\n") == doing
