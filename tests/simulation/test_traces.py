"""Requests out of files: what a trace may look like, and what it may not."""

import json
from dataclasses import replace

import pytest

import chunkscope
from chunkscope.errors import InputError
from chunkscope.prefixes.sharing import Stretch
from chunkscope.simulation.traces import read_trace
from chunkscope.simulation.workload import AS_IN_TRACE
from chunkscope.verification.result import Verification
from tests.h200 import FOLDER
from tests.simulation.common import args, arriving, simulate


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def moon(*rows):
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return "".join(
        json.dumps(dict(zip(keys, row, strict=False))) + "\n" for row in rows
    )


def test_mooncakes_times_are_milliseconds(tmp_path):
    path = written(tmp_path, "trace.jsonl", moon((1_000, 10, 5), (1_500, 20, 6)))
    assert list(read_trace(path).requests) == arriving((10, 5, 0.0), (20, 6, 0.5))


def test_azures_times_are_dates(tmp_path):
    path = written(
        tmp_path,
        "trace.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,0\n",
    )
    first, second = read_trace(path).requests
    assert (first.prompt_tokens, first.output_tokens) == (4_808, 10)
    assert second.arrival_s == pytest.approx(0.052)
    assert second.output_tokens == 1, "a request gives a token at least"


def test_the_workload_of_a_verify_run_is_taken_as_it_was():
    file = FOLDER / "llama-3.1-8b-mixed" / "verify.json"
    sent = Verification.load(file).workload
    assert read_trace(file) == replace(sent, arrivals=AS_IN_TRACE) != sent


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        pytest.param("t.jsonl", "", "t.jsonl", id="empty"),
        pytest.param("t.jsonl", "{]\n", "t.jsonl:1", id="not JSON"),
        pytest.param("t.jsonl", '{"timestamp": 1}\n', "t.jsonl", id="no lengths"),
        pytest.param(
            "t.jsonl", moon((0, 5, 5), (1, -3, 5)), "t.jsonl:2", id="negative"
        ),
        pytest.param("t.jsonl", moon((0, 5, 1.5)), "t.jsonl:1", id="half a token"),
        pytest.param("t.jsonl", moon((9, 5, 5), (8, 5, 5)), "t.jsonl:2", id="disorder"),
        pytest.param("t.jsonl", moon(("noon", 5, 5)), "'noon'", id="no time"),
        pytest.param("t.csv", "a,b\n1,2\n", "t.csv", id="other columns"),
        pytest.param(
            "t.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,1,1\n",
            "t.csv:2",
            id="a csv with no time",
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
@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("azure_llm_trace/AzureLLMInferenceTrace_code.csv", 8_819),
        ("azure_llm_trace/AzureLLMInferenceTrace_conv.csv", 19_366),
        ("mooncake_trace/conversation_trace.jsonl", 12_031),
    ],
)
def test_real_traces_are_read_whole(shared, name, requests):
    found = read_trace(shared / "data" / name).requests
    assert len(found) == requests
    assert found[0].arrival_s == 0
    assert found[-1].arrival_s > 3_000


# -- what prompts share ----------------------------------------------------------------------------


def test_blocks_of_one_name_are_shared(tmp_path):
    rows = (
        (0, 1_300, 5, [0, 1, 2]),
        (1, 1_400, 5, [0, 1, 3]),
        (2, 900, 5, [0, 4]),
        (3, 90, 5, []),
    )
    trace = read_trace(written(tmp_path, "t.jsonl", moon(*rows)))
    assert trace.stretches == (
        Stretch(parent=-1, tokens=512),
        Stretch(parent=0, tokens=512),
    )
    assert [request.stretch for request in trace.requests] == [1, 1, 0, -1]


def test_blocks_that_fit_no_size_are_an_input_error(tmp_path):
    rows = (0, 100, 5, [0]), (1, 5_000, 5, [0, 1]), (2, 100, 5, [0, 1])
    with pytest.raises(InputError, match="hash_ids"):
        read_trace(written(tmp_path, "t.jsonl", moon(*rows)))


@pytest.mark.parametrize("ids", ["0", [0.5], ["a"], {"0": 1}, [1 << 70]], ids=str)
def test_blocks_that_are_no_numbers_are_an_error(tmp_path, ids):
    path = written(tmp_path, "t.jsonl", moon((0, 100, 5, [0]), (1, 100, 5, ids)))
    with pytest.raises(InputError, match=r"t\.jsonl:2"):
        read_trace(path)


def test_the_simulator_finds_what_analyze_says_when_nothing_is_forgotten(shared):
    """Real conversations, one after the other in a cache that has room for all of them."""
    path = shared / "data" / "mooncake_trace" / "conversation_trace.jsonl"
    trace = read_trace(path)
    requests = [
        replace(r, output_tokens=1, arrival_s=1e3 * n)
        for n, r in enumerate(trace.requests)
    ]
    ample = args(max_num_batched_tokens=200_000, kv_cache_tokens=1 << 28)
    run = simulate(requests, ample, vllm="0.28", stretches=trace.stretches)
    (dataset,) = chunkscope.analyze(path).datasets
    assert dataset.prefixes is not None
    assert run.cached_tokens == dataset.prefixes.cached_tokens
