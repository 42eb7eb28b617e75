"""vLLM's log by message: verbatim lines of each version, in whatever a collector makes of them."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest

from chunkscope.vllm.log.failures import Failure, Status, cause_in, doing_in
from chunkscope.vllm.log.lines import CUT
from chunkscope.vllm.log.reader import MOST_WINDOWS, LogReader
from chunkscope.vllm.settings import Settings

START = (
    "Initializing a V1 LLM engine (v{version}) with config: model='org/m', dtype=torch.bfloat16, "
    "max_seq_len=4096, tensor_parallel_size=2, enforce_eager=True, kv_cache_dtype=fp8, "
    "enable_prefix_caching=True, chunked_prefill_enabled=True, compilation_config={{'model': 'x'}}"
)
PERIODIC = (
    "Engine 000: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: 5.5 tokens/s,"
    " Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {kv}%, "
    "Prefix cache hit rate: 12.5%"
)


def stamped(
    text, when="10-23 10:51:24", process="(EngineCore pid=7) ", level="INFO"
) -> str:
    return f"{process}{level} {when} [core.py:77] {text}"


def periodic(when, *, prompt=1.0, running=1, waiting=0, kv=1.0) -> str:
    line = PERIODIC.format(prompt=prompt, running=running, waiting=waiting, kv=kv)
    return stamped(line, when, "(APIServer pid=1) ")


def read_lines(*lines: str) -> tuple:
    reader = LogReader()
    reader.feed("".join(f"{line}\n" for line in lines).encode())
    return reader.starts()


def engine(*lines: str):
    (life,) = read_lines(*lines)
    return life


BEGUN = stamped(START.format(version="0.24.0"))


SAID = [
    ("Model loading took 14.9889 GiB and 2.345678 seconds", {"weights_gib": 14.9889}),
    (
        "Model loading took 14.9889 GiB memory and 2.345678 seconds",
        {"weights_gib": 14.9889},
    ),
    ("Available KV cache memory: 112.28 GiB", {"kv_cache_gib": 112.28}),
    ("GPU KV cache size: 919,824 tokens", {"kv_cache_tokens": 919_824}),
    (
        "Maximum concurrency for 16,384 tokens per request: 56.14x",
        {"kv_concurrency": 56.14},
    ),
    (
        "CPU KV cache size: 1,024 tokens, Maximum concurrency for 64 tokens per request: 1,600.50x",
        {"kv_cache_tokens": 1_024, "kv_concurrency": 1600.5},
    ),
    ("GPU + host KV cache size: 2,048 tokens", {"kv_cache_tokens": 2_048}),
    ("Graph capturing finished in 5 secs, took 0.98 GiB", {"graphs_gib": 0.98}),
    (
        "init engine (profile, create kv cache, warmup model) took 42.98 seconds",
        {"init_s": 42.98},
    ),
    (
        "init engine (profile, create kv cache, warmup model) took 42.98 s (compilation: 21.31 s)",
        {"init_s": 42.98},
    ),
    (
        "Chunked prefill is enabled with max_num_batched_tokens=8192.",
        {"max_num_batched_tokens": 8192},
    ),
    ("Using max model len 16384", {"max_model_len": 16_384}),
    (
        "Auto-fit max_model_len: reduced from 131,072 to 40,960 to fit in available GPU memory "
        "(5.00 GiB available for KV cache)",
        {"fitted_from": 131_072, "fitted_to": 40_960, "max_model_len": 40_960},
    ),
    (
        "Free memory on device (138.5/139.8 GiB) on startup. Desired GPU memory utilization is "
        "(0.9, 125.82 GiB). Actual usage is 15.0 GiB for weight, 1.24 GiB for peak activation, "
        "0.21 GiB for non-torch memory, and 0.98 GiB for CUDAGraph memory.",
        {"device_gib": 139.8, "gpu_memory_utilization": 0.9, "activation_gib": 1.24},
    ),
    (
        "Memory profiling takes 2.00 seconds. Total non KV cache memory: 17.1GiB; torch peak "
        "memory increase: 1.24GiB; non-torch forward increase memory: 0.2GiB",
        {"activation_gib": 1.24},
    ),
]


@pytest.mark.parametrize(
    ("text", "expected"), SAID, ids=[text[:40] for text, _ in SAID]
)
def test_a_message_says_its_facts(text: str, expected: dict) -> None:
    found = engine(stamped("Using max model len 131072"), stamped(text)).facts
    told = {**asdict(found), **found.settings.given()}
    assert {name: told[name] for name in expected} == expected


def test_the_first_line_of_an_engine_says_how_it_is_configured() -> None:
    nightly = "0.15.2rc1.dev93+g11a4c9d30.cu128"
    found = engine(stamped(START.format(version=nightly))).facts
    assert (found.version, found.model, found.dtype) == (nightly, "org/m", "bfloat16")
    assert found.enforce_eager
    assert found.settings == Settings(
        max_model_len=4_096, tensor_parallel_size=2, enable_prefix_caching=True,
        enable_chunked_prefill=True, kv_cache_dtype="fp8",
    )  # fmt: skip


LINE = stamped("GPU KV cache size: 919,824 tokens")
WRAPPED = [
    LINE,
    "INFO 10-23 10:51:24 [kv_cache_utils.py:9] GPU KV cache size: 919,824 tokens",
    "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m 10-23 10:51:24 [k.py:9] "
    "GPU KV cache size: 919,824 tokens",
    f"2026-10-23T10:51:24.123456789Z stdout F {LINE}",
    f"Oct 23 10:51:24 host vllm[123]: {LINE}",
    f"vllm-1  | {LINE}",
    json.dumps({"log": LINE + "\n", "stream": "stderr", "time": "2026-10-23T10:51:24Z"}),
    json.dumps({"timestamp": "2026-10-23T10:51:24", "level": "INFO",
                "message": "GPU KV cache size: 919,824 tokens"}),
    "GPU KV cache size: 919,824 tokens",
]  # fmt: skip


@pytest.mark.parametrize("line", WRAPPED, ids=range(len(WRAPPED)))
def test_messages_are_found_whatever_is_put_before_them(line: str) -> None:
    assert engine(line).facts.kv_cache_tokens == 919_824


@pytest.mark.parametrize("number", ["9" * 16, "9" * 400], ids=len)
def test_numbers_that_nothing_can_have_are_not_read(number: str) -> None:
    running = periodic("10-23 10:52:00", running=number)
    read = engine(
        BEGUN.replace("4096", number), LINE.replace("919,824", number), running
    )
    known = read.facts.settings.max_model_len, read.facts.kv_cache_tokens, read.windows
    assert known == (None, None, ())


def test_lines_that_never_end_are_cut() -> None:
    reader = LogReader()
    for piece in (
        b"a" * CUT,
        b"b" * CUT,
        b"c\n",
        LINE[:40].encode(),
        LINE[40:].encode(),
    ):
        reader.feed(piece)
    assert (reader.lines, reader.understood) == (1, 0), "the second may go on"
    reader.feed(b"", last=True)
    assert (reader.lines, reader.understood) == (2, 1)


@pytest.mark.parametrize(("before", "version"), [([BEGUN], "0.24.0"), ([], None)])
def test_a_restart_is_a_life_of_its_own(before: list[str], version: str | None) -> None:
    """Of a log that was rotated, nothing tells how the first was started."""
    first, other = read_lines(*before, periodic("10-23 10:52:00"), BEGUN, LINE)
    assert (first.facts.version, first.facts.kv_cache_tokens) == (version, None)
    assert (other.facts.kv_cache_tokens, other.windows) == (919_824, ())
    assert (first.first_line, other.first_line) == (1, 2 + len(before))


def test_engines_that_start_together_are_one_life() -> None:
    starts = [
        stamped(START.format(version="0.24.0"), process=f"(EngineCore_DP{n} pid={n}) ")
        for n in range(2)
    ]
    lines = [
        periodic("10-23 10:52:00").replace("Engine 000", f"Engine 00{n}")
        for n in range(2)
    ]
    life = engine(*starts, *lines)
    assert (life.engines, [window.engine for window in life.windows]) == (
        2,
        ["000", "001"],
    )


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("prefix", ["vllm-{}  | ", "[pod/vllm-{}/server] ", ""])
def test_servers_in_one_log_are_told_apart(prefix: str, mixed: bool) -> None:
    """By a collector, with one stdout, or restarted in a container, with the same processes."""
    texts = ["█  version 0.28.0", "Using max model len 4096"]
    texts = [
        *(stamped(text, process="(APIServer pid=1) ") for text in texts),
        BEGUN,
        LINE,
    ]
    texts += [periodic(f"10-23 10:52:{at}0", prompt="~0.0") for at in range(3)]
    texts += ['(APIServer pid=1) INFO: 1.1.1.1 - "POST / HTTP/1.1" 400 Bad Request']
    texts = [text.replace("org/m'", "org/m~'").replace("19,", "1~,") for text in texts]
    pairs = [(text, n) for text in texts for n in "12"]
    pairs.sort(key=lambda pair: not mixed and pair[1])
    pid = "pid=~" if mixed else "pid="
    lines = [
        prefix.format(n) + t.replace("pid=", pid).replace("~", n) for t, n in pairs
    ]
    told = [
        (x.facts.model, x.facts.kv_cache_tokens, x.prompt_tokens)
        for x in read_lines(*lines)
    ]
    assert told == [("org/m1", 911_824, 300.0), ("org/m2", 912_824, 600.0)]
    assert [x.refused and x.refused.most for x in read_lines(*lines)] == [1, 1]


def test_figures_are_those_of_the_log() -> None:
    life = engine(
        periodic("10-23 10:52:00", prompt=100.0, running=3, waiting=2, kv=22.1),
        periodic("10-23 10:52:10", prompt=50.5),
    )
    first, second = life.windows
    assert (first.prompt_tokens_per_s, first.running, first.waiting) == (100.0, 3, 2)
    assert (first.kv_use, first.hit_rate) == pytest.approx((0.221, 0.125))
    assert (second.seconds, second.prompt_tokens_per_s) == (10.0, 50.5)
    assert life.prompt_tokens == pytest.approx(1_505)


@pytest.mark.parametrize(
    ("text", "other", "engines"),
    [
        # 0.20 counts deferred requests, 0.32 KV fetches; 0.31 leaves out a hit rate of nothing.
        ("GPU KV", "Deferred: 2 reqs, KV fetch: 1 waiting to start, XPU KV", 1),
        (", Prefix cache hit rate: 12.5%", "", 1),
        ("Engine 000: ", "8 Engines Aggregated: ", 8),
        ("Engine 000: ", "Engine my core: ", 1),
    ],
)
def test_what_stands_between_is_no_hindrance(
    text: str, other: str, engines: int
) -> None:
    life = engine(periodic("10-23 10:52:00").replace(text, other))
    (window,) = life.windows
    assert (window.running, window.engines, life.engines) == (1, engines, engines)
    assert (window.hit_rate is None) == (not other)


@pytest.mark.parametrize(
    ("seconds", "lengths"),
    [
        ((0, 1, 2), (1, 1, 1)),  # VLLM_LOG_STATS_INTERVAL=1: so was the first
        ((0, 60, 120), (10, 60, 60)),
        ((0, 10, 35), (10, 10, 25)),  # a server that was too busy to log
        (
            (0, 0, 0, 5),
            (10, 10, 5, 5),
        ),  # all are kept, and the last is as long as the next
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_window_is_as_long_as_what_was_reckoned(seconds, lengths, as_json) -> None:
    """By vLLM's own stamp, over New Year; or by the time of a JSON record."""
    times = [
        datetime(2026, 12, 31, 23, 59, 55, tzinfo=UTC) + timedelta(seconds=s)
        for s in seconds
    ]
    lines = [periodic(f"{time:%m-%d %H:%M:%S}") for time in times]
    if as_json:
        text = lines[0].split("] ")[1]
        lines = [json.dumps({"msg": text, "ts": time.isoformat()}) for time in times]
    life = engine(*lines)
    assert tuple(window.seconds for window in life.windows) == lengths
    assert tuple(window.end_s for window in life.windows) == seconds
    assert life.prompt_tokens == sum(lengths)


