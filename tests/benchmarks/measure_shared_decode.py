"""Measure on a real GPU what a decode step takes when requests begin alike.

Example: python tests/benchmarks/measure_shared_decode.py qwen3-8b shared-decode.jsonl

Needs vLLM and a GPU; weights and prompts are random. Every case is a batch of requests in groups,
each with a beginning of its own that its requests share. The prompts are in the prefix cache when
they are sent again for one token and for 129: the difference is 128 decode steps. In
`neighbours_share` the requests of a group stand side by side in the batch, else far apart.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

STEPS = 128
OWN_TOKENS = 32
REPEATS = 2


class Case(NamedTuple):
    requests: int
    prefix_tokens: int
    groups: int
    neighbours_share: bool = True

    def prompts(self, vocabulary: int) -> list[list[int]]:
        chance = random.Random(repr(self))

        def ids(count: int) -> list[int]:
            return [chance.randrange(10, vocabulary) for _ in range(count)]

        heads = [ids(self.prefix_tokens) for _ in range(self.groups)]
        sides = [n * self.groups // self.requests for n in range(self.requests)]
        apart = [n % self.groups for n in range(self.requests)]
        return [heads[n] + ids(OWN_TOKENS) for n in (sides if self.neighbours_share else apart)]


CASES = (
    Case(256, 16, 256),
    *(Case(256, 1_600, groups) for groups in (1, 4, 16, 64, 256)),
    *(Case(256, 1_600, groups, neighbours_share=False) for groups in (16, 64)),
    *(Case(128, 1_600, groups) for groups in (1, 128)),
    *(Case(64, 4_096, groups) for groups in (1, 64)),
    *(Case(16, 16_384, groups) for groups in (1, 16)),
    *(Case(256, 400, groups) for groups in (1, 256)),
    Case(512, 1_600, 1),
    Case(400, 1_632, 1),
)


def main(model: str, output: str) -> None:
    from vllm import LLM

    from chunkscope.models import known_model

    with tempfile.TemporaryDirectory() as folder:
        config = known_model(model).config
        (Path(folder) / "config.json").write_text(json.dumps(config))
        engine = LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            max_num_seqs=1_024,
            max_model_len=20_000,
        )
        for case in CASES:
            line = _measured(engine, case, case.prompts(config["vocab_size"]))
            print(json.dumps(line), flush=True)
            with Path(output).open("a") as file:
                file.write(json.dumps(line) + "\n")


def _measured(engine: Any, case: Case, prompts: list[list[int]]) -> dict[str, Any]:
    _seconds(engine, prompts, 1)  # reads the prompts: from now on they are cached
    once = [_seconds(engine, prompts, 1) for _ in range(REPEATS)]
    often = [_seconds(engine, prompts, 1 + STEPS) for _ in range(REPEATS)]
    engine.reset_prefix_cache()
    asked = {**case._asdict(), "own_tokens": OWN_TOKENS}
    return {**asked, "one_token_s": once, f"tokens_{1 + STEPS}_s": often}


def _seconds(engine: Any, prompts: list[list[int]], tokens: int) -> float:
    from vllm import SamplingParams

    greedy = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0, detokenize=False)
    started = time.perf_counter()
    engine.generate([{"prompt_token_ids": p} for p in prompts], greedy, use_tqdm=False)
    return round(time.perf_counter() - started, 5)


if __name__ == "__main__":
    main(*sys.argv[1:])
