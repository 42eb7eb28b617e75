"""Diagnoses of real logs, and each rule on lines that vLLM writes."""

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest

import chunkscope
from chunkscope.diagnosis.diagnosis import Diagnosis, EngineReport
from chunkscope.diagnosis.doctor import NOTHING, Context, doctor, report_of
from chunkscope.diagnosis.phases import Bound, phases
from chunkscope.diagnosis.servers import reading_of
from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.gpus import find_gpu
from chunkscope.planning.engine_log import read_log
from chunkscope.report.words.doctor import remedy
from chunkscope.verification.endpoint import metrics
from chunkscope.verification.endpoint.server import Server
from chunkscope.vllm.log.failures import Failure
from chunkscope.vllm.log.reader import LogReader, LogWindow
from tests.build import plan, profile
from tests.verification.test_endpoint import Metered
from tests.vllm.test_log_reader import START, STEP, TROUBLES, engine, periodic, stamped

LOGS = Path(__file__).parent / "logs"


def report(*lines: str, context: Context = NOTHING) -> EngineReport:
    return report_of(engine(*lines), "vllm.log", context)


def rules(found: EngineReport) -> list[str]:
    return [symptom.rule for symptom in found.symptoms]


def at(second: int) -> str:
    return f"10-23 10:{second // 60:02}:{second % 60:02}"


def well_used() -> list[str]:
    """More and more requests, none of them waiting, and the KV cache well filled."""
    return [
        periodic(at(10 * n), prompt=500.0, running=min(60, 15 * (n + 1)), kv=60.0)
        for n in range(8)
    ]


@pytest.mark.shared
def test_the_phases_of_a_benchmark_are_named(shared: Path) -> None:
    """All at once and at ten per second, twice each: what the clients sent is in its README."""
    path = shared / "data" / "vllm_logs" / "vllm-0.24.0-h200-serve-bench.log"
    (engine,) = doctor(path, gpu="h200", model="llama-3.1-8b").engines
    facts = engine.facts
    told = (facts.version, facts.kv_cache_tokens, facts.settings.step_tokens)
    assert told == ("0.24.0", 919_824, 8_192)
    assert engine.arguments == {"max_model_len": 16_384, "enable_prefix_caching": False}
    assert max(window.prompt_tokens_per_s for window in engine.windows) == 36_298.8
    bounds = [(phase.bound, phase.window.line) for phase in engine.phases]
    assert bounds == [
        (Bound.PREFILL, 287),
        (Bound.END, 290),
        (Bound.IDLE, 291),
        (Bound.CLIENT, 335),
        (Bound.PREFILL, 714),
        (Bound.CLIENT, 1_014),
    ]
    assert rules(engine) == ["client-bound", "queue-bound"]
    assert engine.predicted is not None
    assert engine.predicted.kv_cache_tokens == pytest.approx(919_824, rel=0.01)