@pytest.mark.parametrize(("later", "seconds"), [(":26", 16), (":27", 10), (":59", 10)])
def test_while_idle_vllm_reckons_without_a_word(later: str, seconds: int) -> None:
    quiet = periodic("10-23 10:00:10", prompt=0.0, running=0).replace("5.5", "0.0")
    life = engine(periodic("10-23 10:00:00"), quiet, periodic(f"10-23 10:00{later}"))
    assert [window.seconds for window in life.windows] == [10, 10, seconds]


def test_lines_without_a_time_follow_each_other() -> None:
    life = engine(*[PERIODIC.format(prompt=1.0, running=1, waiting=0, kv=1.0)] * 3)
    assert [window.end_s for window in life.windows] == [10, 20, 30]


def test_a_log_of_weeks_keeps_its_sums_in_few_windows() -> None:
    reader = LogReader()
    count = 3 * MOST_WINDOWS
    for n in range(count):
        when = f"{1 + n // 8640:02}-01 {n // 360 % 24:02}:{n // 6 % 60:02}:{n % 6}0"
        reader.feed(f"{periodic(when)}\n".encode())
    (life,) = reader.starts()
    assert len(life.windows) < MOST_WINDOWS
    assert life.prompt_tokens == pytest.approx(count * 10, rel=0.01)


