"""vLLM's log by message: lines of each version, as collectors pass them on."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest

from chunkscope.vllm.log.lines import CUT
from chunkscope.vllm.log.reader import LogReader
from chunkscope.vllm.log.windows import MOST_WINDOWS
from chunkscope.vllm.settings import Settings
from tests.vllm.log_lines import (
    BEGUN,
    CACHE,
    READY,
    SAID,
    SERVING,
    START,
    engine,
    errors,
    periodic,
    read,
    stamped,
    starts,
)

# -- facts ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"), SAID, ids=[text[:40] for text, _ in SAID]
)
def test_a_message_says_its_facts(text, expected) -> None:
    facts = engine(stamped("Using max model len 131072"), stamped(text)).facts
    told = {**asdict(facts), **facts.settings.given()}
    assert {name: told[name] for name in expected} == expected


def test_the_first_line_of_an_engine_says_how_it_is_configured() -> None:
    nightly = "0.15.2rc1.dev93+g11a4c9d30.cu128"
    facts = engine(stamped(START.format(version=nightly))).facts
    assert (facts.version, facts.model, facts.dtype) == (nightly, "org/m", "bfloat16")
    assert facts.enforce_eager
    assert facts.settings == Settings(
        max_model_len=4_096,
        tensor_parallel_size=2,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        kv_cache_dtype="fp8",
    )


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(CACHE, id="as vLLM writes it"),
        pytest.param(
            "INFO 10-23 10:51:24 [kv_cache.py:9] GPU KV cache size: 919,824 tokens",
            id="without a process",
        ),
        pytest.param(
            "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m 10-23 10:51:24 "
            "[k.py:9] GPU KV cache size: 919,824 tokens",
            id="coloured",
        ),
        pytest.param(
            f"2026-10-23T10:51:24.123456789Z stdout F {CACHE}", id="Kubernetes"
        ),
        pytest.param(f"Oct 23 10:51:24 host vllm[123]: {CACHE}", id="journald"),
        pytest.param(f"vllm-1  | {CACHE}", id="Docker Compose"),
        pytest.param(
            json.dumps({"log": f"{CACHE}\n", "stream": "stderr"}), id="Docker's file"
        ),
        pytest.param("GPU KV cache size: 919,824 tokens", id="the message alone"),
    ],
)
def test_messages_are_found_whatever_is_put_before_them(line) -> None:
    assert engine(line).facts.kv_cache_tokens == 919_824


def test_the_kv_cache_is_that_of_the_worker_with_the_least() -> None:
    less = CACHE.replace("919,824", "900,000")
    more = CACHE.replace("919,824", "950,000")
    start = engine(BEGUN, CACHE, less, more)
    assert (start.facts.kv_cache_tokens, start.line_of["kv_cache_tokens"]) == (
        900_000,
        3,
    )


@pytest.mark.parametrize("number", ["9" * 16, "9" * 400], ids=len)
def test_numbers_that_nothing_can_have_are_not_read(number) -> None:
    start = engine(
        BEGUN.replace("4096", number),
        CACHE.replace("919,824", number),
        periodic("10-23 10:52:00", running=number),
    )
    assert start.facts.settings.max_model_len is None
    assert start.facts.kv_cache_tokens is None
    assert start.windows == ()


def test_nothing_of_a_prompt_or_a_key_is_kept() -> None:
    secret = "sk-SECRET-PROMPT"
    prompt = f"prompt: '{secret} GPU KV cache size: 5 tokens'"
    start = engine(
        stamped(
            f"non-default args: {{'api_key': ['{secret}'], 'max_num_seqs': 8, "
            f"'model': '{secret} x(y)', 'hf_token': '{secret}'}}"
        ),
        stamped(f"Received request cmpl-1: {prompt}, params"),
        stamped(f"Request cmpl-1 details: {prompt}, ids: None", level="DEBUG"),
        stamped(f"something unheard of {secret}"),
        BEGUN,
        stamped(READY),
        stamped(f"ValueError: {secret}"),
        *errors("EngineCore failed to start."),
    )
    assert secret not in repr(start)
    assert start.failure.error == "ValueError"
    assert start.arguments == {"max_num_seqs": 8}
    assert start.facts.kv_cache_tokens is None


# -- lines ---------------------------------------------------------------------


def test_a_line_without_end_is_cut() -> None:
    reader = LogReader()
    for piece in (b"a" * CUT, b"b" * CUT, b"c\n"):
        reader.feed(piece)
    assert (reader.lines, len(reader.starts())) == (1, 0)


def test_a_line_waits_for_its_end() -> None:
    reader = LogReader()
    reader.feed(CACHE[:40].encode())
    reader.feed(CACHE[40:].encode())
    assert (reader.lines, reader.understood) == (0, 0)
    reader.feed(b"", last=True)
    assert (reader.lines, reader.understood) == (1, 1)


# -- starts --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "version"),
    [
        pytest.param([BEGUN], "0.24.0", id="with its beginning"),
        pytest.param([], None, id="rotated, so that nothing tells how it began"),
    ],
)
def test_an_engine_that_served_and_begins_again_is_another_start(
    before, version
) -> None:
    first, second = starts(*before, SERVING, BEGUN, CACHE)
    assert (first.facts.version, first.facts.kv_cache_tokens) == (version, None)
    assert (second.facts.kv_cache_tokens, second.windows) == (919_824, ())
    assert (first.first_line, second.first_line) == (1, 2 + len(before))


def test_what_a_server_says_first_is_of_the_engine_that_it_starts() -> None:
    banner = stamped("█  version 0.28.0", process="(APIServer pid=1) ")
    arguments = stamped(
        "non-default args: {'max_num_seqs': 8}", process="(APIServer pid=1) "
    )
    first, second = starts(banner, arguments, BEGUN, banner, arguments, BEGUN)
    assert (first.first_line, second.first_line) == (1, 4)
    assert first.arguments == second.arguments == {"max_num_seqs": 8}


def test_engines_of_one_server_start_together() -> None:
    begun = []
    windows = []
    for number in range(2):
        process = f"(EngineCore_DP{number} pid={number}) "
        begun.append(stamped(START.format(version="0.24.0"), process=process))
        windows.append(SERVING.replace("Engine 000", f"Engine 00{number}"))
    start = engine(*begun, *windows)
    assert start.engines == 2
    assert [window.engine for window in start.windows] == ["000", "001"]


SERVERS = ["vllm-{}  | ", "[pod/vllm-{}/server] "]


def server(number: int, prefix: str = "", pid: str = "1") -> list[str]:
    lines = [
        stamped("█  version 0.28.0", process="(APIServer pid=1) "),
        BEGUN.replace("org/m", f"org/m{number}"),
        periodic("10-23 10:52:00"),
        periodic("10-23 10:52:10"),
    ]
    named = []
    for line in lines:
        named.append(prefix.format(number) + line.replace("pid=1", f"pid={pid}"))
    return named


def mixed(*servers: list[str]) -> list[str]:
    lines: list[str] = []
    for together in zip(*servers, strict=True):
        lines += together
    return lines


@pytest.mark.parametrize(
    "lines",
    [
        *(
            pytest.param(mixed(server(1, prefix), server(2, prefix)), id=prefix)
            for prefix in SERVERS
        ),
        pytest.param(mixed(server(1, pid="11"), server(2, pid="12")), id="by process"),
    ],
)
def test_two_servers_that_write_at_once_are_noticed(lines) -> None:
    assert read(*lines).mixed_line is not None


@pytest.mark.parametrize("prefix", [*SERVERS, ""])
def test_servers_one_after_another_are_starts(prefix) -> None:
    reader = read(*server(1, prefix), *server(2, prefix))
    assert reader.mixed_line is None
    models = [start.facts.model for start in reader.starts()]
    assert models == ["org/m1", "org/m2"]


def test_the_processes_of_one_server_are_not_two_servers() -> None:
    """As they are restarted in a container, and each with its own number."""
    workers = [
        stamped("Model loading took 1.0 GiB", process=f"(Worker_TP{n} pid={n}) ")
        for n in (5, 6, 5)
    ]
    again = [line.replace("pid=7", "pid=9") for line in server(1)]
    assert read(*server(1), *workers, *again, *server(1)).mixed_line is None


# -- windows -------------------------------------------------------------------


def test_figures_are_those_of_the_log() -> None:
    start = engine(
        periodic("10-23 10:52:00", prompt=100.0, running=3, waiting=2, kv=22.1),
        periodic("10-23 10:52:10", prompt=50.5),
    )
    first, second = start.windows
    assert (first.prompt_tokens_per_s, first.running, first.waiting) == (100.0, 3, 2)
    assert (first.kv_use, first.hit_rate) == pytest.approx((0.221, 0.125))
    assert (second.seconds, second.prompt_tokens_per_s) == (10.0, 50.5)
    assert start.prompt_tokens == pytest.approx(1_505)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        pytest.param(
            "GPU KV",
            "Deferred: 2 reqs, KV fetch: 1 waiting to start, XPU KV",
            id="0.20 counts deferred requests, 0.32 KV fetches",
        ),
        pytest.param("Engine 000: ", "8 Engines Aggregated: ", id="data parallel"),
        pytest.param("Engine 000: ", "Engine my core: ", id="another name"),
    ],
)
def test_what_stands_between_is_no_hindrance(text, other) -> None:
    (window,) = engine(SERVING.replace(text, other)).windows
    assert (window.running, window.hit_rate) == (1, 0.125)


@pytest.mark.parametrize(
    ("seconds", "lengths"),
    [
        pytest.param((0, 60, 120), (10, 60, 60), id="a longer interval"),
        pytest.param((0, 10, 35), (10, 10, 25), id="a server too busy to log"),
        pytest.param((0, 0, 5), (10, 10, 5), id="within one second"),
    ],
)
@pytest.mark.parametrize("stamp", ["vLLM's", "ISO"])
def test_a_window_is_as_long_as_what_was_reckoned(seconds, lengths, stamp) -> None:
    """Over New Year, by vLLM's own stamp or by another logger's."""
    lines = []
    for second in seconds:
        time = datetime(2026, 12, 31, 23, 59, 55, tzinfo=UTC)
        time += timedelta(seconds=second)
        line = periodic(f"{time:%m-%d %H:%M:%S}")
        if stamp == "ISO":
            line = f"{time.isoformat()} {line.split('] ')[1]}"
        lines.append(line)
    start = engine(*lines)
    assert tuple(window.seconds for window in start.windows) == lengths
    assert tuple(window.end_s for window in start.windows) == seconds
    assert start.prompt_tokens == sum(lengths)


def test_while_idle_vllm_reckons_without_a_word() -> None:
    quiet = periodic("10-23 10:00:10", prompt=0.0, running=0).replace("5.5", "0.0")
    start = engine(periodic("10-23 10:00:00"), quiet, periodic("10-23 10:00:59"))
    assert [window.seconds for window in start.windows] == [10, 10, 10]


def test_a_log_of_weeks_keeps_its_sums_in_few_windows() -> None:
    reader = LogReader()
    count = 3 * MOST_WINDOWS
    time = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        line = periodic(f"{time + timedelta(seconds=10 * number):%m-%d %H:%M:%S}")
        reader.feed(f"{line}\n".encode())
    (start,) = reader.starts()
    assert len(start.windows) < MOST_WINDOWS
    assert start.prompt_tokens == pytest.approx(count * 10, rel=0.01)


# -- refused prompts -----------------------------------------------------------

LIMIT = "This model's maximum context length is 2048 tokens"
TOO_LONG = [
    "The decoder prompt (length 2100) is longer than the maximum model length of 2048",
    f"{LIMIT}. However, you requested 8 output tokens and your prompt contains at "
    "least 2100 input tokens, for a total of",
    f"{LIMIT}. However, your prompt contains 2100 input tokens, which exceeds this "
    "limit even without any output tokens",
    f"{LIMIT}. However, your request has 2100 input tokens. Please reduce the length",
    f"{LIMIT}. However, you requested 2200 tokens (2100 in the messages, 100 in the "
    "completion).",
    "'max_tokens' or 'max_completion_tokens' is too large: 900. "
    f"{LIMIT} and your request has 2100 input tokens (900 > 2048 - 2100).",
]
CHARACTERS = (
    f"{LIMIT}. However, you requested 8 output tokens and your prompt contains 99999 "
    "characters (more than 81600 characters, which is the upper bound for 2040 input "
    "tokens)."
)


@pytest.mark.parametrize("text", TOO_LONG, ids=range(len(TOO_LONG)))
def test_refused_prompts_are_counted(text) -> None:
    refused = engine(stamped(text), stamped(text)).refused
    assert (refused.count, refused.longest, refused.limit) == (2, 2_100, 2_048)


def test_of_a_prompt_in_characters_no_tokens_are_known() -> None:
    refused = engine(stamped(CHARACTERS)).refused
    assert (refused.count, refused.longest, refused.limit) == (1, 0, 2_048)


def test_answers_400_are_counted() -> None:
    answer = '(APIServer pid=1) INFO: 1.1.1.1 - "POST / HTTP/1.1" 400 Bad Request'
    refused = engine(BEGUN, answer, answer).refused
    assert (refused.count, refused.unexplained, refused.first_line) == (0, 2, 2)
