"""Requests through a copy of vLLM's scheduler, with a clock: what would happen, without
a GPU."""
