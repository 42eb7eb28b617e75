"""`analyze --order`: the same rows, byte for byte, those that begin alike together."""

import csv
import gzip
import io
import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from tests.commands.helpers import analyze, prompts, write_jsonl

chance = random.Random(2)
HEADS = [f"Subject {n}. " + f"It is about {n} things. " * 12 for n in range(5)]
PROMPTS = [f'{chance.choice(HEADS)}Question {n}\nwhy, "{n}"?' for n in range(200)]


def head(prompt: str) -> str:
    return prompt.split(".")[0]


def changes(texts: list[str]) -> int:
    """How often the next begins otherwise."""
    return sum(head(a) != head(b) for a, b in pairwise(texts))


def test_lines_come_out_as_they_are_in_another_order(tmp_path):
    data = write_jsonl(
        tmp_path / "a.jsonl", [{"prompt": p, "id": i} for i, p in enumerate(PROMPTS)]
    )
    run = analyze(tmp_path, "a.jsonl", "--order", "sorted.jsonl")
    assert run.code == 0
    before = data.read_bytes().splitlines(keepends=True)
    after = (tmp_path / "sorted.jsonl").read_bytes().splitlines(keepends=True)
    assert sorted(before) == sorted(after)
    assert changes([json.loads(line)["prompt"] for line in after]) == 4
    assert changes(PROMPTS) > 100
    again = analyze(tmp_path, "sorted.jsonl").profile["datasets"][0]
    assert (
        again["prefixes"]["cached_tokens"]
        == (run.profile["datasets"][0]["prefixes"]["best_order_cached_tokens"])
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_table_keeps_its_header_and_cells_of_several_lines(tmp_path, newline):
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=newline)
    writer.writerows([["id", "prompt"], *([str(i), p] for i, p in enumerate(PROMPTS))])
    data = tmp_path / "a.csv"
    data.write_bytes(b"\xef\xbb\xbf" + text.getvalue().encode())
    assert analyze(tmp_path, "a.csv", "--order", "sorted.csv").code == 0
    written = (tmp_path / "sorted.csv").read_bytes()
    assert written.startswith(b"\xef\xbb\xbfid,prompt")
    rows = [*csv.DictReader(io.StringIO(written.decode("utf-8-sig"), newline=""))]
    assert sorted((row["id"], row["prompt"]) for row in rows) == sorted(
        (str(i), p) for i, p in enumerate(PROMPTS)
    )
    assert changes([row["prompt"] for row in rows]) == 4
    assert len(written) == data.stat().st_size


def test_bad_and_blank_lines_and_a_last_line_without_an_end_are_not_lost(tmp_path):
    lines = [json.dumps({"prompt": p}).encode() for p in PROMPTS[:20]]
    lines[3:3] = [b"", b"{broken", b"   "]
    data = tmp_path / "a.jsonl"
    data.write_bytes(b"\n".join(lines))
    assert analyze(tmp_path, "a.jsonl", "--order", "sorted.jsonl").code == 3
    written = (tmp_path / "sorted.jsonl").read_bytes()
    assert sorted(filter(None, written.split(b"\n"))) == sorted(filter(None, lines))
    assert len(written) - len(data.read_bytes()) in (0, 1)


def test_a_text_with_a_prompt_per_line(tmp_path):
    lines = [p.replace("\n", " ") for p in PROMPTS[:50]]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    assert analyze(tmp_path, "a.txt", "--per-line", "--order", "out/sorted.txt").code == 0
    after = (tmp_path / "out/sorted.txt").read_text().splitlines()
    assert sorted(after) == sorted(lines)
    assert changes(after) <= 4


def test_what_was_counted_before_is_written_too(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", prompts(30))
    analyze(tmp_path, "a.jsonl")
    assert analyze(tmp_path, "a.jsonl", "--order", "b.jsonl").code == 0
    assert len((tmp_path / "b.jsonl").read_bytes().splitlines()) == 30


def jsonl(place: Path) -> None:
    write_jsonl(place / "a.jsonl", prompts(5))


REFUSED = {
    "a sample": (jsonl, ["a.jsonl", "--sample", "2"], 2, "--sample"),
    "no prefixes": (jsonl, ["a.jsonl", "--no-prefixes"], 2, "--no-prefixes"),
    "two datasets": (
        lambda place: [write_jsonl(place / f"{n}.jsonl", prompts(5)) for n in "ab"],
        ["."], 2, "one dataset, and there are 2",
    ),
    "compressed": (
        lambda place: (place / "a.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "a b"}\n')),
        ["a.jsonl.gz"], 3, "compressed",
    ),
    "utf-16": (
        lambda place: (place / "a.jsonl").write_text('{"prompt": "a"}\n', encoding="utf-16"),
        ["a.jsonl"], 3, "encoding",
    ),
    "one array": (
        lambda place: (place / "a.json").write_text(json.dumps(prompts(5))),
        ["a.json"], 3, "cannot be moved",
    ),
    "a trace": (
        lambda place: write_jsonl(place / "a.jsonl", [{"input_length": 5}] * 3),
        ["a.jsonl"], 3, "a trace",
    ),
    "itself": (jsonl, ["a.jsonl", "--order", "a.jsonl"], 2, "would replace the data"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_in_a_sentence_and_nothing_is_written(tmp_path, what):
    make, words, code, said = REFUSED[what]
    make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    run = analyze(tmp_path, "--order", "b.jsonl", *words)
    assert run.code == code
    assert said in run.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_log_is_not_sorted(tmp_path, shared):
    folder = shared / "data/harness_logs/lm-eval-0.4.13/mock__plain"
    log = next(folder.glob("samples_mini_mmlu_astronomy*"))
    run = analyze(tmp_path, log, "--order", "b.jsonl")
    assert run.code == 3
    assert "a harness's log" in run.err
    assert not (tmp_path / "b.jsonl").exists()
