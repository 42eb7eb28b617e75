"""What reading a prompt in chunks costs on the reference engine, against reading it whole.

python -m tests.benchmarks.bench_reference                  # on a CPU: 4,096 tokens, 50M parameters
python -m tests.benchmarks.bench_reference --shape 1b --tokens 32768 --chunks none,8192,2048,512

The second line is for a GPU: a table of TTFT, longest gap and peak memory. Weights are random, so
speed and memory are real and answers are not. On a CPU processor seconds are compared, not what a
clock on the wall shows: the machine may be busy.
"""

import argparse
import random
import statistics
import time
from typing import Any

from chunkscope.reference.engine import ReferenceRun, TokenRequest, generate, settings_for

MOST = 1.3  # times the processor seconds of one pass over the whole prompt
SHAPES: dict[str, dict[str, int]] = {
    "50m": {
        "vocab_size": 8_192,
        "hidden_size": 640,
        "intermediate_size": 1_792,
        "num_hidden_layers": 9,
        "num_attention_heads": 10,
        "num_key_value_heads": 10,
    },
    "1b": {  # Llama-3.2-1B's
        "vocab_size": 128_256,
        "hidden_size": 2_048,
        "intermediate_size": 8_192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", choices=SHAPES, default="50m")
    parser.add_argument("--tokens", type=int, default=4_096)
    parser.add_argument("--chunks", default="none,512")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    model = make_model(asked.shape, asked.tokens + 64)
    chunks = [None if word == "none" else int(word) for word in asked.chunks.split(",")]
    whole = measure(model, asked.tokens, None, 1)[1]  # the first pass is slower: it warms up
    print(f"{asked.shape}: {sum(p.numel() for p in model.parameters()) / 1e6:,.0f} M parameters")
    print("chunk     seconds  times   TTFT s  longest gap s  peak GiB beyond weights")
    for chunk in chunks:
        found, taken = measure(model, asked.tokens, chunk, asked.repeats)
        whole = taken if chunk is None else whole
        memory = found.beyond_weights_bytes / 2**30
        print(
            f"{chunk or 'none':<8} {taken:>8.2f} {taken / whole:>6.2f} "
            f"{found.answers[-1].first_s:>8.3f} {found.run.figures.longest_gap_s:>14.3f} "
            f"{'not measured' if memory is None else f'{memory:.3f}':>12}"
        )
        if model.device.type == "cpu" and chunk is not None and chunk >= 512:
            assert taken <= MOST * whole, f"chunks of {chunk} cost {taken / whole:.2f}x"


def make_model(shape: str, context: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    config = LlamaConfig(**SHAPES[shape], max_position_embeddings=context)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    return LlamaForCausalLM(config).to(dtype).to("cuda" if on_gpu else "cpu").eval()


def measure(model: Any, tokens: int, chunk: int | None, repeats: int) -> tuple[ReferenceRun, float]:
    """A short request is decoding when the long prompt comes: it sees the gap.

    Seconds of the steps that read prompts: on a GPU by the clock, on a CPU the processor's.
    """
    chance = random.Random(0)
    prompt = [chance.randrange(8_192) for _ in range(tokens)]
    requests = [
        TokenRequest(prompt=prompt[:16], output_tokens=2 + -(-tokens // (chunk or tokens))),
        TokenRequest(prompt=prompt, output_tokens=1, arrival_s=1e-6),
    ]
    settings = settings_for(model, requests, chunk=chunk)
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        found = generate(model, requests, settings)
        on_gpu = model.device.type == "cuda"
        taken.append(sum(found.chunk_s) if on_gpu else time.process_time() - began)
    return found, statistics.median(taken)


if __name__ == "__main__":
    main()