STEP = (
    "Iteration(7): {p} context requests, {t} context tokens, {d} generation requests, {d} "
    "generation tokens, iteration elapsed time: {ms} ms"
)


def test_steps_are_added_up() -> None:
    steps = engine(
        stamped(STEP.format(p=0, t=0, d=4, ms="10.00")),
        stamped(STEP.format(p=1, t=2048, d=4, ms="80.00")),
        "Engine 000: "
        + STEP.format(p=1, t=256, d=0, ms="20.00")
        + ", GPU KV cache usage: 0.0%",
    ).steps
    assert (steps.slowdown, steps.longest_ms) == pytest.approx((8.0, 80.0))
    quick = engine(BEGUN, stamped(STEP.format(p=0, t=0, d=4, ms="0.40"))).steps
    assert (quick.slowdown, quick.longest_ms, quick.longest_line) == (None, 0.4, 2)


TROUBLES = [
    (
        Failure.NO_FREE_MEMORY,
        "ValueError: Free memory on device cuda:0 (12.5/139.8 GiB) on startup is less than desired "
        "GPU memory utilization (0.9, 125.82 GiB). Decrease GPU memory utilization",
        {"free_gib": 12.5},
    ),
    (
        Failure.NO_CACHE_BLOCKS,
        "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine.",
        {},
    ),
    (
        Failure.CONTEXT_TOO_LONG,
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (5.40 GiB). "
        "Based on the available memory, the estimated maximum model length is 44208.",
        {"needed_gib": 16.0, "available_gib": 5.4, "longest": 44_208},
    ),
    (
        Failure.OOM_SAMPLER,
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy "
        "requests. Please try lowering `max_num_seqs`",
        {"requests": 1_024},
    ),
    (
        Failure.OOM_START,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.04 GiB. GPU 0 has a total "
        "capacity of 79.19 GiB of which 7.02 GiB is free.",
        {"asked_gib": 7.04, "left_gib": 7.02},
    ),
    (Failure.OOM_HOST, "RuntimeError: unable to mmap 4976 bytes: Cannot allocate memory (12)", {}),
    (Failure.DIED, "EngineCore encountered a fatal error.", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "figures"), TROUBLES, ids=[t[0].name for t in TROUBLES]
)
def test_the_first_cause_of_an_end_is_found(
    kind: Failure, text: str, figures: dict
) -> None:
    told = [
        BEGUN,
        stamped(SAID[0][0]),
        stamped(text),
        stamped("EngineCore failed to start."),
    ]
    failure = engine(*told).failure
    assert (failure.kind, failure.line) == (kind, 3)
    assert failure.figures == pytest.approx(figures)
    assert cause_in(stamped(text), started=False)[0] is kind.status


