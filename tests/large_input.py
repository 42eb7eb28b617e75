"""Input that is divided into pieces of 256 KiB: for shards, buckets and workers."""

import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet

from chunkscope.tokenizers.tokenizer import Tokenizer


def write_large_input(folder: Path) -> Path:
    """Lines and row groups in several pieces each, bad and blank lines, small files, a
    failure.

    The tokenizer is prepared: its first run may count with another engine than those
    that follow.
    """
    assert Tokenizer().reference
    folder.mkdir(parents=True)
    chance = random.Random(1)
    words = ["alpha", "beta", "gamma", "delta", "naïve", "東京", "x = 1", "\u2028"]

    def text(most: int) -> str:
        return "Read this. " + " ".join(
            chance.choices(words, k=chance.randrange(1, most))
        )

    def lines() -> list[str]:
        made = [
            json.dumps({"prompt": text(120), "answer": text(9)}) for _ in range(1200)
        ]
        for place in range(50, len(made), 190):
            made[place] = chance.choice(
                ["", "{broken", '{"prompt": 7}', '{"other": "x"}']
            )
        made[700] = json.dumps({"prompt": text(60_000), "answer": "long"})
        return made

    (folder / "lines.jsonl").write_text("\n".join(lines()), encoding="utf-8")
    chats = [
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": text(160)}]}
            ]
        }
        for _ in range(900)
    ]
    for chat in chats[::200]:
        chat["messages"][0]["content"].append(
            {"type": "image_url", "image_url": {"url": "x"}}
        )
    (folder / "chats.jsonl").write_text("".join(json.dumps(c) + "\n" for c in chats))
    table = pyarrow.table(
        {"prompt": [text(80) for _ in range(2000)], "n": list(range(2000))}
    )
    pyarrow.parquet.write_table(
        table,
        folder / "table.parquet",
        row_group_size=230,
        compression="none",
        use_dictionary=False,
    )
    (folder / "few.csv").write_text("prompt\nhello there\nhow are you\n")
    (folder / "cut.jsonl.gz").write_bytes(b"\x1f\x8b\x08 not gzip")
    return folder
