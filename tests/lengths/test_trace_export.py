"""`analyze --export-trace`: the requests as a trace that says what they share."""

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chunkscope.lengths.trace_export import TraceRows
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.commands.helpers import Run, analyze, write_jsonl
from tests.processes import PATIENCE_S

SHOTS = "".join(f"Q: What is {n} and {n}?\nA: It is {2 * n}.\n\n" for n in range(60))
ROWS = [
    {"question": f"{SHOTS if n % 3 else SHOTS[:300]}Q: {'so ' * (5 * n)}?", "answer": "yes " * n}
    for n in range(12)
]
ROWS += [ROWS[4], {**ROWS[5], "answer": None}]


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def found_before(prompts: Sequence[Sequence[int]], size: int) -> int:
    """Tokens that vLLM finds by blocks of so many, the last of a prompt being shorter."""
    known: set[tuple[int, ...]] = set()
    found = 0
    for prompt in prompts:
        ends = [*range(size, len(prompt), size), len(prompt)]
        shared = max((end for end in ends if tuple(prompt[:end]) in known), default=0)
        found += max(0, min(shared, len(prompt) - 1)) // 16 * 16
        known |= {tuple(prompt[:end]) for end in ends}
    return found


def export(place: Path, *words: str | Path) -> tuple[Run, list[dict[str, Any]]]:
    run = analyze(place, *words, "--export-trace", "trace.jsonl")
    assert run.code == 0, run.err
    return run, written(place / "trace.jsonl")


