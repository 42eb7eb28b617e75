"""The settings of an engine, under vLLM's own names. What is None is left to vLLM.

Nobody else holds a setting in another form; engine.py says what vLLM takes by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from chunkscope.errors import UsageError
from chunkscope.hardware.gpus import Parallel
from chunkscope.hardware.kv_groups import KvGroup
from chunkscope.models.shape import BLOCK_TOKENS, BYTES

Value = int | float | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What somebody sets; completed by `Engine.complete`, what the engine runs with."""

    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int | None = None
    max_num_seqs: int | None = None
    enable_chunked_prefill: bool | None = None
    enable_prefix_caching: bool | None = None
    gpu_memory_utilization: float | None = None
    tensor_parallel_size: int | None = None
    max_cudagraph_capture_size: int | None = None
    long_prefill_token_threshold_adaptive: bool | None = None  # since 0.31
    max_num_active_seqs: int | None = None  # since 0.31
    data_parallel_size: int | None = None
    enable_expert_parallel: bool | None = None
    kv_cache_dtype: str | None = None

    def __post_init__(self) -> None:
        for name, types in TYPES.items():
            value = getattr(self, name)
            if type(value) is int and float in types:
                continue
            if type(value) not in types:
                what = f"{name} must be of type {types[0].__name__}, not {value!r}"
                raise UsageError(what)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Those of the arguments that are settings; others are not looked at.

        >>> Settings.of({"max_num_seqs": 8, "dtype": "auto"}).given()
        {'max_num_seqs': 8}
        """
        return cls(**{name: given[name] for name in NAMES if name in given})

    def given(self) -> dict[str, Value]:
        """What is set, by name."""
        values = {}
        for name in NAMES:
            value = getattr(self, name)
            if value is not None:
                values[name] = value
        return values

    def over(self, other: "Settings") -> "Settings":
        """These, and the other's where nothing is said here.

        >>> default = Settings(max_num_seqs=2, max_model_len=64)
        >>> Settings(max_num_seqs=8).over(default).given()
        {'max_model_len': 64, 'max_num_seqs': 8}
        """
        return Settings.of({**other.given(), **self.given()})

    def changed_from(self, other: "Settings") -> "Settings":
        """What is set here and is not so there."""
        changed = {}
        for name, value in self.given().items():
            if getattr(other, name) != value:
                changed[name] = value
        return Settings.of(changed)

    @property
    def parallel(self) -> Parallel:
        return Parallel(
            tensor=self.tensor_parallel_size or 1,
            data=self.data_parallel_size or 1,
            by_expert=bool(self.enable_expert_parallel),
        )

    @property
    def kv_element_bytes(self) -> int:
        dtype = self.kv_cache_dtype or AUTO
        return 1 if dtype.startswith("fp8") else BYTES

    @property
    def step_tokens(self) -> int:
        """The most tokens of one step; 0 where that is left to vLLM."""
        return self.max_num_batched_tokens or 0

    @property
    def step_requests(self) -> int:
        """The most requests of one step; 0 where that is left to vLLM."""
        return self.max_num_seqs or 0

    @property
    def chunk_tokens(self) -> int:
        """The most tokens of one prompt in a step; 0 where that is left to vLLM."""
        caps = (self.long_prefill_token_threshold, self.max_num_batched_tokens)
        return min((cap for cap in caps if cap), default=0)

    @property
    def most_running(self) -> int:
        """Requests admitted at once: fewer, if asked for, than there are places."""
        return self.max_num_active_seqs or self.step_requests

    def at_budget(self, budget: int) -> "Settings":
        """Another budget, and no more requests than it has tokens.

        >>> Settings(max_num_seqs=64).at_budget(32).given()
        {'max_num_batched_tokens': 32, 'max_num_seqs': 32}
        """
        seqs = min(self.max_num_seqs or budget, budget)
        return replace(self, max_num_batched_tokens=budget, max_num_seqs=seqs)


TYPES = {field.name: get_args(field.type) for field in fields(Settings)}
NAMES = tuple(TYPES)
OWN = Settings()  # everything left to vLLM
AUTO = "auto"  # the type of the KV cache: as the model computes
# Sizes that vLLM does not take below 1.
POSITIVE = (
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "tensor_parallel_size",
    "max_cudagraph_capture_size",
    "max_num_active_seqs",
    "data_parallel_size",
)
# Without these vLLM ran before they came, and most people run it.
UNUSUAL = (
    "long_prefill_token_threshold_adaptive",
    "max_num_active_seqs",
    "data_parallel_size",
    "enable_expert_parallel",
    "kv_cache_dtype",
)


def check_sizes(settings: Settings, *, checks_threshold: bool) -> None:
    """UsageError for sizes with which vLLM would not start; settings are complete."""
    budget, seqs = settings.step_tokens, settings.step_requests
    running = settings.most_running
    threshold = settings.long_prefill_token_threshold or 0
    largest_threshold = max(0, threshold)
    if checks_threshold and settings.max_model_len:
        largest_threshold = settings.max_model_len
    if budget >= seqs >= running >= 1 and 0 <= threshold <= largest_threshold:
        return
    raise UsageError(
        f"vLLM needs max_num_batched_tokens ({budget:,}) >= max_num_seqs ({seqs:,}) >= "
        f"max_num_active_seqs ({running:,}) >= 1, "
        f"0 <= long_prefill_token_threshold <= {largest_threshold:,}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPool:
    """The KV cache of one engine.

    `tokens` is what vLLM logs: its null block, never used, included. Where the layers
    of a model are in `groups` that keep different parts of a request, `blocks` holds
    them all.
    """

    tokens: int
    block_size: int = BLOCK_TOKENS
    blocks: int | None = None
    groups: tuple[KvGroup, ...] = ()
    # Of `--kv-offloading-size`: tokens in the host's memory, and seconds to load one.
    host_tokens: int = 0
    host_token_s: float = 0.0

    @property
    def num_blocks(self) -> int:
        """Blocks that can be used: the first is vLLM's null block."""
        blocks = self.blocks
        if blocks is None:
            blocks = self.tokens // self.block_size
        return blocks - 1
