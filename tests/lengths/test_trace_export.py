"""`analyze --export-trace`: the requests as a trace that says what they share."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import chunkscope
from chunkscope import AnalyzeOptions, LengthHistogram, Profile
from chunkscope.lengths.analyze import analyze as run
from chunkscope.lengths.trace_export import SentPrompt, TraceExport, TraceRows
from chunkscope.prompts.options import SelectOptions
from chunkscope.tokenizers.tokenizer import Tokenizer
from tests.commands.helpers import analyze, write_jsonl

SHOTS = "".join(f"Q: What is {n} and {n}?\nA: It is {2 * n}.\n\n" for n in range(60))
ROWS = [
    {
        "question": f"{SHOTS if n % 3 else SHOTS[:300]}Q: {'so ' * (5 * n)}?",
        "answer": "yes " * n,
    }
    for n in range(12)
]
ROWS += [ROWS[4], {**ROWS[5], "answer": None}]


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def found_before(prompts: Sequence[Sequence[int]], size: int) -> int:
    """Tokens that vLLM finds by blocks of so many; a prompt's last is shorter."""
    known: set[tuple[int, ...]] = set()
    found = 0
    for prompt in prompts:
        ends = [*range(size, len(prompt), size), len(prompt)]
        shared = max((end for end in ends if tuple(prompt[:end]) in known), default=0)
        found += max(0, min(shared, len(prompt) - 1)) // 16 * 16
        known |= {tuple(prompt[:end]) for end in ends}
    return found


def export(
    data: Path | Sequence[Path], *, size: int = 512, **options: Any
) -> tuple[Profile, TraceExport, list[dict[str, Any]]]:
    collected = TraceExport(block_size=size)
    profile = run(data, options=AnalyzeOptions(**options), export=collected)
    with TemporaryDirectory() as folder:
        collected.write(Path(folder) / "trace.jsonl")
        return profile, collected, written(Path(folder) / "trace.jsonl")


ANSWERED = {"select": SelectOptions(output_field="answer")}


@pytest.mark.parametrize("size", [16, 100, 512])
def test_a_trace_comes_back_as_it_was(tmp_path: Path, size: int) -> None:
    profile, _, lines = export(
        write_jsonl(tmp_path / "a.jsonl", ROWS), size=size, **ANSWERED
    )
    assert {tuple(line) for line in lines} == {
        ("timestamp", "input_length", "output_length", "hash_ids")
    }
    ids = Tokenizer(None).encode([row["question"] for row in ROWS], special_tokens=True)
    assert [line["input_length"] for line in lines] == list(map(len, ids))
    (again,) = chunkscope.analyze(write_jsonl(tmp_path / "trace.jsonl", lines)).datasets
    assert again.lengths == profile.overall
    assert again.prefixes is not None
    assert again.prefixes.block_size == size
    assert again.prefixes.cached_tokens == found_before(ids, size)
    if size == 16:
        before = profile.datasets[0].prefixes
        assert before is not None
        assert again.prefixes.cached_tokens == before.cached_tokens


def test_outputs_are_the_datas_and_others_are_assumed(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "a.jsonl", ROWS)
    profile, _, lines = export(data, **ANSWERED)
    outputs = LengthHistogram.of(line["output_length"] for line in lines[:-1])
    assert outputs == profile.datasets[0].output_lengths
    assert round(outputs.mean) == 6
    assert lines[-1]["output_length"] == 256
    assert {line["output_length"] for line in export(data)[2]} == {256}


@pytest.mark.parametrize("as_chat", [False, True], ids=["chats", "texts as chats"])
def test_chats_are_exported_as_they_are_counted(tmp_path: Path, as_chat: bool) -> None:
    row = (
        {"prompt": SHOTS}
        if as_chat
        else {"messages": [{"role": "user", "content": SHOTS}]}
    )
    data = write_jsonl(tmp_path / "a.jsonl", [row] * 3)
    profile, _, lines = export(data, size=16, apply_chat_template=as_chat)
    assert LengthHistogram.of(line["input_length"] for line in lines) == profile.overall
    assert lines[1]["hash_ids"] == lines[0]["hash_ids"] != []


@pytest.mark.parametrize("run", ["mock__plain", "mock__chat", "mock__api"])
def test_a_harness_log_is_exported_request_by_request(shared: Path, run: str) -> None:
    """Of requests that only score their prompt vLLM makes one token."""
    profile, _, lines = export(
        shared / "data" / "harness_logs" / "lm-eval-0.4.13" / run
    )
    assert LengthHistogram.of(line["input_length"] for line in lines) == profile.overall
    kinds: Counter[str] = Counter()
    for dataset in profile.datasets:
        assert dataset.log is not None
        kinds.update(dataset.log.kinds)
    outputs = Counter(line["output_length"] for line in lines)
    assert outputs[1] >= kinds["likelihood"]
    assert outputs.total() == kinds.total()


def test_what_a_harness_sends_longest_first_is_in_that_order() -> None:
    """As lm-eval's vllm model does; of one length, those that begin alike together."""
    rows = TraceRows(16)
    for output, (name, tokens) in enumerate(
        zip("abcab", [32, 32, 16, 32, 32], strict=True), 1
    ):
        rows.add([SentPrompt(1, tokens, name.encode() * 4 * tokens, output)])
    assert [output for _, output, _ in rows.in_order()] == [1, 2, 3, 4, 5]
    rows.longest_first = True
    assert [tokens for tokens, *_ in rows.in_order()] == [32, 32, 32, 32, 16]
    outputs = [output for _, output, _ in rows.in_order()]
    assert {frozenset(outputs[:2]), frozenset(outputs[2:4])} == {
        frozenset({1, 4}),
        frozenset({2, 5}),
    }


def test_lengths_alone_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "ContextTokens,GeneratedTokens\n600,5\n0,1\n600,7\n"
    )
    _, _, lines = export(tmp_path / "a.csv")
    assert [line["hash_ids"] for line in lines] == [[0, 1], [], [2, 3]]
    assert [line["output_length"] for line in lines] == [5, 1, 7]


def test_a_trace_in_a_bad_place_leaves_the_profile(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "file").write_text("")
    done = analyze(tmp_path, "a.jsonl", "--export-trace", "file/t.jsonl")
    assert done.code == 3
    assert "file/t.jsonl" in done.err
    assert Profile.load(tmp_path / "reports/profile.json").overall.count == len(ROWS)


@pytest.mark.real
def test_vllm_bench_serve_reads_it_with_the_command_that_is_said(
    tmp_path, probe
) -> None:
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    words = ("--output-field", "answer", "--export-trace", "with blanks.jsonl")
    done = analyze(tmp_path, "a.jsonl", *words)
    (said,) = [x for x in done.err.splitlines() if x.startswith("replay it: vllm ")]
    command = shlex.split(said)[3:]
    place = command.index("--dataset-path") + 1
    command[place] = str(tmp_path / command[place])
    (sent,) = probe("bench_probe", [command])
    lines = written(tmp_path / "with blanks.jsonl")
    assert [(n, output, time) for _, n, output, time in sent] == [
        (line["input_length"], line["output_length"], 0.0) for line in lines
    ]
    ids = Tokenizer(None).encode([row["question"] for row in ROWS], special_tokens=True)
    assert found_before([prompt for prompt, *_ in sent], 16) == found_before(ids, 512)
