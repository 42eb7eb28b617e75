"""Requests through a copy of vLLM's scheduler, with a clock: what would happen, without a GPU.

Lengths come in from `lengths/`, rules and settings from `vllm/`, seconds from `hardware/`.
"""
