"""Whatever the bytes are: rows, bad rows or one of our errors, never a traceback."""

import io
import json
from contextlib import suppress
from dataclasses import asdict

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from chunkscope.errors import ChunkscopeError
from chunkscope.prompts.chat import Conversation
from chunkscope.prompts.choose import choose_field
from chunkscope.prompts.options import SelectOptions
from chunkscope.prompts.prompt import read_prompts
from chunkscope.report.notes import sentence
from chunkscope.sources.base import Problems, ReadOptions
from chunkscope.sources.find import discover
from chunkscope.sources.reader import RecordReader
from tests.fuzz.helpers import damaged, explore, fine
from tests.prompts.inspect_logs import event, sample
from tests.prompts.inspect_logs import members as inspect_members
from tests.prompts.inspect_logs import zipped as inspect_zip
from tests.sources.helpers import PACKERS, archive

ROWS = [{"question": f"why é {i}?", "turns": ["a", "b"], "n": i} for i in range(40)]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def survives(path):
    """Find and read a file; what comes out are prompts that can be encoded, or our own
    error."""
    chosen = ReadOptions()
    with fine():
        sources, _ = discover([str(path)], options=chosen)
        for source in sources:
            problems = Problems()
            with RecordReader(source, chosen, problems) as reader:
                head, selection = reader.head(), None
                with suppress(ChunkscopeError):
                    selection = choose_field(head, SelectOptions())
                for (
                    chunk
                ) in reader.chunks():  # to the end, also where no prompt was found
                    assert len(chunk.positions) == len(chunk.records)
                    prompts = []
                    if selection:
                        prompts = read_prompts(selection, chunk, problems)
                    for prompt in prompts:
                        item = prompt.content
                        shown = asdict(item) if isinstance(item, Conversation) else item
                        json.dumps(shown, ensure_ascii=False, default=str).encode(
                            "utf-8"
                        )
            for row in problems.rows:
                sentence(row.reason).encode("utf-8")


def table(write):
    raw = io.BytesIO()
    write(pa.Table.from_pylist(ROWS), raw)
    return raw.getvalue()


def write_stream(rows, raw):
    with pa.ipc.new_stream(raw, rows.schema) as writer:
        writer.write_table(rows)


GOOD = {
    "x.jsonl": LINES,
    "x.json": json.dumps({"canary": "c", "examples": ROWS}, indent=1).encode(),
    "x.csv": b"question,answer\n" + b'"why,\n oh ""why""?",x\n' * 40,
    "x.tsv": b"question\tanswer\n" + b"why?\tx\n" * 40,
    "x.txt": "ünïcödé\n".encode() * 40,
    "x.parquet": table(pq.write_table),
    "x.feather": table(feather.write_feather),
    "x.arrow": table(write_stream),
    **{f"x.jsonl.{suffix}": pack(LINES) for suffix, pack in PACKERS.items()},
    "x.eval": inspect_zip(inspect_members(sample(1, event("why é?")))),
    **{
        name: archive(name, {"x.jsonl": LINES})
        for name in ("x.zip", "x.tar", "x.tar.gz")
    },
}


PAST = {
    "x.eval": [GOOD["x.eval"][:cut] for cut in (1, 30, len(GOOD["x.eval"]) // 2, -1)],
    "x.jsonl": [b'{"question": NaN}\n', b'{"question": "\\ud800"}\n', b"[" * 5_000],
    "x.tar": [b"\0" * 2_000],
    "x.zip": [
        b"\0.jsonl".join(GOOD["x.zip"].rsplit(b"x.jsonl", 1))
    ],  # a member without a name
}


@pytest.mark.parametrize("name", [*GOOD, "x.data"])
def test_damaged_files_and_arbitrary_bytes_never_end_in_a_traceback(tmp_path, name):
    def check(data):
        (tmp_path / name).write_bytes(data)
        survives(tmp_path / name)

    some = damaged(GOOD.get(name, b"")) | st.binary(max_size=300)
    explore(check, some, past=[(data,) for data in PAST.get(name, [])])
