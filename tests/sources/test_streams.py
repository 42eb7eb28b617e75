"""Compressions and encodings, down to what is damaged."""

import bz2
import gzip
import lzma
import os
from functools import partial

import pytest
from backports import zstd

from chunkscope.errors import InputError, UsageError
from chunkscope.sources.base import CHUNK_BYTES, Source
from chunkscope.sources.streams import as_utf8, looks_binary, open_stream
from tests.sources.helpers import read

CHECKED = {zstd.CompressionParameter.checksum_flag: 1}
PACKERS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": partial(lzma.compress, preset=0),
    "zst": partial(zstd.compress, options=CHECKED),
}
ROWS = b"".join(b'{"a": %d, "b": "%s"}\n' % (i, os.urandom(20).hex().encode()) for i in range(5000))
LONG_ROWS = b"".join(b'{"b": "%s"}\n' % os.urandom(500).hex().encode() for _ in range(3000))


def unpacked(path):
    return open_stream(Source(path=path.name, file=path))


def everything(path, encoding="utf-8"):
    with as_utf8(unpacked(path), path.name, encoding) as file:
        return b"".join(iter(file.read, b""))


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("name", ["x.jsonl.{}", "x.jsonl"])
def test_compression_is_undone_whatever_the_name_says(tmp_path, suffix, name):
    path, pack = tmp_path / name.format(suffix), PACKERS[suffix]
    path.write_bytes(pack(ROWS))
    assert everything(path) == ROWS
    path.write_bytes(pack(ROWS) + pack(b"") + pack(b'{"last": 1}\n'))
    assert everything(path) == ROWS + b'{"last": 1}\n', "several members are one stream"
    path.write_bytes(pack(b""))
    assert everything(path) == b""


@pytest.mark.parametrize("suffix", PACKERS)
def test_rows_before_a_cut_or_damage_are_read_and_then_it_is_said(tmp_path, suffix):
    path, packed = tmp_path / f"x.jsonl.{suffix}", PACKERS[suffix](LONG_ROWS)
    path.write_bytes(packed[: len(packed) // 2])
    cut = read(path)
    assert 500 < len(cut.records) < 2000
    path.write_bytes(packed[: len(packed) // 2] + b"\xff" * 40 + packed[len(packed) // 2 + 40 :])
    for error in (cut.error, read(path).error):
        assert isinstance(error, InputError)
        assert f"x.jsonl.{suffix}" in error.message


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_bomb_comes_out_in_bounded_pieces(tmp_path, suffix):
    path = tmp_path / f"x.txt.{suffix}"
    path.write_bytes(PACKERS[suffix](b"\0" * (32 << 20)))
    with unpacked(path) as stream:
        sizes = [len(block) for block in iter(stream.read, b"")]
    assert sum(sizes) == 32 << 20
    assert max(sizes) <= CHUNK_BYTES


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "gb18030"]
)
def test_other_encodings_become_utf_8(tmp_path, encoding):
    path = tmp_path / "x.txt"
    path.write_bytes("é and ü\n".encode(encoding))
    assert everything(path, encoding).decode() == "é and ü\n"
    for unknown in ("klingon", "hex", "rot13", "\0"):
        with pytest.raises(UsageError):
            everything(path, unknown)


def test_bytes_that_do_not_fit_the_encoding_spoil_only_their_row(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n{"a": 3}\n')
    assert read(path, encoding="ascii").positions == [1, 3]


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
