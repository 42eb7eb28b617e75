"""How long `recommend` thinks about a profile of 100 datasets, imports apart.

Example: python tests/benchmarks/bench_recommend.py
"""

import random
import time

from chunkscope import DatasetProfile, LengthHistogram, Profile, recommend
from chunkscope.lengths.profile import TokenizerInfo

DATASETS = 100
ROWS = 5000
ROUNDS = 5


def profile() -> Profile:
    chance = random.Random(0)
    datasets = tuple(
        DatasetProfile(
            name=f"set-{number}",
            path=f"data/set-{number}.jsonl",
            format="jsonl",
            field="prompt",
            lengths=LengthHistogram.of(
                round(chance.lognormvariate(6, 1.2)) + 1 for _ in range(ROWS)
            ),
        )
        for number in range(DATASETS)
    )
    tokenizer = TokenizerInfo(
        name="benchmark", digest="0", kind="hf", engine="none", reference="none",
        special_tokens_added=0,
    )  # fmt: skip
    return Profile(tokenizer=tokenizer, datasets=datasets)


def main() -> None:
    made = profile()
    document = made.to_json()
    recommend(made, model="llama-3.1-8b", gpu="h200")  # imports
    least = min(_seconds(document) for _ in range(ROUNDS))
    print(f"{DATASETS} datasets of {ROWS} rows: {least:.3f} s (least of {ROUNDS}; target < 1 s)")


def _seconds(document: dict[str, object]) -> float:
    start = time.perf_counter()
    recommend(Profile.from_json(document), model="llama-3.1-8b", gpu="h200").to_json()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
