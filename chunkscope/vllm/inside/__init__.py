"""Programs for the Python that has vLLM, where chunkscope need not be: they import none of it."""
