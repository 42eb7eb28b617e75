"""What reading a prompt in chunks costs on the engine of `chunkscope demo`: a Markdown table.

    python -m tests.benchmarks.bench_reference llama-3.2-1b 32768 none 8192 2048 512

A model of the built-in table with random weights, on the GPU if there is one; the prompt's tokens;
its chunks. A short request is decoding when the prompt comes, and sees the gap.
"""

import random
import sys
from statistics import median

from chunkscope.models.find import MODELS
from chunkscope.reference.engine import TokenRequest, generate, settings_for

REPEATS = 3


def main() -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    (name, tokens, *chunks), whole = sys.argv[1:], None
    prompt = random.Random(0).choices(range(8_192), k=int(tokens))
    config = {**MODELS[name].config, "max_position_embeddings": len(prompt) + 64}
    torch.manual_seed(0)
    made = AutoConfig.for_model(**{**config, "tie_word_embeddings": False})
    place = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    model = AutoModelForCausalLM.from_config(made).to(*place).eval()
    print("| chunk | seconds | times | TTFT | longest gap | peak beyond weights |")
    print("|---:|---:|---:|---:|---:|---:|")
    for word in chunks:
        chunk = None if word == "none" else int(word)
        steps = -(-len(prompt) // (chunk or len(prompt)))
        requests = [
            TokenRequest(prompt=prompt[:16], output_tokens=2 + steps),
            TokenRequest(prompt=prompt, output_tokens=1, arrival_s=1e-6),
        ]
        settings = settings_for(model, requests, chunk=chunk)
        runs = [generate(model, requests, settings) for _ in range(1 + REPEATS)]  # one to warm up
        seconds, last = median(sum(run.chunk_s) for run in runs[1:]), runs[-1]
        whole, gaps, peak = whole or seconds, last.run.figures.itl_s, last.beyond_weights_bytes or 0
        waited = last.answers[1].seen.ttft_s
        print(
            f"| {word} | {seconds:.2f} | {seconds / whole:.2f} | {waited:.2f} s | "
            f"{gaps.max * 1e3 if gaps else 0:.0f} ms | {peak / 2**30:.2f} GiB |"
        )


if __name__ == "__main__":
    main()
