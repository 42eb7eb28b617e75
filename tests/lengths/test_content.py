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
from chunkscope.lengths import content as module
from chunkscope.lengths.content import Content, content_changes

ROWS: list[dict[str, Any]] = [
    {"question": f"How many is {n} and {n}?", "answer": str(2 * n), "n": n}
    for n in range(7)
]


def content_of(file: Path, **options: Any) -> Content | None:
    (dataset,) = chunkscope.analyze(
        file, fields="question", use_cache=False, **options
    ).datasets
    return dataset.content


def test_order_file_and_format_do_not_change_it(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps(row, indent=None) + "\n" for row in ROWS))
    document = tmp_path / "b.json"
    document.write_text(json.dumps([dict(reversed(row.items())) for row in ROWS[::-1]]))
    table = tmp_path / "c.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=[*ROWS[0], "note"])
        writer.writeheader()
        writer.writerows(ROWS)
    columns = tmp_path / "d.parquet"
    picture = {"bytes": b"\x89PNG", "path": None}
    pq.write_table(
        pa.Table.from_pylist([{**row, "image": picture} for row in ROWS]), columns
    )
    contents = {content_of(file) for file in (lines, document, table, columns)}
    assert len(contents) == 1
    assert contents == {Content.of(ROWS)}
    assert content_of(lines, sample=2) == Content.of(ROWS)  # a sample reads all rows


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        pytest.param(ROWS[::-1], (0, 0), id="another order"),
        pytest.param([*ROWS, ROWS[0]], (1, 0), id="one row twice"),
        pytest.param(ROWS[2:], (0, 2), id="two rows less"),
        pytest.param(
            [{**ROWS[0], "answer": "42"}, *ROWS[1:]], (1, 1), id="another answer"
        ),
        pytest.param(
            [{**row, "answer": "42"} for row in ROWS], (7, 7), id="all answers"
        ),
        pytest.param(
            [{**row, "n": {"a": [row["n"]]}} for row in ROWS], (7, 7), id="nested"
        ),
        pytest.param(
            [*ROWS, orjson.loads('{"a":' * 999 + "1" + "}" * 999)], (1, 0), id="deep"
        ),
    ],
)
def test_changed_rows_are_counted(now: list[Any], changes: tuple[int, int]) -> None:
    assert content_changes(Content.of(ROWS), Content.of(now)) == changes


def test_of_very_many_rows_only_a_change_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = Content.of(ROWS[:1]), Content.of(ROWS)
    monkeypatch.setattr(module, "MOST_LISTED", 5)
    unlisted = Content.of(ROWS)
    assert (unlisted.digest, unlisted.hashes) == (many.digest, None)
    assert content_changes(unlisted, unlisted) == (0, 0)
    assert content_changes(few, unlisted) is None


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
    profile = chunkscope.analyze([file, columns], use_cache=False)
    assert [dataset.content is None for dataset in profile.datasets] == [False, True]
