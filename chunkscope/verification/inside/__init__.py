"""Programs that run outside chunkscope: the guard, and those in vLLM's processes.

They import nothing of chunkscope, which need not be installed where vLLM is.
"""
