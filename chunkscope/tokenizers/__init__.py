"""Name -> something that counts tokens exactly as vLLM would, and fast. Texts and
conversations come in, nothing of models, GPUs or vLLM."""
