"""Whatever the files and the options are: a profile or a sentence, never a traceback."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import strategies as st

from tests.commands.helpers import Run, analyze
from tests.fuzz import helpers
from tests.fuzz.helpers import Explore, damaged

EXAMPLES = 10

# --- what may be in a file ------------------------------------------------------------------------

texts = st.text(max_size=40) | st.sampled_from(["", "\0", "\u2028", "[/b]", "{x}", "é" * 30])
keys = st.sampled_from(
    ["prompt", "question", "messages", "input_length", "role", "content", "text", "", "a.b", "[0]"]
) | st.text(max_size=5)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "x", 1]), "content": values}
    ),
    max_size=3,
)
rows = (
    st.dictionaries(keys, values, max_size=4)
    | st.fixed_dictionaries({"prompt": texts})
    | st.fixed_dictionaries({"messages": messages}, optional={"tools": values})
    | st.fixed_dictionaries({"input_length": values, "output_length": values})
    | values
)
documents = st.lists(rows, max_size=6)


def as_jsonl(records: list[Any]) -> bytes:
    return "\n".join(map(json.dumps, records)).encode("utf-8", "surrogatepass")


def as_json(records: list[Any]) -> bytes:
    return json.dumps(records).encode("utf-8", "surrogatepass")


def as_table(records: list[Any]) -> Any:
    plain = [{"prompt": json.dumps(record), "n": number} for number, record in enumerate(records)]
    return pa.Table.from_pylist(plain or [{"prompt": None}])


def as_parquet(records: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(as_table(records), buffer)
    return buffer.getvalue()


def as_feather(records: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.feather.write_feather(as_table(records), buffer)
    return buffer.getvalue()


def as_csv(records: list[Any]) -> bytes:
    lines = [",".join(map(str, record)) for record in records if isinstance(record, list)]
    return "\n".join(["prompt,n", *lines, *map(str, records)]).encode("utf-8", "surrogatepass")


def as_zip(records: list[Any]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.jsonl", as_jsonl(records))
        archive.writestr("b.csv", as_csv(records))
    return buffer.getvalue()


def as_tar(records: list[Any]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in (("a.jsonl", as_jsonl(records)), ("b.json", as_json(records))):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


WRITERS: dict[str, Callable[[list[Any]], bytes]] = {
    "a.jsonl": as_jsonl,
    "a.json": as_json,
    "a.csv": as_csv,
    "a.tsv": as_csv,
    "a.txt": as_jsonl,
    "a.parquet": as_parquet,
    "a.feather": as_feather,
    "a.zip": as_zip,
    "a.tar.gz": as_tar,
    "a.jsonl.gz": lambda records: gzip.compress(as_jsonl(records)),
    "a.json.bz2": lambda records: bz2.compress(as_json(records)),
    "a.csv.xz": lambda records: lzma.compress(as_csv(records)),
    "a.jsonl.zst": lambda records: zstandard.compress(as_jsonl(records)),
}


options = st.lists(
    st.one_of(
        st.tuples(st.just("--field"), keys | st.sampled_from(["a[", "prompt[0]", "a[].b"])),
        st.tuples(st.just("--template"), st.sampled_from(["{prompt}", "{", "{}", "x {a.b} {n}"])),
        st.tuples(st.just("--output-field"), keys),
        st.tuples(st.just("--sample"), st.sampled_from(["1", "3", "0"])),
        st.tuples(st.sampled_from(["--skip-bad-rows", "--apply-chat-template", "--json"])),
        st.tuples(st.just("--format"), st.sampled_from(["csv", "md"])),
    ),
    max_size=3,
)


def run_on(name: str, data: bytes, words: list[tuple[str, ...]], *, piped: bool = False) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / name).write_bytes(data)
        flat = [word for group in words for word in group if word.isprintable()]
        if piped:
            return analyze(place, "-", *flat, stdin=data)
        return analyze(place, name, *flat)


def assert_fine(run: Run) -> None:
    helpers.assert_fine(run)
    assert run.written or run.code


# --- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_a_damaged_file_of_any_format_is_a_profile_or_a_sentence(
    explore: Explore, name: str
) -> None:
    def check(data: bytes, words: list[tuple[str, ...]]) -> None:
        assert_fine(run_on(name, data, words))

    explore(check, damaged(documents.map(WRITERS[name])), options, examples=EXAMPLES)


def test_random_bytes_under_any_name_are_a_profile_or_a_sentence(explore: Explore) -> None:
    def check(name: str, data: bytes, words: list[tuple[str, ...]]) -> None:
        assert_fine(run_on(name, data, words))

    past: list[tuple[str, bytes, list[tuple[str, ...]]]] = [
        ("a.json", b"[" * 2000, []),
        ("a.json", b'{"a":' * 2000, []),
        ("a.jsonl", b'{"prompt": 1e999}', []),
        ("a.csv", b'"' * 3, []),
        ("a.tar.gz", gzip.compress(b"\0" * 2000), []),
    ]
    names = st.sampled_from([*WRITERS, "a", "a.bin"])
    explore(check, names, st.binary(max_size=300), options, examples=3 * EXAMPLES, past=past)


def test_anything_may_come_through_a_pipe(explore: Explore) -> None:
    def check(data: bytes, words: list[tuple[str, ...]]) -> None:
        assert_fine(run_on("unused", data, words, piped=True))

    data = damaged(documents.map(as_jsonl) | documents.map(as_parquet))
    explore(check, data, options, examples=EXAMPLES)


@pytest.mark.parametrize(
    "encoding",
    ["ascii", "big5", "cp037", "idna", "punycode", "raw_unicode_escape", "shift_jis", "undefined",
     "utf-16", "utf-32", "utf-7", "utf-8-sig", "utf_16_be", "hz", "mbcs"],
)  # fmt: skip
def test_any_encoding_that_python_knows_can_be_tried(tmp_path: Path, encoding: str) -> None:
    for number, data in enumerate((b'{"prompt": "a"}\n', bytes(range(1, 256)), b"\\ud800 \\x")):
        (tmp_path / f"{number}.jsonl").write_bytes(data)
        (tmp_path / f"{number}.txt").write_bytes(data)
    assert_fine(analyze(tmp_path, ".", "--encoding", encoding))
