"""Run by a Python that has vLLM: the requests that `vllm bench serve` would send.

Reads command lines from stdin as JSON, has the real `main` parse each, and gives the
real dataset reader a tokenizer of plain numbers. Writes prompts as token ids, output
lengths and times.
"""

import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm.benchmarks.datasets import get_samples
from vllm.entrypoints.cli import main as command
from vllm.entrypoints.cli.benchmark.serve import BenchmarkServingSubcommand

MARK = "bench-probe:"


class Tokenizer:
    all_special_ids = (0, 1)

    def get_vocab(self):
        return {str(number): number for number in range(50_000)}


def requests(words):
    parsed = []
    BenchmarkServingSubcommand.cmd = staticmethod(parsed.append)
    sys.argv = ["vllm", *words]
    command.main()
    samples = get_samples(parsed[0], Tokenizer())
    return [
        (s.prompt, s.prompt_len, s.expected_output_len, s.timestamp) for s in samples
    ]


if __name__ == "__main__":
    print(MARK + json.dumps([requests(words) for words in json.load(sys.stdin)]))
