"""From prompts to exact lengths: counting, the cache, the histogram and the profile. Sources and
tokenizers come in, nothing of models, GPUs or vLLM."""
