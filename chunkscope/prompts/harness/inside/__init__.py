"""Programs that run a harness's tasks, in a process of their own.

They import nothing of chunkscope, which need not be installed where the harness is.
"""
