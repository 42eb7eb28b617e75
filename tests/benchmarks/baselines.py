"""What people run today to count tokens, written as each library documents it.

    a    datasets.load_dataset + .map(batched, num_proc=2) with AutoTokenizer
    b    orjson per line + tokenizers' encode_batch_fast, a thousand rows at a time

Run as a whole command: python baselines.py a FILE FIELD TOKENIZER_DIR

Imports sit in the functions: a process pays only for what its own baseline needs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

BATCH_ROWS = 1000
MAP_PROCESSES = 2


def with_datasets_map(path: Path, field: str, tokenizer_dir: Path) -> dict[str, float]:
    import numpy as np
    from datasets import load_dataset
    from transformers import AutoTokenizer

    global _tokenizer
    _tokenizer = AutoTokenizer.from_pretrained(str(tokenizer_dir), use_fast=True)
    # A fresh cache each time: a stored result would be timed otherwise.
    with tempfile.TemporaryDirectory(prefix="bench-datasets-") as cache:
        data = load_dataset("json", data_files=str(path), split="train", cache_dir=cache)
        # Ids are not kept, only their number: writing them would cost the baseline more.
        counted = data.map(
            _count,
            batched=True,
            num_proc=MAP_PROCESSES,
            remove_columns=data.column_names,
            fn_kwargs={"field": field},
        )
        lengths = np.asarray(counted.with_format("numpy")["tokens"][:])
    p50, p95 = np.percentile(lengths, [50, 95])
    return {
        "count": len(lengths),
        "sum": int(lengths.sum()),
        "p50": float(p50),
        "p95": float(p95),
        "max": int(lengths.max()),
    }


# A global, and `_count` outside of any function, as in the library's own guide: a closure over the
# tokenizer is pickled into every worker and cost 1.5 s (llama3.1) to 6 s (qwen3) more.
_tokenizer: Any = None


def _count(batch: dict[str, list[str]], field: str) -> dict[str, list[int]]:
    ids = _tokenizer(batch[field], add_special_tokens=False, return_attention_mask=False)
    return {"tokens": [len(row) for row in ids["input_ids"]]}


def with_encode_batch_fast(path: Path, field: str, tokenizer_dir: Path) -> dict[str, float]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lengths: list[int] = []
    for texts in _batches(path, field):
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        lengths += map(len, encoded)
    # Sorted by hand: numpy's import alone is a fifth of this command on a small file.
    lengths.sort()
    return {
        "count": len(lengths),
        "sum": sum(lengths),
        "p50": _percentile(lengths, 50),
        "p95": _percentile(lengths, 95),
        "max": lengths[-1],
    }


def _batches(path: Path, field: str) -> Iterator[list[str]]:
    import orjson

    with path.open("rb") as lines:
        while batch := [orjson.loads(line)[field] for line in islice(lines, BATCH_ROWS)]:
            yield batch


def _percentile(ordered: list[int], percent: int) -> float:
    """numpy's linear percentile: of [1, 2, 3, 4], the 50th is 2.5."""
    whole, rest = divmod((len(ordered) - 1) * percent, 100)
    following = ordered[min(whole + 1, len(ordered) - 1)]
    return ordered[whole] + (following - ordered[whole]) * rest / 100


Baseline = Callable[[Path, str, Path], dict[str, float]]
BASELINES: dict[str, Baseline] = {"a": with_datasets_map, "b": with_encode_batch_fast}


def main() -> None:
    parser = argparse.ArgumentParser(description="Count tokens the way it is done today.")
    parser.add_argument("baseline", choices=sorted(BASELINES))
    parser.add_argument("file", type=Path)
    parser.add_argument("field")
    parser.add_argument("tokenizer_dir", type=Path)
    options = parser.parse_args()
    result = BASELINES[options.baseline](options.file, options.field, options.tokenizer_dir)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
