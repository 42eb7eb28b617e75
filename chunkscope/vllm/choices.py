"""The old name of `enums`, until nobody imports it any more."""

from chunkscope.vllm.enums import ChunkPolicy as ChunkPolicy
from chunkscope.vllm.enums import Entry as Entry
from chunkscope.vllm.enums import KvCacheType as KvCacheType
from chunkscope.vllm.enums import Mode as Mode
from chunkscope.vllm.enums import SendOrder as SendOrder
from chunkscope.vllm.enums import Target as Target
from chunkscope.vllm.enums import Task as Task