@pytest.mark.parametrize(
    ("name", "rates", "cache", "evidence"),
    [
        (
            "0.28-cpu-preemptions",
            (1_200, 6_000),
            (2_048, 1),
            {"count": 42, "requests": 24},
        ),
        (
            "0.32-cpu-kv-bound",
            (4_800, 9_600),
            (4_096, 2),
            {"count": 54, "requests": 48},
        ),
    ],
)
def test_the_metrics_of_an_engine_that_preempted(name, rates, cache, evidence) -> None:
    """vLLM logs none: the log is KV-bound, and the counter says the rest."""
    reader = LogReader()
    read_log(str(LOGS / f"vllm-{name}.log"), reader)
    (life,) = reader.starts()
    assert rules(report_of(life, "vllm.log"))[0] == "kv-bound"
    after = metrics.parse((LOGS / f"vllm-{name}.metrics").read_text(encoding="utf-8"))
    before = replace(after, samples=tuple(s._replace(value=0.0) for s in after.samples))
    server = Server(model="m", version=name[:4], max_model_len=2_048)
    back, reading = (
        reading_of("http://x", server, [(1.0, one), (3.0, other)])
        for one, other in ((after, before), (before, after))
    )
    (window,), facts = reading.start.windows, reading.start.facts
    assert (window.prompt_tokens_per_s, window.output_tokens_per_s) == rates
    others = (
        window.end_s,
        window.hit_rate,
        window.running,
        window.waiting,
        reading.notes,
    )
    assert others == (3.0, 0.0, 0, 0, ())
    assert (facts.kv_cache_tokens, facts.kv_concurrency, reading.start.engines) == (
        *cache,
        1,
    )
    assert [note.code for note in back.notes] == ["server_restarted"], (
        "its counters went back"
    )
    full = replace(
        reading.start, windows=(replace(window, running=4, waiting=9, kv_use=1.0),)
    )
    (bound, *_) = report_of(replace(full, preemptions=None), "http://x").symptoms
    assert (bound.rule, bound.change.code) == ("kv-bound", "change_fixed_size"), (
        "it says the flag"
    )
    assert bound.change.values["or_on_cpu"], "which a variable sets, too"
    life = replace(life, preemptions=reading.start.preemptions)
    found = report_of(life, "http://x", finished=reading.finished)
    assert rules(found)[:2] == ["preemptions", "kv-bound"]
    assert found.symptoms[0].evidence[0].values == evidence


def test_a_kv_cache_with_less_room_than_a_request_has_is_full() -> None:
    for running, kv, expected in (
        *((4, 79.0, "queue-bound"), (4, 80.0, "kv-bound")),
        *((30, 89.0, "queue-bound"), (30, 90.0, "kv-bound")),
    ):
        lines = [
            periodic(at(10 * n), running=running, waiting=34, kv=kv) for n in range(4)
        ]
        assert rules(report(*lines)) == [expected]


@pytest.mark.parametrize(("pause", "count"), [(1.0, 1), (1.1, 2)])
def test_windows_with_a_pause_between_them_are_phases_of_their_own(
    pause, count
) -> None:
    rates = {"prompt_tokens_per_s": 5.0, "output_tokens_per_s": 5.0}
    first = LogWindow(
        end_s=10.0, seconds=10.0, running=2, waiting=0, kv_use=0.2, **rates
    )
    assert len(phases([first, replace(first, end_s=20 + pause)], None)) == count


def test_a_server_is_watched_for_a_while() -> None:
    with Metered().server() as server:
        (engine,) = doctor(server.url, seconds=0.2).engines
    assert (engine.source, len(engine.windows), engine.engines) == (server.url, 1, 1)
    assert (engine.facts.version, engine.facts.kv_cache_tokens) == ("0.11.0", 1_600)
    for written in ("localhost:8000", "htp://localhost"):
        with pytest.raises(UsageError, match="begins with http"):
            doctor(written)


WAITING = [periodic(at(10 * n), running=8, waiting=52, kv=0.3) for n in range(4)]
BUDGET = "Chunked prefill is enabled with max_num_batched_tokens={}."


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        ([], ["change_queue_budget_unknown"]),  # as of /metrics, which does not show it
        ([stamped(BUDGET.format(2_048))], ["change_queue"]),
        ([stamped(BUDGET.format(128))], ["change_small_step", "change_queue_last"]),
    ],
)
def test_a_budget_that_is_not_known_is_not_said_to_be_fine(lines, changes) -> None:
    assert [s.change.code for s in report(*lines, *WAITING).symptoms] == changes
    assert report(*lines, *well_used()).symptoms == (), (
        "nor blamed where no prompt waited"
    )


def test_an_fp8_kv_cache_is_predicted_as_one() -> None:
    begun = BEGUN.replace("kv_cache_dtype=fp8", "kv_cache_dtype=auto")
    context = Context(gpu=find_gpu("h200"), model="llama-3.1-8b")
    plain, small = (report(line, context=context).predicted for line in (begun, BEGUN))
    assert small.kv_cache_tokens == pytest.approx(2 * plain.kv_cache_tokens, rel=0.01)