def test_sizes_in_mib_and_the_samplers_error_behind_the_one_it_came_from() -> None:
    """As tracebacks of 0.11 to 0.32 have them."""
    memory = TROUBLES[4][1].replace("7.02 GiB", "512.00 MiB")
    lines = ("EngineCore failed to start.", memory, TROUBLES[3][1])
    failure = engine(BEGUN, *(stamped(line, level="ERROR") for line in lines)).failure
    assert (failure.kind, failure.line) == (Failure.OOM_SAMPLER, 4)
    assert failure.figures == {"asked_gib": 7.04, "left_gib": 0.5, "requests": 1_024}


DIED = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace"
FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed: {}"
)
CORE = "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client."
PREEMPTED = "*** JOB 8 ON n1 CANCELLED AT 2026-11-15T22:48:00 DUE TO PREEMPTION ***"
KILLS = [
    *(
        "Killed",
        "a.sh: line 2: 48 Killed      vllm serve m",
        "Out of memory: Killed process 48",
    ),
    *(
        "Reason: OOMKilled",
        "vllm-1 exited with code 137",
        "JOB 8 CANCELLED DUE TO TIME LIMIT",
    ),
    *(
        "Detected 1 oom_kill event in StepId=1.0.",
        CORE,
        "died unexpectedly (exit code: -9), x",
    ),
    "Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': -9}",
    "vllm.service: Main process exited, code=killed, status=9/KILL",
]


