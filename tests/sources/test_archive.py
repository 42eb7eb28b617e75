"""Open archives: who closes them, and when."""

import gc

from chunkscope.sources.archive import close_archives
from chunkscope.sources.base import Problems, ReadOptions
from chunkscope.sources.find import discover
from chunkscope.sources.reader import RecordReader
from tests.sources.helpers import archive

# Several times what a reader takes at once, and no bomb.
ROWS = b"".join(b'{"question": "why %d?"}\n' % number for number in range(200_000))


def test_who_ends_first_does_not_close_the_archive_of_another(tmp_path):
    for name in ("p.zip", "p.tar.gz"):
        (tmp_path / name).write_bytes(archive(name, {"x.jsonl": ROWS}))
        (source,), _ = discover([str(tmp_path / name)], options=ReadOptions())
        with RecordReader(source, ReadOptions(), Problems()) as reader:
            chunks = reader.chunks()
            count = len(next(chunks).records)
            close_archives()
            gc.collect()
            count += sum(len(chunk.records) for chunk in chunks)
        assert count == 200_000