BEGUN = stamped(
    START.format(version="0.24.0").replace("enforce_eager=True", "enforce_eager=False")
)
UNCACHED = BEGUN.replace("enable_prefix_caching=True", "enable_prefix_caching=False")
ARGS = (
    "non-default args: {{'max_num_seqs': {seqs}, 'max_num_batched_tokens': {budget}}}"
)


def test_max_num_seqs() -> None:
    args = stamped(ARGS.format(seqs=32, budget=8192))
    full = [periodic(at(10 * n), running=32, waiting=9, kv=20.0) for n in range(6)]
    two = [
        line.replace("Engine 000", "2 Engines Aggregated").replace("32", "64")
        for line in full
    ]
    for lines in (full, two):
        found = report(args, BEGUN, *lines).symptoms[0]
        assert found.rule == "max-num-seqs"
        assert found.change.values == {"running": 32}, "of each engine"
    assert rules(report(BEGUN, *[line.replace("32", "256") for line in full])) == [
        "max-num-seqs"
    ]


@pytest.mark.parametrize(
    ("between", "kv", "expected"),
    [
        (", Deferred: 3 reqs", 0.5, "client-bound"),  # they wait for KV from elsewhere
        ("", 12.0, "queue-bound"),  # one long prompt is read; it counts when it is done
        ("", 60.0, "kv-bound"),
    ],
)
def test_what_waits_beside_an_empty_kv_cache_does_not_wait_for_room(
    between, kv, expected
) -> None:
    lines = [
        periodic(
            f"10-23 10:00:{second}0", prompt=0.0, running=2, waiting=3, kv=kv
        ).replace("3 reqs,", f"3 reqs{between},")
        for second in range(4)
    ]
    assert rules(report(*lines)) == [expected]


@pytest.mark.parametrize(
    ("running", "bursts"),
    [
        *(([15], [False]), ([16], [True])),  # so many came at once
        *(
            ([20, 40], [True, False]),
            ([20, 41], [True]),
        ),  # and are most of those that run
    ],
)
def test_many_that_came_at_once_waited_between_two_lines(running, bursts) -> None:
    lines = [
        periodic(at(100 * n), running=many, kv=20.0) for n, many in enumerate(running)
    ]
    found = report(BEGUN, *lines)
    assert [phase.burst for phase in found.phases] == bursts
    assert [phase.bound is Bound.PREFILL for phase in found.phases] == bursts
    between = [
        s.title.values["between"] for s in found.symptoms if s.rule == "queue-bound"
    ]
    assert between == [True] * any(bursts), "none was seen waiting"


def test_several_engines_are_as_long_busy_as_each_of_them() -> None:
    one = [periodic(f"10-23 10:00:{second}0") for second in range(4)]
    both = [
        line
        for each in one
        for line in (each, each.replace("Engine 000", "Engine 001"))
    ]
    found = report(*both)
    assert (found.busy_s, found.seconds_of(Bound.CLIENT)) == (40.0, 40.0)
    assert found.symptoms[0].evidence[0].values == {"seconds": 40.0, "part": 1.0}
    assert found.peak_running == 2  # as the rates, which are of both
    idle = [
        re.sub(r": [1-9][\d.]*", ": 0", line.replace("Engine 000", "Engine 2"))
        for line in one
    ]
    assert report(*both, *idle).symptoms[0].evidence == found.symptoms[0].evidence


def test_eager_auto_fit_and_refusals() -> None:
    fit = "Auto-fit max_model_len: reduced from 131,072 to 40,960 to fit in available"
    refused = "The decoder prompt (length 2100) is longer than the maximum model length of 2048."
    few = periodic("10-23 10:51:34", kv=0.0)  # and nothing else to say
    lines = [
        *(stamped(text) for text in (START.format(version="0.24.0"), fit, refused)),
        few,
    ]
    expected = {
        "refused-prompts": 0.95,
        "client-bound": 0.9,
        "auto-fit": 0.3,
        "eager": 0.25,
    }
    assert {s.rule: s.effect for s in report(*lines).symptoms} == expected
    assert not any(re.search(" -[;. ]", remedy(s)) for s in report(*lines).symptoms), (
        "not known"
    )
    for longest, effect in ((40_960, 0.9), (40_959, None)):
        found = report(*lines, context=Context(profile=profile(data=[longest])))
        assert {s.rule: s.effect for s in found.symptoms}.get("auto-fit") == effect


