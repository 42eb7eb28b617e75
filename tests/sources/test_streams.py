"""Compressions and encodings, down to what is damaged."""

import os

import pytest

from chunkscope.errors import InputError
from chunkscope.sources.base import CHUNK_BYTES, Source
from chunkscope.sources.streams import open_stream
from tests.sources.helpers import PACKERS, read_bytes

LONG_ROWS = b"".join(b'{"b": "%s"}\n' % os.urandom(500).hex().encode() for _ in range(3000))


@pytest.mark.parametrize("suffix", PACKERS)
def test_rows_before_a_cut_or_damage_are_read_and_then_it_is_said(suffix):
    name, packed = f"x.jsonl.{suffix}", PACKERS[suffix](LONG_ROWS)
    start, rest = packed[: len(packed) // 2], packed[len(packed) // 2 + 40 :]
    cut, damaged = read_bytes(name, start), read_bytes(name, start + b"\xff" * 40 + rest)
    assert 500 < len(cut.records) < 2000
    for error in (cut.error, damaged.error):
        assert isinstance(error, InputError)
        assert name in error.message


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_bomb_comes_out_in_bounded_pieces(tmp_path, suffix):
    path = tmp_path / f"x.txt.{suffix}"
    path.write_bytes(PACKERS[suffix](b"\0" * (32 << 20)))
    with open_stream(Source(path=path.name, file=path)) as stream:
        sizes = [len(block) for block in iter(stream.read, b"")]
    assert sum(sizes) == 32 << 20
    assert max(sizes) <= CHUNK_BYTES
