"""Run by a Python that has vLLM: what an engine finds of each prompt in its cache.

Reads [{"engine": {...}, "runs": [{"prompts": [[id, ...], ...], "output": n}, ...]},
...] from stdin as JSON; a run may ask for `prompt_logprobs`, or for the next token's
likelihood to be one of some `labels`, as /generative_scoring does. The model is tiny
and has random weights; tokens are numbered anew, so that its vocabulary is no larger
than the prompts'. Answers with whether the engine schedules ahead and, by run and
prompt, `num_cached_tokens`.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import vllm

MARK = "cache-probe:"
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 1 << 16,
    "torch_dtype": "float32",
}


def renumber(questions):
    """Every token as its place among those that occur; how many do."""
    places = {}

    def numbered(ids):
        return [places.setdefault(token, len(places)) for token in ids]

    for run in (run for question in questions for run in question["runs"]):
        run["prompts"] = [*map(numbered, run["prompts"])]
        run["labels"] = numbered(run.get("labels", []))
    return len(places)


def answers(question, folder):
    engine = vllm.LLM(
        model=str(folder),
        load_format="dummy",
        dtype="float32",
        enforce_eager=True,
        skip_tokenizer_init=True,
        enable_prefix_caching=True,
        **question["engine"],
    )
    scheduling = engine.llm_engine.vllm_config.scheduler_config
    return {
        "async_scheduling": bool(getattr(scheduling, "async_scheduling", False)),
        "cached": [found(engine, run) for run in question["runs"]],
    }


def found(engine, run):
    labels = run["labels"]
    scoring = {"logprobs": len(labels), "logprob_token_ids": labels} if labels else {}
    params = vllm.SamplingParams(
        max_tokens=run["output"],
        ignore_eos=True,
        detokenize=False,
        temperature=0.0,
        prompt_logprobs=1 if run.get("prompt_logprobs") else None,
        **scoring,
    )
    prompts = [{"prompt_token_ids": ids} for ids in run["prompts"]]
    done = engine.generate(prompts, params, use_tqdm=False)
    engine.reset_prefix_cache()
    return [output.num_cached_tokens for output in done]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        questions = json.load(sys.stdin)
        config = {**TINY, "vocab_size": renumber(questions)}
        (Path(home) / "config.json").write_text(json.dumps(config))
        cached = [answers(question, Path(home)) for question in questions]
    print(MARK + json.dumps({"vllm": vllm.__version__, "answers": cached}))
