"""Requests out of files: what a trace may look like, and what it may not."""

import json
from dataclasses import replace

import pytest

import chunkscope
from chunkscope.errors import InputError
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.traces import read_trace
from chunkscope.simulation.workload import AS_IN_TRACE, single
from chunkscope.verification.result import Verification
from tests.h200 import FOLDER
from tests.simulation.common import args, arriving, simulate


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def mooncake(*rows):
    """A line for each row: timestamp, lengths and blocks, as far as it says them."""
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = [json.dumps(dict(zip(keys, row, strict=False))) + "\n" for row in rows]
    return "".join(lines)


def test_times_are_milliseconds_and_count_from_the_first(tmp_path):
    path = written(tmp_path, "trace.jsonl", mooncake((1_000, 10, 5), (1_500, 20, 6)))

    assert list(read_trace(path).sessions) == arriving((10, 5, 0.0), (20, 6, 0.5))


def test_a_request_without_an_answer_gives_one_token(tmp_path):
    path = written(tmp_path, "trace.jsonl", mooncake((0, 0, 0)))

    assert read_trace(path).sessions == (single(1, 1),)


def test_the_workload_of_a_verify_run_is_taken_as_it_was():
    file = FOLDER / "llama-3.1-8b-mixed" / "verify.json"
    sent = Verification.load(file).workload

    assert read_trace(file) == replace(sent, arrivals=AS_IN_TRACE)


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        pytest.param("t.jsonl", "", "t.jsonl", id="empty"),
        pytest.param("t.jsonl", "{]\n", "t.jsonl:1", id="not JSON"),
        pytest.param("t.jsonl", "[1]\n", "t.jsonl:1", id="not an object"),
        pytest.param("t.jsonl", '{"timestamp": 1}\n', "input_length", id="no lengths"),
        pytest.param(
            "t.jsonl", mooncake((0, 5, 5), (1, -3, 5)), "t.jsonl:2", id="negative"
        ),
        pytest.param("t.jsonl", mooncake((0, 5, 1.5)), "t.jsonl:1", id="half a token"),
        pytest.param(
            "t.jsonl", mooncake((9, 5, 5), (8, 5, 5)), "t.jsonl:2", id="disorder"
        ),
        pytest.param("t.jsonl", mooncake(("noon", 5, 5)), "'noon'", id="no time"),
        pytest.param("t.jsonl", mooncake((True, 5, 5)), "timestamp", id="true"),
        pytest.param(
            "t.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n1,1,1\n",
            "t.csv:1",
            id="a csv",
        ),
        pytest.param("v.json", "[1]", "v.json", id="some JSON"),
        pytest.param("v.json", "{", "v.json", id="broken JSON"),
    ],
)
def test_a_file_that_is_no_trace_says_where(tmp_path, name, text, where):
    with pytest.raises(InputError) as error:
        read_trace(written(tmp_path, name, text))

    assert where in error.value.message


@pytest.mark.shared
def test_a_real_trace_is_read_whole(shared):
    trace = read_trace(shared / "data/mooncake_trace/conversation_trace.jsonl")

    assert len(trace.sessions) == 12_031
    assert trace.sessions[0].arrival_s == 0
    assert trace.sessions[-1].arrival_s > 3_000


# -- what prompts share --------------------------------------------------------


def test_blocks_of_one_name_are_shared(tmp_path):
    rows = (
        (0, 1_300, 5, [0, 1, 2]),
        (1, 1_400, 5, [0, 1, 3]),
        (2, 900, 5, [0, 4]),
        (3, 90, 5, []),
    )
    trace = read_trace(written(tmp_path, "t.jsonl", mooncake(*rows)))

    assert trace.stretches == (
        Stretch(parent=-1, tokens=512),
        Stretch(parent=0, tokens=512),
    )
    assert [session.stretch for session in trace.sessions] == [1, 1, 0, -1]


def test_blocks_that_fit_no_size_are_an_input_error(tmp_path):
    rows = (0, 100, 5, [0]), (1, 5_000, 5, [0, 1]), (2, 100, 5, [0, 1])

    with pytest.raises(InputError, match="hash_ids"):
        read_trace(written(tmp_path, "t.jsonl", mooncake(*rows)))


@pytest.mark.parametrize("ids", ["0", [0.5], ["a"], {"0": 1}, [1 << 70]], ids=str)
def test_blocks_that_are_no_numbers_are_an_error(tmp_path, ids):
    text = mooncake((0, 100, 5, [0]), (1, 100, 5, ids))

    with pytest.raises(InputError, match=r"t\.jsonl:2"):
        read_trace(written(tmp_path, "t.jsonl", text))


def test_the_simulator_finds_what_analyze_says_when_nothing_is_forgotten(shared):
    """Real conversations, one after the other in a cache that has room for all of
    them."""
    path = shared / "data" / "mooncake_trace" / "conversation_trace.jsonl"
    trace = read_trace(path)
    requests = []
    for number, request in enumerate(trace.requests):
        requests.append(single(request.prompt_tokens, 1, 1e3 * number, request.stretch))
    ample = args(max_num_batched_tokens=200_000, kv_cache_tokens=1 << 28)

    run = simulate(requests, ample, vllm="0.28", stretches=trace.stretches)

    (dataset,) = chunkscope.analyze(path).datasets
    assert dataset.prefixes is not None
    assert run.cached_tokens == dataset.prefixes.cached_tokens
