"""Parts of the input, for tasks on other machines: every row is in one of them."""

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from chunkscope.sources.base import Problems, ReadOptions, Source
from chunkscope.sources.reader import RecordReader, split
from tests.sources.helpers import read


def source(size: int | None, path: str = "x.jsonl", **more: object) -> Source:
    form = path.rpartition("/")[2].split(".")[1]
    return Source(name="x", group="", path=path, format=form, file=Path(path), bytes=size, **more)


def bytes_of(path: Path, start: int, end: int) -> bytes:
    part = source(None, str(path), part=range(start, end))
    with RecordReader(part, ReadOptions(), Problems()) as reader:
        return b"".join(iter(lambda: reader.stream.read(7), b""))


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"bc", b"defghij" * 3]), max_size=30),
    st.sets(st.integers(1, 60), max_size=5),
    st.booleans(),
)
def test_every_line_is_in_one_part(
    tmp_path_factory, parts: list[bytes], cuts: set[int], has_mark: bool
) -> None:
    text = b"".join(parts)
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + text if has_mark else text)
    bounds = [0, *sorted(cuts), 1000]
    pieces = [bytes_of(path, start, end) for start, end in pairwise(bounds)]
    lines = [line for piece in pieces for line in piece.splitlines(keepends=True)]
    assert lines == text.splitlines(keepends=True), "none is cut"


def test_the_parts_of_a_file_hold_all_its_rows_in_order(tmp_path):
    records = [{"q": f"{n}" * 50} for n in range(300)]
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "x.parquet", row_group_size=20)
    lines = tmp_path / "x.jsonl"
    lines.write_text("".join(f'{{"q": "{row["q"]}"}}\n' for row in records))
    for path in (lines, tmp_path / "x.parquet"):
        whole = source(path.stat().st_size, str(path))
        parts = split(whole, whole.bytes // 5)
        assert len(parts) > 4
        assert [row for part in parts for row in read(part).records] == records
        with RecordReader(whole, ReadOptions(), Problems()) as reader:
            reader.head()
            assert reader.is_divisible


def test_only_large_files_that_have_places_to_begin_at_are_divided() -> None:
    parts = [part.part for part in split(source(1000), 400)]
    assert parts == [range(400), range(400, 800), range(800, 1000)]
    assert len(split(source(1000, "x.parquet"), 400)) == 3
    small = (source(400), source(None))
    packed = (source(1000, "x.jsonl.gz"), source(1000, member="a.jsonl"))
    for other in (*small, *packed, source(1000, "x.csv"), source(1000, rendered=True)):
        assert split(other, 400) == [other]
