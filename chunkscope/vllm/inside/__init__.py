"""Programs for the Python that has vLLM: they import nothing of chunkscope."""
