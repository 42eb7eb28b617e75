"""Write sessions of an agent as JSON Lines, the same ones for the same seed.

    python -m tests.benchmarks.make_sessions 120 > sessions.jsonl

Answers are longer than an agent usually gives, as those of reasoning models are.
"""

import argparse
import json
import random
from typing import Any

SYSTEM_TOKENS = 1_200
TURNS = (4, 20)
TASK_TOKENS = (200, 2_000)
# Log-normal: the middle, the spread, and the most.
RESULT_TOKENS = (280, 1.1, 5_000)
ANSWER_TOKENS = (240, 1.0, 3_000)
THINK_S = (1.5, 1.0, 20.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    for number in range(arguments.count):
        print(json.dumps(session(number, chance)))


def session(number: int, chance: random.Random) -> dict[str, Any]:
    turns = []
    for turn in range(chance.randint(*TURNS)):
        if turn == 0:
            new_tokens = chance.randint(*TASK_TOKENS)
        else:
            new_tokens = max(1, round(log_normal(chance, *RESULT_TOKENS)))
        turns.append(
            {
                "new_tokens": new_tokens,
                "output_tokens": max(1, round(log_normal(chance, *ANSWER_TOKENS))),
                "think_s": round(log_normal(chance, *THINK_S), 3),
            }
        )
    return {"id": number, "system_tokens": SYSTEM_TOKENS, "turns": turns}


def log_normal(
    chance: random.Random, middle: float, spread: float, most: float
) -> float:
    return min(most, middle * chance.lognormvariate(0, spread))


if __name__ == "__main__":
    main()