def test_long_prompts_that_make_answers_wait() -> None:
    alone = STEP.format(p=0, t=0, d=4, ms="10.00")
    for ms, found in (("90.00", ["prefill-bound"]), ("12.00", [])):
        assert (
            rules(report(BEGUN, STEP.format(p=1, t=8192, d=4, ms=ms), alone)) == found
        )


@pytest.mark.parametrize(
    ("preemptions", "finished", "effect"),
    [
        (300, 100, 1.0),
        (30, 100, 0.3),
        (5, 100, 0.05),
        (3, None, 1.0),
        (4, 100, None),
        (0, 9, None),
    ],
)
def test_preemptions_that_a_server_counted(preemptions, finished, effect) -> None:
    life = replace(engine(BEGUN, *well_used()), preemptions=preemptions)
    found = report_of(life, "http://x", finished=finished)
    assert [(s.rule, s.effect) for s in found.symptoms] == [
        ("preemptions", effect)
    ] * bool(effect)


@pytest.mark.parametrize(
    ("kind", "text", "figures"), TROUBLES, ids=[t[0].name for t in TROUBLES]
)
def test_what_ended_an_engine_comes_first(kind, text, figures) -> None:
    found = report(
        BEGUN, stamped("Model loading took 15.0 GiB and 1.6 seconds"), stamped(text)
    )
    assert found.symptoms[0].title.code == f"ended_{kind}"
    assert found.symptoms[0].lines == (3,)
    assert len(found.symptoms[0].evidence) == len(figures)
    cpu = BEGUN.replace("max_seq_len", "device_config=cpu, max_seq_len")
    on_cpu = report(cpu, stamped(text)).symptoms[0].change.code
    wants_room = kind in (Failure.NO_CACHE_BLOCKS, Failure.CONTEXT_TOO_LONG)
    without_gpu = "change_more_kv_cpu" if wants_room else "change_oom_cpu"
    assert on_cpu == ("change_died" if kind is Failure.DIED else without_gpu)


def test_what_an_error_says_itself_comes_before_its_traceback() -> None:
    port = report(
        BEGUN, stamped(said := "OSError: [Errno 98] Address already in use")
    ).symptoms[0]
    assert (port.change.code, port.change.values) == ("change_died", {"reason": said})


