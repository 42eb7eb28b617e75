"""Files, archives, hub sets -> records -> prompts. Nothing of models, GPUs or vLLM comes in."""
