"""The words a user can choose from, and nothing else: `--help` needs them at once."""

from enum import StrEnum


class Mode(StrEnum):
    OFF = "off"
    CONSERVATIVE = "conservative"
    AGGRESSIVE = "aggressive"


class KvCacheType(StrEnum):
    """vLLM's kv_cache_dtype: as the model computes, or 8 bits."""

    AUTO = "auto"
    FP8 = "fp8"


class Task(StrEnum):
    GENERATE = "generate"
    LOGLIKELIHOOD = "loglikelihood"  # prompt_logprobs, as multiple-choice evals use it


class SendOrder(StrEnum):
    DATA = "data"  # as in the file, or as a harness's log says
    LONGEST = "longest"  # first, as lm-eval sends them
    SHUFFLED = "shuffled"


class Entry(StrEnum):
    """Who starts the engine: vLLM's defaults depend on it."""

    SERVE = "serve"
    LLM = "llm"
    OTHER = "other"  # run-batch, AsyncLLM or LLMEngine used directly


class ChunkPolicy(StrEnum):
    """How the simulator cuts prompts; vLLM can do the first two."""

    VLLM = "vllm"
    FIXED = "fixed"
    BY_LENGTH = "by-length"
    ADAPTIVE = "adaptive"


class Target(StrEnum):
    VLLM_ARGS = "vllm-args"
    VLLM_YAML = "vllm-yaml"
    PYTHON = "python"
    JSON = "json"
    ENV = "env"
    LM_EVAL = "lm-eval"
    INSPECT = "inspect"
    DOCKER_COMPOSE = "docker-compose"
    KUBERNETES = "kubernetes"

    @property
    def entry(self) -> Entry:
        """Who starts the engine that it is for."""
        return Entry.LLM if self in (Target.PYTHON, Target.LM_EVAL) else Entry.SERVE
