"""The names that engine.py had before: for those who still import them from here."""

from chunkscope.vllm.engine import Engine as Deployment
from chunkscope.vllm.engine import Refusal
from chunkscope.vllm.measured import MeasuredFit
from chunkscope.vllm.settings import POSITIVE

__all__ = ["POSITIVE", "Deployment", "MeasuredFit", "Refusal"]