@pytest.mark.parametrize(
    ("kind", "lines", "reason", "at"),
    [
        (
            Failure.DIED,
            ["EngineCore failed to start.", "Traceback", DIED, DEAD],
            DIED[6:],
            5,
        ),
        (Failure.KILLED, [f"slurmstepd: error: {PREEMPTED}", DEAD], PREEMPTED, 3),
        *(
            (Failure.DIED, [text], None, 3)
            for text in (DEAD, FAILED, "Bus error (core dumped)")
        ),
        (Failure.DIED, [DIED, *["x"] * 99, FAILED], DIED[6:], 3),
        (Failure.DIED, ["OSError: port is in use"], "OSError: port is in use", 3),
        *((Failure.KILLED, [text, DEAD], None, 3) for text in KILLS),
        (Failure.DIED, [DIED, DEAD, CORE], DIED[6:], 3),
    ],
)
def test_an_engine_that_died_of_something_else(
    kind, lines: list[str], reason, at: int
) -> None:
    text = [
        stamped(line, level="ERROR") if "Killed" not in line else line for line in lines
    ]
    failure = engine(stamped("Using max model len 64"), stamped("x"), *text).failure
    assert (failure.kind, failure.reason, failure.line) == (kind, reason, at)


def test_an_error_of_vllm_needs_no_engine_that_began() -> None:
    frame = '  File "/usr/local/bin/vllm", line 5, in <module>'
    assert engine(frame, "ImportError: libcudart.so.12").failure.error == "ImportError"
    assert not read_lines("Traceback", "ImportError: libcudart.so.12")


@pytest.mark.parametrize(
    ("kind", "cause", "error"),
    [
        (Failure.CONTEXT_TOO_LONG, TROUBLES[2][1], None),
        (Failure.DIED, DIED, "AcceleratorError"),
    ],
)
def test_a_traceback_is_a_part_of_its_json_line(kind, cause, error) -> None:
    """Its message alone says that the engine failed, and not why."""
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
    failed = {"message": "EngineCore failed to start.", "exc_info": frames + cause}
    failure = engine(BEGUN, json.dumps(failed)).failure
    assert (failure.kind, failure.line, failure.error) == (kind, 2, error)


