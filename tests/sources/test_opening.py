import bz2
import gzip
import io
import lzma
import os

import pytest
import zstandard
from chunkscope.sources.byte_stream import FileStream
from chunkscope.sources.encodings import looks_binary

from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import CHUNK_BYTES
from chunkscope.sources.opening import open_bytes, spooled, unwrapped
from tests.sources.helpers import read

PACKERS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
ROWS = b"".join(b'{"a": %d, "b": "%s"}\n' % (i, os.urandom(20).hex().encode()) for i in range(5000))


def everything(path, **options):
    stream = open_bytes(path, shown=path.name, **options)
    try:
        return b"".join(iter(stream.read, b""))
    finally:
        stream.close()


@pytest.mark.parametrize("suffix", PACKERS)
def test_compression_is_undone(tmp_path, suffix):
    path = tmp_path / f"x.jsonl.{suffix}"
    path.write_bytes(PACKERS[suffix](ROWS))
    assert everything(path) == ROWS


@pytest.mark.parametrize("suffix", PACKERS)
def test_compression_is_found_without_the_suffix(tmp_path, suffix):
    path = tmp_path / "x.jsonl"
    path.write_bytes(PACKERS[suffix](ROWS))
    assert everything(path) == ROWS


@pytest.mark.parametrize("suffix", PACKERS)
def test_members_after_each_other_are_one_stream(tmp_path, suffix):
    path = tmp_path / f"x.jsonl.{suffix}"
    pack = PACKERS[suffix]
    path.write_bytes(pack(ROWS) + pack(b"") + pack(b'{"last": 1}\n') + b"\0" * 8)
    assert everything(path) == ROWS + b'{"last": 1}\n'


@pytest.mark.parametrize("suffix", PACKERS)
def test_an_empty_compressed_file_is_empty(tmp_path, suffix):
    path = tmp_path / f"x.jsonl.{suffix}"
    path.write_bytes(PACKERS[suffix](b""))
    assert everything(path) == b""


@pytest.mark.parametrize("suffix", PACKERS)
def test_rows_before_a_truncation_are_read_and_then_it_is_said(tmp_path, suffix):
    rows = b"".join(
        b'{"a": %d, "b": "%s"}\n' % (i, os.urandom(500).hex().encode()) for i in range(2000)
    )
    path = tmp_path / f"x.jsonl.{suffix}"
    packed = PACKERS[suffix](rows)
    path.write_bytes(packed[: len(packed) // 2])
    result = read(path)
    assert 500 < len(result.records) < 1500
    assert result.bad == []
    assert "ends early: truncated" in result.error.message
    assert f"{len(packed) // 2:,} bytes" in result.error.message


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_compressed_suffix_on_something_else_is_said(tmp_path, suffix):
    path = tmp_path / f"x.jsonl.{suffix}"
    path.write_bytes(b'{"a": 1}\n')
    result = read(path)
    assert "x.jsonl." in result.error.message
    assert "is not " in result.error.message
    assert 'it starts with b\'{"a"' in result.error.message


def test_an_empty_file_is_no_gzip(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.touch()
    assert "it is empty" in read(path).error.message


@pytest.mark.parametrize("suffix", PACKERS)
def test_damage_in_the_middle_is_an_error_in_words(tmp_path, suffix):
    packed = bytearray(PACKERS[suffix](ROWS))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    path = tmp_path / f"x.jsonl.{suffix}"
    path.write_bytes(packed)
    assert "is damaged: bad" in read(path).error.message


def test_garbage_after_gzip_is_said_after_its_rows(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n') + b"garbage at the end")
    result = read(path)
    assert result.records == [{"a": 1}]
    assert "something else after its gzip data" in result.error.message


def test_gzip_is_read_without_isal_too(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "isal", None)
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(ROWS) * 2)
    assert everything(path) == ROWS * 2


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_bomb_comes_out_in_bounded_pieces(tmp_path, suffix):
    path = tmp_path / f"x.txt.{suffix}"
    path.write_bytes(PACKERS[suffix](b"\0" * (32 << 20)))
    stream = open_bytes(path, shown=path.name)
    sizes = [len(block) for block in iter(stream.read, b"")]
    stream.close()
    assert sum(sizes) == 32 << 20
    assert max(sizes) <= CHUNK_BYTES


def test_a_file_that_grows_is_read_as_long_as_it_was(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    stream = open_bytes(path, shown="x.jsonl")
    assert not stream.grew
    with path.open("ab") as file:
        file.write(b'{"a": 2}\n')
    assert b"".join(iter(stream.read, b"")) == b'{"a": 1}\n'
    assert stream.grew
    stream.close()


def test_how_far_a_file_was_read_counts_bytes_on_disk(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(ROWS))
    stream = open_bytes(path, shown="x.jsonl.gz")
    while stream.read():
        pass
    assert stream.bytes_read == path.stat().st_size
    stream.close()


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "gb18030"]
)
def test_other_encodings_become_utf_8(tmp_path, encoding):
    path = tmp_path / "x.txt"
    path.write_bytes("é and ü\n".encode(encoding))
    assert everything(path, encoding=encoding).decode() == "é and ü\n"


def test_bytes_that_do_not_fit_the_encoding_spoil_only_their_row(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n{"a": 3}\n')
    result = read(path, encoding="ascii")
    assert result.positions == [1, 3]


@pytest.mark.parametrize("encoding", ["klingon", "hex", "rot13", "\0"])
def test_an_unknown_encoding_is_a_usage_error(tmp_path, encoding):
    path = tmp_path / "x.txt"
    path.write_bytes(b"text")
    with pytest.raises(UsageError, match="unknown text encoding"):
        open_bytes(path, shown="x.txt", encoding=encoding)


def test_a_vanished_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="is gone"):
        open_bytes(tmp_path / "x.jsonl", shown="x.jsonl")


def test_a_stream_is_opened_like_a_file_and_left_open():
    raw = io.BytesIO(gzip.compress(b"text"))
    kept = FileStream(raw, "-", keep_open=True)
    stream = unwrapped(kept, "-", encoding="utf-8", text=True)
    assert stream.read() == b"text"
    stream.close()
    assert not raw.closed


def test_spooling_keeps_every_byte(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(ROWS)
    stream = open_bytes(path, shown="x.bin", text=False)
    with spooled(stream, "x.bin") as file:
        assert file.read() == ROWS
    stream.close()


@pytest.mark.parametrize(
    ("start", "binary"),
    [
        pytest.param(b"plain text", False, id="text"),
        pytest.param("ünïcödé".encode()[:-1], False, id="text cut inside a character"),
        pytest.param(b'{"a": "' + b"x" * 50 + b'\0"}', False, id="a stray NUL"),
        pytest.param(b"caf\xe9", False, id="Latin-1"),
        pytest.param("text".encode("utf-16"), False, id="UTF-16 with a BOM"),
        pytest.param(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", True, id="a picture"),
        pytest.param(b"\0" * 100, True, id="nothing but NUL"),
    ],
)
def test_binary_is_told_from_text(start, binary):
    assert looks_binary(start) is binary