def test_a_hit_rate_needs_a_profile_that_promises_more(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    shared = "the same beginning of every prompt, " * 40
    rows.write_text("".join(f'{{"prompt": "{shared} {n}"}}\n' for n in range(40)))
    counted = Context(profile=chunkscope.analyze(rows))
    found = report(BEGUN, *well_used(), context=counted)
    assert rules(found) == ["hit-rate"]
    assert found.symptoms[0].evidence[0].values["rate"] == found.hit_rate == 0.125
    for begun, change in ((BEGUN, "change_hit_rate"), (UNCACHED, "change_caching_on")):
        assert (
            report(begun, *well_used(), context=counted).symptoms[0].change.code
            == change
        )
    high = [line.replace("12.5%", "95.0%") for line in well_used()]
    assert rules(report(BEGUN, *high, context=counted)) == []


def test_the_plan_is_laid_beside_it() -> None:
    planned = plan([100] * 50)
    begun = BEGUN.replace("org/m", "models/llama-3.1-8b")
    found = report(begun, context=Context(plan=planned))
    differs = {d.name: (d.planned, d.actual) for d in found.differences}
    assert differs["max_model_len"] == (planned.settings.max_model_len, 4_096)
    assert "tensor_parallel_size" not in differs
    by_name = report(begun, context=Context(gpu=find_gpu("h200")))
    unnamed = report(stamped("Using max model len 4096"), context=Context(plan=planned))
    assert found.gpu == by_name.gpu == unnamed.gpu == "NVIDIA H200"
    assert found.predicted == by_name.predicted
    assert unnamed.predicted is not None, "the plan's model and GPU"
    other = plan([100] * 50, model="qwen3-8b")
    assert not report(begun, context=Context(plan=other)).differences, (
        "of another model"
    )
    on_cpu = begun.replace("max_seq_len", "device_config=cpu, max_seq_len")
    assert not report(on_cpu, context=Context(plan=planned)).differences, "nor on a CPU"
    room, loaded, mine = (
        "Available KV cache memory:",
        "Model loading took",
        "models/mine",
    )
    for line, gib, same in (
        *((room, 100.0, True), (room, 141.0, False)),  # which an H200 has not
        *((loaded, 7.5, True), (loaded, 15.0, False)),  # on each of two GPUs
    ):
        lines = begun.replace("models/llama-3.1-8b", mine), stamped(f"{line} {gib} GiB")
        assert bool(report(*lines, context=Context(plan=planned)).differences) is same


def test_a_first_start_that_left_too_little_is_to_be_tried_again(
    tmp_path: Path,
) -> None:
    """On an H200 the second, unchanged, ran: 1.2 GiB instead of 0.51."""
    log = (LOGS / "vllm-0.24-h200-first-start.log").read_text()
    (tmp_path / "second.log").write_text(
        log.replace(
            "Compiling a graph for compile range (1, 512) takes", "Directly load AOT"
        )
    )
    (tmp_path / "eager.log").write_text(
        log.replace("enforce_eager=False", "enforce_eager=True")
    )
    (tmp_path / "far.log").write_text(
        log.replace("(0.84 GiB", "(16.0 GiB")
    )  # to be made up for
    changes = [
        doctor(file).symptoms[0].change.code
        for file in (
            LOGS / "vllm-0.24-h200-first-start.log",
            *sorted(tmp_path.iterdir()),
        )
    ]
    assert changes == ["change_first_start", *["change_context_too_long"] * 3]


def test_a_diagnosis_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    full = [periodic(at(10 * n), running=4, waiting=9, kv=100.0) for n in range(4)]
    (tmp_path / "full.log").write_text("\n".join(full))
    found = doctor(tmp_path / "full.log", LOGS / "vllm-0.28-cpu-does-not-fit.log")
    found.save(tmp_path / "doctor.json")
    again = Diagnosis.load(tmp_path / "doctor.json")
    assert (again.engines, again.symptoms) == (found.engines, found.symptoms)
    assert (len(again.engines), again.symptoms[0].rule) == (2, "ended")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\x01\x02" * 100, b"hello\n", b"INFO sglang #running-req: 3\n"],
)
def test_what_is_no_log_of_vllm_is_an_error_that_names_it(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.log"):
        doctor(path)
    with pytest.raises(InputError, match="/metrics answered"):
        doctor(LOGS / "vllm-0.32-cpu-kv-bound.metrics")


@pytest.mark.parametrize(
    "written",
    [
        gzip.compress,
        lambda log: log.decode().encode("utf-16"),
        lambda log: b"\0" * 5_000 + b"\n" + log,  # by logrotate's copytruncate
        lambda log: (
            b"\xfa\xfe caf\xe9\n" + log + b"\xe9\xe9\n"
        ),  # spoils its lines only
    ],
)
def test_a_log_is_read_however_it_was_written(tmp_path: Path, written) -> None:
    log, path = LOGS / "vllm-0.28-cpu-kv-bound.log", tmp_path / "vllm.log"
    path.write_bytes(written(log.read_bytes()))
    (read,), (expected,) = doctor(path).engines, doctor(log).engines
    assert rules(read) == rules(expected)
    assert [w.running for w in read.windows] == [w.running for w in expected.windows]
