from functools import partial
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from chunkscope.sources.base import Problems, ReadOptions
from chunkscope.sources.find import discover
from chunkscope.sources.reader import RecordReader
from tests.sources.helpers import read

ROWS = [{"question": f"why {i}?", "n": i} for i in range(10_000)]
TABLE = pa.Table.from_pylist(ROWS)


def write_arrow(new, table, path):
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=3_000)


WRITERS = [
    pytest.param("x.parquet", pq.write_table, id="parquet"),
    pytest.param("x.arrow", partial(write_arrow, pa.ipc.new_stream), id="arrow stream"),
    pytest.param("x.arrow", partial(write_arrow, pa.ipc.new_file), id="arrow file"),
    pytest.param("x.feather", feather.write_feather, id="feather"),
]


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_every_row_is_a_dict_of_the_columns_that_are_needed(tmp_path, name, write):
    write(TABLE, tmp_path / name)
    result = read(tmp_path / name)
    assert result.records == ROWS
    assert (result.positions, result.unit) == (list(range(1, 10_001)), "row")
    some = read(tmp_path / name, columns=["question", "no such column"])
    assert some.head[0] == ROWS[0]
    assert some.records == [{"question": row["question"]} for row in ROWS]


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_nested_and_unusual_types_become_plain_values(tmp_path, name, write):
    table = pa.table(
        {
            "large": pa.array(["a", None], pa.large_string()),
            "label": pa.array(["x", "x"]).dictionary_encode(),
            "turns": pa.array([["one", "two"], []]),
            "ctxs": pa.array([[{"text": "t"}], None]),
            "map": pa.array(
                [[("role", "user")], []], pa.map_(pa.string(), pa.string())
            ),
        }
    )
    write(table, tmp_path / name)
    first = {"turns": ["one", "two"], "ctxs": [{"text": "t"}], "map": {"role": "user"}}
    assert read(
        tmp_path / name, columns=["large", "label", "turns", "ctxs", "map"]
    ).records == [
        {"large": "a", "label": "x", **first},
        {"large": None, "label": "x", "turns": [], "ctxs": None, "map": {}},
    ]


@pytest.mark.parametrize(("name", "write"), WRITERS)
@pytest.mark.parametrize("keep", [0, 4, 0.5, 0.99])
def test_a_cut_file_is_an_input_error(tmp_path, name, write, keep):
    write(TABLE, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    size = int(len(data) * keep) if isinstance(keep, float) else keep
    (tmp_path / name).write_bytes(data[:size])
    result = read(tmp_path / name)
    assert result.error.message.startswith(f"cannot read {tmp_path / name}: ")


def test_a_column_whose_name_came_before_gets_a_number(tmp_path):
    columns = [pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(columns, ["q", "q"]), tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet", columns=["q"]).records == [
        {"q": "a", "q_2": "b"}
    ]


def test_long_rows_come_in_small_chunks(tmp_path):
    table = pa.table({"text": ["x" * 1_000_000] * 40})
    for name, write in (
        ("x.parquet", pq.write_table),
        ("x.feather", feather.write_feather),
    ):
        write(table, tmp_path / name)
        (source,), _ = discover([str(tmp_path / name)], options=ReadOptions())
        with RecordReader(source, ReadOptions(), Problems()) as reader:
            sizes = [len(chunk.records) for chunk in reader.chunks()]
        assert sum(sizes) == 40
        if name.endswith("feather"):
            assert max(sizes) <= 4


def test_the_files_of_a_saved_dataset_are_read_and_those_about_it_are_not(tmp_path):
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "mine", num_shards=2)
    sources, skipped = discover([str(tmp_path / "mine")], options=ReadOptions())
    assert [source.format for source in sources] == ["arrow", "arrow"]
    assert read(sources[0]).records + read(sources[1]).records == ROWS
    files = [Path(skip.values["file"]).name for skip in skipped]
    assert sorted(files) == ["dataset_info.json", "state.json"]
