"""chunkscope: how long evaluation prompts really are, and the vLLM settings that follow."""

__version__ = "0.1.0"
