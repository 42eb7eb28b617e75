"""Chunked prefill itself, with torch and a transformers model: a small engine that is meant to be
read, driven by the scheduler of simulation/. torch is an extra and loaded late."""
