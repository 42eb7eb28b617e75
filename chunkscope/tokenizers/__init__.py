"""Name -> something that counts tokens exactly as vLLM would, and fast."""
