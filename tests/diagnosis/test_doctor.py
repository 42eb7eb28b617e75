"""Diagnoses of real logs and of servers, and what they are held against."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from chunkscope.diagnosis.diagnosis import Diagnosis
from chunkscope.diagnosis.doctor import Context, diagnosed, doctor
from chunkscope.diagnosis.servers import Reading, WatchedServer, watched
from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.planning.engine_log import read_log
from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.metrics import Metrics
from chunkscope.verification.endpoint.server import Server
from chunkscope.vllm.log.reader import LogReader
from chunkscope.vllm.log.start import Bound, EngineStart
from tests.build import plan
from tests.diagnosis.test_rules import BEGUN, ON_CPU, report, rules
from tests.verification.test_endpoint import Metered
from tests.vllm.log_lines import stamped

LOGS = Path(__file__).parent / "logs"
KV_BOUND = LOGS / "vllm-0.28-cpu-kv-bound.log"


# -- real logs -----------------------------------------------------------------


@pytest.fixture
def benchmark(shared: Path) -> EngineStart:
    """All at once and at ten per second, twice each, as its README says."""
    path = shared / "data" / "vllm_logs" / "vllm-0.24.0-h200-serve-bench.log"
    (start,) = doctor(path, gpu="h200", model="llama-3.1-8b").engines
    return start


@pytest.mark.shared
def test_a_benchmark_says_what_ran(benchmark) -> None:
    facts = benchmark.facts
    assert (facts.version, facts.kv_cache_tokens) == ("0.24.0", 919_824)
    assert facts.settings.max_num_batched_tokens == 8_192
    assert benchmark.arguments == {
        "max_model_len": 16_384,
        "enable_prefix_caching": False,
    }
    rates = [window.prompt_tokens_per_s for window in benchmark.windows]
    assert max(rates) == 36_298.8


@pytest.mark.shared
def test_the_phases_of_a_benchmark_are_named(benchmark) -> None:
    assert [(phase.bound, phase.window.line) for phase in benchmark.phases] == [
        (Bound.CLIENT, 287),
        (Bound.IDLE, 291),
        (Bound.CLIENT, 335),
        (Bound.PREFILL, 714),
        (Bound.CLIENT, 1_014),
    ]
    assert rules(benchmark) == ["client-bound", "queue-bound"]


@pytest.mark.parametrize(
    ("name", "symptoms"),
    [
        ("0.28-cpu-client-bound", ["client-bound"]),
        ("0.28-cpu-kv-bound", ["kv-bound"]),
        ("0.28-cpu-max-num-seqs", ["max-num-seqs", "queue-bound"]),
        ("0.28-cpu-small-step", ["small-budget"]),
        ("0.28-cpu-loglikelihood", ["queue-bound"]),
        ("0.28-cpu-refused", ["bad-requests"]),
        ("0.32-cpu-client-bound", ["client-bound"]),
        ("0.32-cpu-kv-bound", ["kv-bound"]),
        ("0.32-cpu-loglikelihood", ["queue-bound"]),
    ],
)
def test_a_load_has_the_symptoms_that_it_was_made_for(name, symptoms) -> None:
    (start,) = doctor(LOGS / f"vllm-{name}.log").engines
    assert rules(start) == symptoms


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("bad-arguments", "ended_refused_arguments"),
        ("unknown-argument", "ended_refused_arguments"),
        ("does-not-fit", "ended_context_too_long"),
        ("died", "ended_died"),
        ("killed", "ended_killed"),
    ],
)
def test_an_end_is_named(name, title) -> None:
    symptom = doctor(LOGS / f"vllm-0.28-cpu-{name}.log").symptoms[0]
    assert symptom.title.code == title


# -- files ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\x01\x02" * 100, b"hello\n", b"INFO sglang #running-req: 3\n"],
    ids=["empty", "binary", "text", "another engine"],
)
def test_what_is_no_log_of_vllm_is_an_error_that_names_it(tmp_path, content) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.log"):
        doctor(path)


def test_metrics_that_were_saved_are_no_log() -> None:
    with pytest.raises(InputError, match="/metrics answered"):
        doctor(LOGS / "vllm-0.32-cpu-kv-bound.metrics")


def test_a_log_of_two_servers_is_an_error_that_says_what_to_give(tmp_path) -> None:
    path = tmp_path / "all.log"
    lines = []
    for line in KV_BOUND.read_text(encoding="utf-8").splitlines():
        lines += [f"vllm-1  | {line}\n", f"vllm-2  | {line}\n"]
    path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match="two servers write into") as error:
        doctor(path)
    assert "give one server's log" in error.value.hint


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(gzip.compress, id="compressed"),
        pytest.param(lambda log: log.decode().encode("utf-16"), id="PowerShell"),
        pytest.param(
            lambda log: b"\0" * 5_000 + b"\n" + log, id="logrotate's copytruncate"
        ),
        pytest.param(
            lambda log: b"\xfa\xfe caf\xe9\n" + log + b"\xe9\xe9\n",
            id="lines of another encoding",
        ),
        pytest.param(
            lambda log: b"".join(
                b"vllm-1  | " + line for line in log.splitlines(keepends=True)
            ),
            id="Docker Compose",
        ),
    ],
)
def test_a_log_is_read_however_it_was_written(tmp_path, written) -> None:
    path = tmp_path / "vllm.log"
    path.write_bytes(written(KV_BOUND.read_bytes()))
    (read,) = doctor(path).engines
    (expected,) = doctor(KV_BOUND).engines
    assert rules(read) == rules(expected)
    running = [window.running for window in expected.windows]
    assert [window.running for window in read.windows] == running


def test_a_diagnosis_is_read_back_as_it_was_written(tmp_path) -> None:
    diagnosis = doctor(KV_BOUND, LOGS / "vllm-0.28-cpu-does-not-fit.log")
    diagnosis.save(tmp_path / "doctor.json")
    again = Diagnosis.load(tmp_path / "doctor.json")
    assert again.engines == diagnosis.engines
    assert again.symptoms == diagnosis.symptoms


# -- servers -------------------------------------------------------------------


def test_a_server_is_watched_for_a_while() -> None:
    with Metered().server() as server:
        (start,) = doctor(server.url, seconds=0.2).engines
    assert (start.source, len(start.windows), start.engines) == (server.url, 1, 1)
    assert (start.facts.version, start.facts.kv_cache_tokens) == ("0.11.0", 1_600)


@pytest.mark.parametrize("address", ["localhost:8000", "htp://localhost"])
def test_an_address_begins_with_http(address) -> None:
    with pytest.raises(UsageError, match="begins with http"):
        doctor(address)


def metrics_of(name: str) -> Metrics:
    path = LOGS / f"vllm-{name}.metrics"
    return metrics.parse(path.read_text(encoding="utf-8"))


def at_zero(reading: Metrics) -> Metrics:
    samples = [sample._replace(value=0.0) for sample in reading.samples]
    return replace(reading, samples=tuple(samples))


def watched_over_2_s(before: Metrics, after: Metrics) -> WatchedServer:
    server = Server(model="m", version="0.28.0", max_model_len=2_048)
    readings = [Reading(at_s=1.0, metrics=before), Reading(at_s=3.0, metrics=after)]
    return watched("http://x", server, readings)


@pytest.mark.parametrize(
    ("name", "rates", "cache"),
    [
        ("0.28-cpu-preemptions", (1_200, 6_000), (2_048, 1)),
        ("0.32-cpu-kv-bound", (4_800, 9_600), (4_096, 2)),
    ],
)
def test_metrics_are_a_window_like_one_of_a_log(name, rates, cache) -> None:
    after = metrics_of(name)
    server = watched_over_2_s(at_zero(after), after)
    (window,) = server.start.windows
    assert (window.prompt_tokens_per_s, window.output_tokens_per_s) == rates
    assert (window.end_s, window.hit_rate) == (3.0, 0.0)
    assert (window.running, window.waiting) == (0, 0)
    facts = server.start.facts
    assert (facts.kv_cache_tokens, facts.kv_concurrency) == cache
    assert server.start.engines == 1
    assert server.notes == ()


def test_counters_that_went_back_are_a_restart() -> None:
    before = metrics_of("0.28-cpu-preemptions")
    server = watched_over_2_s(before, at_zero(before))
    assert [note.code for note in server.notes] == ["server_restarted"]


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        ("0.28-cpu-preemptions", {"count": 42, "requests": 24}),
        ("0.32-cpu-kv-bound", {"count": 54, "requests": 48}),
    ],
)
def test_preemptions_are_known_to_metrics_alone(name, evidence) -> None:
    reader = LogReader()
    read_log(str(LOGS / f"vllm-{name}.log"), reader)
    (logged,) = reader.starts()
    assert rules(diagnosed(logged))[0] == "kv-bound"
    after = metrics_of(name)
    server = watched_over_2_s(at_zero(after), after)
    start = replace(logged, preemptions=server.start.preemptions)
    start = diagnosed(start, finished=server.finished)
    assert rules(start)[:2] == ["preemptions", "kv-bound"]
    assert start.symptoms[0].evidence[0].values == evidence


# -- what it is held against ---------------------------------------------------


def test_an_fp8_kv_cache_is_predicted_as_one() -> None:
    context = Context(gpu=find_gpu("h200"), model="llama-3.1-8b")
    small = report(BEGUN, context=context).predicted
    auto = BEGUN.replace("kv_cache_dtype=fp8", "kv_cache_dtype=auto")
    plain = report(auto, context=context).predicted
    assert small.kv_cache_tokens == pytest.approx(2 * plain.kv_cache_tokens, rel=0.01)


LLAMA = BEGUN.replace("org/m", "models/llama-3.1-8b")
ELSEWHERE = BEGUN.replace("org/m", "models/mine")
FREE = stamped(
    "Free memory on device (70.0/{} GiB) on startup. Desired GPU memory utilization is "
    "(0.9, 70.0 GiB). Actual usage is 15.0 GiB for weight, 1.24 GiB for peak activation"
)


@pytest.fixture(scope="module")
def planned() -> Context:
    return Context(plan=plan([100] * 50))


def test_what_the_plan_sets_otherwise_is_told(planned) -> None:
    start = report(LLAMA, context=planned)
    differences = {d.name: (d.planned, d.actual) for d in start.differences}
    planned_context = planned.plan.settings.max_model_len
    assert differences["max_model_len"] == (planned_context, 4_096)
    assert "tensor_parallel_size" not in differences


def test_the_gpu_and_the_model_may_be_the_plans(planned) -> None:
    unnamed = report(stamped("Using max model len 4096"), context=planned)
    assert (unnamed.gpu, unnamed.predicted is None) == ("NVIDIA H200", False)
    by_name = report(LLAMA, context=Context(gpu=find_gpu("h200")))
    assert report(LLAMA, context=planned).predicted == by_name.predicted


@pytest.mark.parametrize(
    ("lines", "compared"),
    [
        pytest.param([LLAMA], True, id="its model"),
        pytest.param(
            [ON_CPU.replace("org/m", "models/llama-3.1-8b")], False, id="on a CPU"
        ),
        pytest.param([ELSEWHERE], True, id="a model that nobody knows"),
        pytest.param([LLAMA, FREE.format(139.8)], True, id="on an H200"),
        pytest.param([LLAMA, FREE.format(79.2)], False, id="on a smaller GPU"),
    ],
)
def test_a_plan_is_compared_with_its_own_engine(planned, lines, compared) -> None:
    assert bool(report(*lines, context=planned).differences) is compared


def test_a_plan_of_another_model_is_not_compared() -> None:
    other = Context(plan=plan([100] * 50, model="qwen3-8b"))
    assert report(LLAMA, context=other).differences == ()
