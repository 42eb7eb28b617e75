"""Chunked prefill itself, with torch and a transformers model.

A small engine that is meant to be read, driven by the scheduler of simulation/. torch
is an extra, so it is imported inside the functions that need it.
"""
