"""Write sample_data/: small evaluation sets in several formats that show all three modes.

    python tests/make_sample_data.py            # writes into sample_data/
    python tests/make_sample_data.py FOLDER     # writes into FOLDER

Every sentence comes from the word banks of tests/sample_data_parts and every answer is computed, so
the files are free of other people's text. Rows are the same on every Python; a compressed file's
bytes may differ with the zlib or pyarrow that packed it, so compare rows (`datasets()`).
"""

import csv
import gzip
import io
import json
import sys
from pathlib import Path

import pyarrow
from pyarrow import parquet

if not __package__:  # run as a script, from wherever
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.sample_data_parts import (
    code_repair,
    knowledge_quiz,
    logic_puzzles,
    long_context_qa,
    math_word_problems,
    tool_use,
)
from tests.sample_data_parts.helpers import Row

DEFAULT_FOLDER = Path(__file__).resolve().parents[1] / "sample_data"


def datasets() -> dict[str, list[Row]]:
    """Every dataset by its path in the folder."""
    return {
        "math_word_problems.jsonl": math_word_problems.rows(),
        "knowledge_quiz.csv": knowledge_quiz.rows(),
        "code_repair.jsonl.gz": code_repair.rows(),
        "long_context_qa.parquet": long_context_qa.rows(),
        "reasoning/logic_puzzles.json": logic_puzzles.rows(),
        "reasoning/tool_use.jsonl": tool_use.rows(),
    }


def jsonl_bytes(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def jsonl_gz_bytes(rows: list[Row]) -> bytes:
    """Without name and time in the header, which would change on every run."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as file:
        file.write(jsonl_bytes(rows))
    return buffer.getvalue()


def csv_bytes(rows: list[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def puzzle_bytes(rows: list[Row]) -> bytes:
    content = {"canary": logic_puzzles.CANARY, "version": 1, "examples": rows}
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def parquet_bytes(rows: list[Row]) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(
        pyarrow.Table.from_pylist(rows),
        buffer,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        data_page_size=1 << 26,  # one page per column: the rows repeat each other's sentences
        write_statistics=False,
    )
    return buffer.getvalue()


WRITERS = {
    ".jsonl": jsonl_bytes,
    ".gz": jsonl_gz_bytes,
    ".csv": csv_bytes,
    ".json": puzzle_bytes,
    ".parquet": parquet_bytes,
}


def main(folder: Path = DEFAULT_FOLDER) -> None:
    for path, rows in datasets().items():
        target = folder / path
        data = WRITERS[target.suffix](rows)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        print(f"{len(data):>9,} bytes  {len(rows):>4} rows  {target}")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
