"""Programs that run outside chunkscope: in the guard, in vLLM's process and in its workers.

They import nothing of chunkscope, which need not be installed where vLLM is.
"""