@pytest.mark.parametrize("size", [16, 100, 512])
def test_a_trace_comes_back_as_it_was(tmp_path: Path, size: int) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    words = ("a.jsonl", "--output-field", "answer", "--trace-block", str(size))
    run, lines = export(tmp_path, *words)
    assert all(list(line) == ["timestamp", "input_length", "output_length", "hash_ids"]
               for line in lines)  # fmt: skip
    assert [len(line["hash_ids"]) for line in lines] == [
        -(-line["input_length"] // size) for line in lines
    ]
    ids = Tokenizer(None).encode([row["question"] for row in ROWS], special_tokens=True)
    assert [line["input_length"] for line in lines] == list(map(len, ids))
    again = analyze(tmp_path, "trace.jsonl")
    assert again.dataset["histogram"] == run.dataset["histogram"]
    assert again.dataset["prefixes"]["block_size"] == size
    assert again.dataset["prefixes"]["cached_tokens"] == found_before(ids, size)
    if size == 16:
        same = ("cached_tokens", "best_order_cached_tokens", "tokens")
        assert [again.dataset["prefixes"][n] for n in same] == [
            run.dataset["prefixes"][n] for n in same
        ]


def test_outputs_are_the_datas_and_others_are_said_to_be_assumed(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    run, lines = export(tmp_path, "a.jsonl", "--output-field", "answer")
    outputs = Counter(str(line["output_length"]) for line in lines[:-1])
    assert outputs == run.dataset["output_histogram"]
    assert lines[-1]["output_length"] == 256
    assert "1 of its output lengths are assumed" in run.err
    _, lines = export(tmp_path, "a.jsonl")
    assert {line["output_length"] for line in lines} == {256}


def test_what_large_blocks_lose_is_said(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    lost = "note: of the data itself"
    assert "--trace-block 16 keeps that" in export(tmp_path, "a.jsonl")[0].err
    assert lost not in export(tmp_path, "a.jsonl", "--trace-block", "16")[0].err


def test_numbers_are_small_and_those_of_a_prefix_are_chained(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    write_jsonl(tmp_path / "b.jsonl", ROWS[:3])
    _, lines = export(tmp_path, "a.jsonl", "b.jsonl", "--trace-block", "64")
    numbers = [number for line in lines for number in line["hash_ids"]]
    assert list(dict.fromkeys(numbers)) == list(range(max(numbers) + 1))
    before: dict[int, tuple[int, ...]] = {}
    for line in lines:
        for place, number in enumerate(line["hash_ids"]):
            past = tuple(line["hash_ids"][:place])
            assert before.setdefault(number, past) == past
    assert [line["hash_ids"] for line in lines[-3:]] == [line["hash_ids"] for line in lines[:3]]


def test_it_is_the_same_after_the_data_was_counted_before(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    analyze(tmp_path, "a.jsonl")
    export(tmp_path, "a.jsonl")
    first = (tmp_path / "trace.jsonl").read_bytes()
    export(tmp_path, "a.jsonl")
    assert (tmp_path / "trace.jsonl").read_bytes() == first


@pytest.mark.parametrize("words", [[], ["--apply-chat-template"]], ids=str)
def test_chats_are_exported_as_they_are_counted(tmp_path: Path, words: list[str]) -> None:
    field = "prompt" if words else "messages"
    rows = [{field: SHOTS if words else [{"role": "user", "content": SHOTS}]} for _ in range(3)]
    write_jsonl(tmp_path / "a.jsonl", rows)
    run, lines = export(tmp_path, "a.jsonl", "--trace-block", "16", *words)
    assert Counter(str(line["input_length"]) for line in lines) == run.dataset["histogram"]
    assert lines[1]["hash_ids"] == lines[0]["hash_ids"]


@pytest.mark.parametrize("run", ["mock__plain", "mock__chat", "mock__api"])
def test_a_harness_log_is_exported_request_by_request(
    tmp_path: Path, shared: Path, run: str
) -> None:
    """Of requests that only score their prompt vLLM makes one token."""
    said, lines = export(tmp_path, shared / "data" / "harness_logs" / "lm-eval-0.4.13" / run)
    lengths: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for dataset in said.profile["datasets"]:
        lengths.update(dataset["histogram"])
        kinds.update(dataset["log"]["kinds"])
    assert Counter(str(line["input_length"]) for line in lines) == lengths
    outputs = Counter(line["output_length"] for line in lines)
    assert outputs[1] >= kinds["likelihood"]
    assert outputs.total() == kinds.total()


def test_what_a_harness_sends_longest_first_is_in_that_order() -> None:
    """As lm-eval's vllm model does; of equal length, prompts that begin alike are together."""
    rows = TraceRows(16)
    for position, name in enumerate("abcab"):
        rows.prompt(position, name.encode() * 4 * (16 if name == "c" else 32))
        rows.answer(position, position + 1)
    rows.add(range(5), [32, 32, 16, 32, 32])
    assert [row.output for row in rows.in_order()] == [1, 2, 3, 4, 5]
    rows.longest_first = True
    assert [row.tokens for row in rows.in_order()] == [32, 32, 32, 32, 16]
    outputs = [row.output for row in rows.in_order()]
    assert {frozenset(outputs[:2]), frozenset(outputs[2:4])} == {
        frozenset({1, 4}),
        frozenset({2, 5}),
    }


def test_equal_lengths_come_in_the_same_order_in_every_process() -> None:
    """Python's own hash of bytes differs from process to process."""
    script = """
from chunkscope.lengths.trace_export import TraceRows
rows = TraceRows(16)
rows.longest_first = True
for place in range(40):
    rows.prompt(place, bytes([place]) * 4 * 32)
    rows.answer(place, place + 1)
rows.add(range(40), [32] * 40)
print([row.output for row in rows.in_order()])
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1, said


def test_a_trace_is_exported_with_its_own_blocks_if_they_are_as_large(tmp_path: Path) -> None:
    rows = [
        {"input_length": 1_100 + n, "output_length": n + 1, "hash_ids": [70, 71, 80 + n]}
        for n in range(5)
    ]
    write_jsonl(tmp_path / "a.jsonl", rows)
    run, lines = export(tmp_path, "a.jsonl")
    assert [line["hash_ids"] for line in lines] == [[0, 1, n + 2] for n in range(5)]
    assert [line["output_length"] for line in lines] == [1, 2, 3, 4, 5]
    assert "only the length is known" not in run.err
    run, lines = export(tmp_path, "a.jsonl", "--trace-block", "16")
    assert "of 5 of its prompts only the length is known" in run.err
    numbers = [number for line in lines for number in line["hash_ids"]]
    assert len(set(numbers)) == len(numbers)


def test_lengths_alone_share_nothing_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ContextTokens,GeneratedTokens\n600,5\n0,1\n600,7\n")
    run, lines = export(tmp_path, "a.csv")
    assert [line["hash_ids"] for line in lines] == [[0, 1], [], [2, 3]]
    assert [line["output_length"] for line in lines] == [5, 1, 7]
    assert "of 2 of its prompts only the length is known" in run.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--export-trace", "t.jsonl", "--no-prefixes"], "which --no-prefixes leaves out"),
        (["--export-trace", "./a.jsonl"], "would replace the data"),
        (["--export-trace", "t.jsonl", "--trace-block", "0"], "--trace-block"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    run = analyze(tmp_path, "a.jsonl", *words)
    assert run.code == 2
    assert message in " ".join(run.err.split())
    assert written(tmp_path / "a.jsonl") == ROWS
    assert not (tmp_path / "t.jsonl").exists()


def test_a_trace_that_cannot_be_written_leaves_the_profile(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "file").write_text("")
    run = analyze(tmp_path, "a.jsonl", "--export-trace", "file/t.jsonl")
    assert run.code == 3
    assert "file/t.jsonl" in run.err
    assert run.dataset["rows"] == len(ROWS)


def test_nothing_is_left_behind_where_no_row_could_be_counted(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": None}])
    assert analyze(tmp_path, "a.jsonl", "--field", "prompt", "--export-trace", "t.jsonl").code == 3
    assert not (tmp_path / "t.jsonl").exists()


@pytest.mark.real
def test_vllm_bench_serve_reads_it_with_the_command_that_is_said(
    tmp_path: Path, probe: Any
) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    commands, traces = [], []
    for size in (16, 512):
        file = tmp_path / f"with {size}.jsonl"
        words = ("--output-field", "answer", "--trace-block", str(size), "--export-trace", file)
        run = analyze(tmp_path, "a.jsonl", *words)
        (said,) = [x for x in run.err.splitlines() if x.startswith("replay it: vllm ")]
        commands.append(shlex.split(said)[3:])
        traces.append((size, written(file)))
    for (size, lines), sent in zip(traces, probe("bench_probe", commands), strict=True):
        assert [(n, output, time) for _, n, output, time in sent] == [
            (line["input_length"], line["output_length"], 0.0) for line in lines
        ]
        prompts = [prompt for prompt, *_ in sent]
        ids = Tokenizer(None).encode([row["question"] for row in ROWS], special_tokens=True)
        assert found_before(prompts, 16) == found_before(ids, size)
