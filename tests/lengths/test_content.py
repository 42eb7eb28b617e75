"""The digest of a dataset's records: what changes it, and what does not."""

import csv
import json
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chunkscope
from chunkscope.lengths.content import Content

ROWS: list[dict[str, Any]] = []
for number in range(7):
    question = f"How many is {number} and {number}?"
    ROWS.append({"question": question, "answer": str(2 * number), "n": number})
FLOATS = [{**row, "n": float(row["n"]), "share": row["n"] / 4} for row in ROWS]
OTHERS = [{**row, "is_odd": row["n"] % 2 == 1, "more": None} for row in ROWS]


def content_of(file: Path, **options: Any) -> Content | None:
    (dataset,) = chunkscope.analyze(file, field="question", **options).datasets
    return dataset.content


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ROWS, id="whole numbers"),
        pytest.param(FLOATS, id="floats"),
        pytest.param(OTHERS, id="true, false and null"),
    ],
)
def test_order_file_and_format_do_not_change_it(tmp_path: Path, rows) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps(row, indent=None) + "\n" for row in rows))
    document = tmp_path / "b.json"
    document.write_text(json.dumps([dict(reversed(row.items())) for row in rows[::-1]]))
    table = tmp_path / "c.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=[*rows[0], "note"])
        writer.writeheader()
        writer.writerows(rows)
    columns = tmp_path / "d.parquet"
    picture = {"bytes": b"\x89PNG", "path": None}
    pq.write_table(
        pa.Table.from_pylist([{**row, "image": picture} for row in rows]), columns
    )
    contents = {content_of(file) for file in (lines, document, table, columns)}
    assert contents == {Content.of(rows)}


def test_a_sample_reads_all_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert content_of(file, sample=2) == Content.of(ROWS)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param([*ROWS, ROWS[0]], id="one row twice"),
        pytest.param(ROWS[2:], id="two rows less"),
        pytest.param([{**ROWS[0], "answer": "42"}, *ROWS[1:]], id="another answer"),
        pytest.param([{**row, "n": {"a": [row["n"]]}} for row in ROWS], id="nested"),
        pytest.param([*ROWS, orjson.loads('{"a":' * 999 + "1" + "}" * 999)], id="deep"),
    ],
)
def test_changed_rows_change_it(now: list[Any]) -> None:
    before, after = Content.of(ROWS), Content.of(now)
    assert (before.rows, before.digest) != (after.rows, after.digest)


def test_parts_add_up() -> None:
    whole = Content.of(ROWS[:3]) + Content.of(ROWS[3:])
    assert whole == Content.of(ROWS)
    assert Content() + Content.of(ROWS) == Content.of(ROWS)


def test_odd_values_have_a_digest() -> None:
    odd = [
        {"a": "\ud800"},
        {"a": 1 << 80},
        {"a": float("nan")},
        "text",
        3,
        None,
        {"a": b"x"},
    ]
    assert Content.of(odd).rows == len(odd)
    assert Content.of(odd) == Content.of(odd[::-1])


def test_a_file_that_cannot_be_read_to_its_end_has_none(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"question": "a"}\n')
    columns = tmp_path / "b.parquet"
    columns.write_bytes(b"PAR1 and nothing more")
    profile = chunkscope.analyze([file, columns])
    assert [dataset.content is None for dataset in profile.datasets] == [False, True]