def test_errors_that_ended_nothing() -> None:
    """A start goes on after it; an engine, or a job, that is ended was not killed."""
    ended = "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-11-15T22:48:00 ***"
    assert engine(stamped("Using max model len 64"), ended).failure is None
    harmless = stamped("ValueError: no chat template", level="ERROR")
    stopped = stamped("[shutdown] MPClient: complete")
    going_on = engine(stamped("Using max model len 64"), harmless, LINE)
    ready, answered = stamped(SAID[8][0]), 'INFO: 1.1.1.1 - "POST /v1 HTTP/1.1" 500'
    assert engine(ready, harmless, answered).failure is None
    assert engine(ready, harmless).failure.error == "ValueError", "no server came up"
    assert engine(BEGUN, harmless, stopped, stamped(FAILED)).failure.reason.endswith(
        "template"
    )
    ended = engine(periodic("10-23 10:52:00"), harmless, stopped, stamped(DEAD))
    assert (
        going_on.failure
        is ended.failure
        is engine(stopped, stamped(DEAD)).failure
        is None
    )
    assert engine(SERVING, stamped(DIED), stamped(DEAD)).failure.reason == DIED[6:]


SERVING = periodic("10-23 10:52:00")
FRAME = '  File "a.py", line 9, in '  # of either model runner


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        (Failure.OOM_LOADING, [BEGUN]),  # not a matter of the budget
        (Failure.OOM_RUNNING, [SERVING]),
        (
            Failure.OOM_RUNNING,
            [BEGUN, stamped(SAID[8][0])],
        ),  # ready; the LLM class says no more
        (
            Failure.OOM_LOGPROBS,
            [SERVING, FRAME + "_get_prompt_logprobs_dict", "    x = y"],
        ),
        (
            Failure.OOM_LOGPROBS,
            [SERVING, FRAME + "compute_prompt_logprobs_with_chunking"],
        ),
    ],
)
def test_what_ran_out_of_memory(kind: Failure, before: list[str]) -> None:
    assert engine(*before, stamped(TROUBLES[4][1])).failure.kind is kind


REFUSED = [
    "The decoder prompt (length 2100) is longer than the maximum model length of 2048. Make sure",
    "This model's maximum context length is 2048 tokens. However, you requested 8 output tokens "
    "and your prompt contains at least 2100 input tokens, for a total of",
    "This model's maximum context length is 2048 tokens. However, your prompt contains 2100 input "
    "tokens, which exceeds this limit even without any output tokens",
    "This model's maximum context length is 2048 tokens. However, your request has 2100 input "
    "tokens. Please reduce the length of the input messages.",
    "This model's maximum context length is 2048 tokens. However, you requested 2200 tokens (2100 "
    "in the messages, 100 in the completion).",
    "'max_tokens' or 'max_completion_tokens' is too large: 900. This model's maximum context "
    "length is 2048 tokens and your request has 2100 input tokens (900 > 2048 - 2100).",
]
CHARACTERS = (  # of which no tokens are told
    "This model's maximum context length is 2048 tokens. However, you requested 8 output tokens "
    "and your prompt contains 99999 characters (more than 81600 characters, which is the upper "
    "bound for 2040 input tokens)."
)


@pytest.mark.parametrize("text", [*REFUSED, CHARACTERS], ids=range(1 + len(REFUSED)))
def test_refused_prompts_are_counted(text: str) -> None:
    refused = engine(stamped(text), stamped(text)).refused
    longest = 0 if text is CHARACTERS else 2_100
    assert (refused.count, refused.longest, refused.limit) == (2, longest, 2_048)


def test_nothing_of_a_prompt_or_a_key_is_kept() -> None:
    secret = "sk-SECRET-PROMPT"
    life = engine(
        stamped(f"non-default args: {{'api_key': ['{secret}'], 'max_num_seqs': 8, 'model': "
                f"'{secret} x(y)', 'hf_token': '{secret}'}}"),
        stamped(f"Received request cmpl-1: prompt: '{secret} GPU KV cache size: 5 tokens', params"),
        stamped(f"Request cmpl-1 details: prompt: '{secret} GPU KV cache size: 5 tokens', "
                "prompt_token_ids: None", level="DEBUG"),
        stamped(f"something unheard of {secret}"),
        *(BEGUN, stamped(SAID[8][0]), stamped(f"ValueError: {secret}"), stamped(DEAD)),
    )  # fmt: skip
    assert (secret not in repr(life), life.failure.error) == (True, "ValueError")
    assert (life.arguments, life.facts.kv_cache_tokens) == ({"max_num_seqs": 8}, None)


