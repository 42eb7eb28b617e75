"""Run by the interpreter that has vLLM: what its own scheduler does with each workload, by step.

Reads [{"engine": {...}, "requests": [...], "shared_prefix": n}, ...] from stdin as JSON. No model
is loaded: a made-up result ends each step. A request comes before the step `comes_at`. With
`async_scheduling` a step is scheduled before the result of the one before is there.
"""

import json
import os
import sys
import tempfile
from collections import deque
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import vllm
from vllm.config import CacheConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_utils, single_type_kv_cache_manager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

MARK = "scheduler-probe:"
MOST_STEPS = 20_000
SHARED_TOKEN = 3
FIRST_OWN_TOKEN = 1_000  # request i: its prompt repeats 1000 + 2 i, its output 1001 + 2 i
SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "float16",
}


class Machine:
    """One vLLM configuration for all workloads; only the scheduler is made anew for each."""

    def __init__(self, folder):
        (folder / "config.json").write_text(json.dumps(SMALL))
        self.model = ModelConfig(model=str(folder), dtype="float16", skip_tokenizer_init=True)
        kv_cache_utils.init_none_hash(sha256_cbor)

    def scheduler(self, engine):
        engine = dict(engine)
        blocks, size = engine.pop("num_blocks"), engine.pop("block_size")
        caching = engine.pop("enable_prefix_caching")
        self.model.max_model_len = engine["max_model_len"]
        cache = CacheConfig(block_size=size, enable_prefix_caching=caching)
        cache.num_gpu_blocks = blocks
        config = VllmConfig(
            model_config=self.model,
            cache_config=cache,
            parallel_config=ParallelConfig(),
            scheduler_config=SchedulerConfig(is_encoder_decoder=False, **engine),
        )
        register = getattr(single_type_kv_cache_manager, "register_all_kvcache_specs", None)
        if register is not None:
            register(config)
        spec = FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=32, dtype=torch.float16)
        groups = [KVCacheGroupSpec(["layer"], spec)]
        kind = AsyncScheduler if engine["async_scheduling"] else Scheduler
        return kind(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=size,
            log_stats=True,
        )

    def run(self, workload):
        engine = workload["engine"]
        scheduler = self.scheduler(engine)
        hasher = kv_cache_utils.get_request_block_hasher(engine["block_size"], sha256_cbor)
        coming = deque(enumerate(workload["requests"]))
        steps, flying, turn = [], deque(), 0
        while (coming or scheduler.has_unfinished_requests()) and turn < MOST_STEPS:
            while coming and coming[0][1]["comes_at"] <= turn:
                place, asked = coming.popleft()
                scheduler.add_request(_request(place, asked, workload["shared_prefix"], hasher))
            turn += 1
            out = scheduler.schedule()
            if out.total_num_scheduled_tokens:
                steps.append(_seen(out))
            flying.append((out, _sampling(scheduler, out)))
            while len(flying) > (1 if engine["async_scheduling"] else 0):
                _finish(scheduler, *flying.popleft())
        return steps


def _request(place, asked, shared, hasher):
    params = SamplingParams(
        ignore_eos=True,
        max_tokens=asked["output"],
        prompt_logprobs=1 if asked["prompt_logprobs"] else None,
    )
    params.update_from_generation_config({}, 2)
    same = min(shared, asked["prompt"])
    own = FIRST_OWN_TOKEN + 2 * place
    return Request(
        request_id=f"{place:06}",
        prompt_token_ids=[SHARED_TOKEN] * same + [own] * (asked["prompt"] - same),
        sampling_params=params,
        pooling_params=None,
        arrival_time=float(place),
        priority=asked["priority"],
        block_hasher=hasher,
    )


def _seen(out):
    tokens = {int(name): count for name, count in out.num_scheduled_tokens.items()}
    return {"tokens": tokens, "preempted": sorted(map(int, out.preempted_req_ids or ()))}


def _sampling(scheduler, out):
    """The requests that this step gives a token: no part of them is left for later."""
    return {n for n in out.num_scheduled_tokens if not scheduler.requests[n].is_prefill_chunk}


def _finish(scheduler, out, sampling):
    names = list(out.num_scheduled_tokens)
    result = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: place for place, name in enumerate(names)},
        sampled_token_ids=[
            [FIRST_OWN_TOKEN + 2 * int(name) + 1] if name in sampling else [] for name in names
        ],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    scheduler.update_from_output(out, result)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        answers = [machine.run(workload) for workload in json.load(sys.stdin)]
    print(MARK + json.dumps({"vllm": vllm.__version__, "answers": answers}))
