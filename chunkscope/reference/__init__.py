"""Chunked prefill itself, with torch and a transformers model: a small engine that is meant to be
read, driven by the scheduler of simulation/, and what else works on a real model.

torch is an extra (`chunkscope[torch]`) and loaded late: nothing here imports it at the top.
"""
