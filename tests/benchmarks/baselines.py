"""What people run today to count tokens, written as each library documents it.

    naive        a loop of AutoTokenizer.encode
    map          datasets.load_dataset + .map(batched, num_proc=2) with AutoTokenizer
    fast         orjson per line + tokenizers' encode_batch_fast, a thousand rows at a
    time gigatoken    gigatoken's own file reader chats        datasets.map with
    apply_chat_template, and the ids it gives

Run as a whole command: python baselines.py NAME FILE FIELD TOKENIZER_DIR

Imports sit in the functions: a process pays only for what its own baseline needs.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

BATCH_ROWS = 1000
MAP_PROCESSES = 2

Lengths = Iterable[int]


def naive(path: Path, field: str, tokenizer_dir: Path) -> Lengths:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_dir))
    with path.open() as lines:
        texts = [json.loads(line)[field] for line in lines]
    return [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]


def with_map(path: Path, field: str, tokenizer_dir: Path) -> Lengths:
    return _mapped("json", path, tokenizer_dir, _count, field)


def chats(path: Path, field: str, tokenizer_dir: Path) -> Lengths:
    return _mapped("parquet", path, tokenizer_dir, _count_chats, field)


def _mapped(
    kind: str, path: Path, tokenizer_dir: Path, count: Any, field: str
) -> Lengths:
    import numpy as np
    from datasets import load_dataset
    from transformers import AutoTokenizer

    global _tokenizer
    _tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_dir), use_fast=True)
    # A fresh cache each time: a stored result would be timed otherwise.
    with tempfile.TemporaryDirectory(prefix="bench-datasets-") as cache:
        data = load_dataset(kind, data_files=str(path), split="train", cache_dir=cache)
        # Ids are not kept, only their number: writing them would cost the baseline
        # more.
        counted = data.map(
            count,
            batched=True,
            num_proc=MAP_PROCESSES,
            remove_columns=data.column_names,
            fn_kwargs={"field": field},
        )
        lengths: list[int] = np.asarray(
            counted.with_format("numpy")["tokens"][:]
        ).tolist()
    return lengths


# A global, and what uses it outside of any function, as in the library's own guide: a
# closure over the tokenizer is pickled into every worker and cost 1.5 s (llama3.1) to 6
# s (qwen3) more.
_tokenizer: Any = None


def _count(batch: dict[str, list[str]], field: str) -> dict[str, list[int]]:
    ids = _tokenizer(
        batch[field], add_special_tokens=False, return_attention_mask=False
    )
    return {"tokens": [len(row) for row in ids["input_ids"]]}


def _count_chats(batch: dict[str, list[Any]], field: str) -> dict[str, list[int]]:
    made = _tokenizer.apply_chat_template(
        batch[field], add_generation_prompt=True, return_dict=False
    )
    return {"tokens": [len(row) for row in made]}


def fast(path: Path, field: str, tokenizer_dir: Path) -> Lengths:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for texts in _batches(path, field):
        yield from map(
            len, tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        )


def with_gigatoken(path: Path, field: str, tokenizer_dir: Path) -> Lengths:
    import awkward
    import gigatoken

    tokenizer = gigatoken.Tokenizer(str(tokenizer_dir / "tokenizer.json"))
    found = tokenizer.encode_files(gigatoken.JsonlFileSource([str(path)], field=field))
    lengths: list[int] = awkward.num(found, axis=1).to_list()
    return lengths


def _batches(path: Path, field: str) -> Iterator[list[str]]:
    import orjson

    if path.is_dir():  # of documents that are lists of rows
        files = (orjson.loads(file.read_bytes()) for file in sorted(path.iterdir()))
        rows = (row[field] for document in files for row in document)
        while batch := list(islice(rows, BATCH_ROWS)):
            yield batch
        return
    with path.open("rb") as lines:
        while batch := [
            orjson.loads(line)[field] for line in islice(lines, BATCH_ROWS)
        ]:
            yield batch


def main() -> None:
    name, file, field, tokenizer_dir = sys.argv[1:]
    ways = {"naive": naive, "map": with_map, "fast": fast, "gigatoken": with_gigatoken}
    ways["chats"] = chats
    ordered = sorted(ways[name](Path(file), field, Path(tokenizer_dir)))
    print(json.dumps({"count": len(ordered), "sum": sum(ordered), "max": ordered[-1]}))


if __name__ == "__main__":
    main()