@pytest.mark.parametrize(
    ("log", "text"),
    [
        pytest.param(
            "(EngineCore pid=9) ERROR [core.py:2] Traceback (most recent call last):\n"
            "(EngineCore pid=9) ERROR [core.py:2] AssertionError: Chunked prefill is required\n"
            "RuntimeError: Engine core initialization failed. See root cause above.",
            "AssertionError: Chunked prefill is required",
            id="the cause and not its consequence",
        ),
        pytest.param(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig\n"
            "  Value error, max_num_batched_tokens (16) must be greater than max_num_seqs (32). "
            "[type=value_error, input_value=ArgsKwargs((), {'runner_t...}), input_type=x]\n",
            "max_num_batched_tokens (16) must be greater than max_num_seqs (32).",
            id="in vLLM's own sentence",
        ),
        pytest.param(
            "  Value error, World size (8) is larger than 4. If this is intentional, use:\n- ray\n",
            "World size (8) is larger than 4",
            id="without the beginning of a list",
        ),
    ],
)
def test_a_refusal_is_told_by_its_cause(log: str, text: str) -> None:
    assert cause_in(log, started=False) == (Status.REFUSED, text)


@pytest.mark.parametrize(("before", "cause"), [(59, "odd"), (60, "fatal")])
def test_an_error_that_was_long_survived_is_not_the_cause(
    before: int, cause: str
) -> None:
    log = ["AssertionError: odd", *["INFO x"] * (before - 1), TROUBLES[-1][1]]
    assert cause in cause_in("\n".join(log), started=True)[1]


def test_an_assertion_in_the_middle_is_no_refusal_and_a_silent_log_says_nothing() -> (
    None
):
    assert cause_in("AssertionError: odd", started=True)[0] is Status.DIED
    gone = "MPClient: engine core exited unexpectedly"
    assert cause_in(stamped(f"[shutdown] {gone}"), started=True) == (Status.DIED, gone)
    assert (
        cause_in("INFO 11-15 [core.py:1] GPU KV cache size: 8 tokens", started=True)
        is None
    )


@pytest.mark.parametrize(
    ("line", "doing"),
    [
        ("[gpu_model_runner.py:4959] Starting to load model /m...", "loading weights"),
        ("Loading safetensors checkpoint shards:  50% Completed | 2/4", "loading weights"),
        ("[backends.py:1148] Dynamo bytecode transform time: 6.52 s", "compiling"),
        ("DeepGEMM warmup:  12%|#         | 120/1000 [00:10<01:10]", "building kernels"),
        ("[autotuner.py:262] flashinfer.jit: [Autotuner]: Autotuning process starts ...",
         "autotuning kernels"),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   2%|1 | 1/51",
         "capturing CUDA graphs"),
        ("Enforce eager set, disabling torch.compile and CUDAGraphs.", None),
        ("Skipping FlashInfer autotune because it is disabled.", None),
        ("Graph capturing finished in 12 secs, took 0.46 GiB", None),
    ],
)  # fmt: skip
def test_a_line_tells_what_an_engine_is_doing(line, doing) -> None:
    assert doing_in(line) == doing
    assert doing_in(f"{line}\nINFO something else\n") == doing, (
        "until another one tells"
    )


def test_a_real_start_is_followed(shared) -> None:
    """As an H200 logged it: every phase in its turn."""
    text = (shared / "data/vllm_logs/vllm-0.24.0-h200-serve-bench.log").read_text()
    seen = dict.fromkeys(filter(None, map(doing_in, text.splitlines())))
    assert list(seen) == ["loading weights", "compiling", "capturing CUDA graphs"]
