"""Run by a Python that has vLLM: what its scheduler does with each workload, by step.

Reads [{"engine": {...}, "requests": [...], "stretches": [...]}, ...] from stdin as
JSON. No model is loaded: a made-up result ends each step. A request comes before the
step `comes_at`; its prompt begins with its `stretch` and those before it, or it brings
its `prompt_ids`. Its `turns` follow when the answer is there and so many steps have
passed as the user thinks. With a `concurrency` it also waits until fewer than so many
are under way: a closed loop. With `async_scheduling` a step is scheduled before the
result of the one before is there.
"""

import dataclasses
import inspect
import json
import math
import os
import sys
import tempfile
from collections import deque
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import vllm
from vllm.config import (
    CacheConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.v1.core import kv_cache_utils, single_type_kv_cache_manager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

try:
    from vllm.utils.hashing import sha256_cbor
except ImportError:  # 0.11.0 and before
    from vllm.utils import sha256_cbor

MARK = "scheduler-probe:"
MOST_STEPS = 20_000
FIRST_SHARED_TOKEN = 3
FIRST_OWN_TOKEN = (
    1_000  # request i: its prompt repeats 1000 + 2 i, its output 1001 + 2 i
)
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


AS_SAMPLED = np.asarray if "ndarray" in str(ModelRunnerOutput.__annotations__) else list
UNKNOWN = {"long_prefill_token_threshold_adaptive", "max_num_active_seqs"}
UNKNOWN -= {field.name for field in dataclasses.fields(SchedulerConfig)}


class Machine:
    """One vLLM configuration for all workloads; each has its own scheduler."""

    def __init__(self, folder):
        (folder / "config.json").write_text(json.dumps(SMALL))
        self.model = ModelConfig(
            model=str(folder), dtype="float16", skip_tokenizer_init=True
        )
        kv_cache_utils.init_none_hash(sha256_cbor)

    def scheduler(self, engine):
        engine = {name: value for name, value in engine.items() if name not in UNKNOWN}
        blocks, size = engine.pop("num_blocks"), engine.pop("block_size")
        caching = engine.pop("enable_prefix_caching")
        full, windows, window = engine.pop(
            "kv_groups", (1, 0, 0)
        )  # with a window, and its size
        self.model.max_model_len = engine["max_model_len"]
        cache = CacheConfig(block_size=size, enable_prefix_caching=caching)
        cache.num_gpu_blocks = blocks
        config = VllmConfig(
            model_config=self.model,
            cache_config=cache,
            parallel_config=ParallelConfig(),
            scheduler_config=SchedulerConfig(is_encoder_decoder=False, **engine),
        )
        config.scheduler_config.async_scheduling = engine[
            "async_scheduling"
        ]  # CPUs switch it off
        register = getattr(
            single_type_kv_cache_manager, "register_all_kvcache_specs", None
        )
        if register is not None:
            register(config)
        heads = {"num_kv_heads": 1, "head_size": 32, "dtype": torch.float16}
        heads |= _known(FullAttentionSpec, use_mla=False)
        specs = [FullAttentionSpec(block_size=size, **heads) for _ in range(full)]
        sliding = {n: value for n, value in heads.items() if n != "use_mla"}
        sliding |= _known(SlidingWindowSpec, use_mla=False, sliding_window=window)
        specs += [SlidingWindowSpec(block_size=size, **sliding) for _ in range(windows)]
        groups = [KVCacheGroupSpec([f"layer{n}"], spec) for n, spec in enumerate(specs)]
        kind = AsyncScheduler if engine["async_scheduling"] else Scheduler
        return kind(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups
            ),
            structured_output_manager=StructuredOutputManager(config),
            **_known(Scheduler, block_size=size),
            log_stats=True,
        )

    def run(self, workload):
        engine = workload["engine"]
        scheduler = self.scheduler(engine)
        hasher = kv_cache_utils.get_request_block_hasher(
            engine["block_size"], sha256_cbor
        )
        coming = deque(_first_turns(workload))
        thinking = []  # turns that follow, and the step before which each comes
        steps, flying, turn, sessions = [], deque(), 0, {}
        most = workload.get("concurrency") or len(coming)
        while turn < MOST_STEPS:
            if not (coming or thinking or scheduler.has_unfinished_requests()):
                break
            # Turns that follow are sent first, as it is with the simulator's clock.
            while thinking or coming:
                thinking.sort(key=lambda one: (one[0], one[1].place))
                is_free = coming and len(scheduler.requests) < most
                first_s = coming[0].asked["comes_at"] if is_free else math.inf
                think_s = thinking[0][0] if thinking else math.inf
                if min(first_s, think_s) > turn:
                    break
                if think_s <= first_s:
                    session = thinking.pop(0)[1]
                else:
                    session = coming.popleft()
                sessions[f"{session.place:06}"] = session
                scheduler.add_request(_request(session, hasher))
            before = Before(scheduler)
            out = scheduler.schedule()
            if out.total_num_scheduled_tokens:
                steps.append(_seen(out, before))
            flying.append(
                (out, {n for n in out.num_scheduled_tokens if before.samples(n)})
            )
            while len(flying) > (1 if engine["async_scheduling"] else 0):
                _finish(scheduler, *flying.popleft())
            for name in [name for name in sessions if name not in scheduler.requests]:
                session = sessions.pop(name)
                if session.later:
                    comes_at = turn + session.later[0]["think"]
                    thinking.append((comes_at, session.next_turn()))
            turn += 1
        return steps


class Session:
    """One turn of a session: the ids of its prompt, and the turns that follow."""

    def __init__(self, place, asked, prompt, output, later):
        self.place, self.asked, self.later = place, asked, later
        self.prompt, self.output = prompt, output

    def next_turn(self):
        turn, *later = self.later
        answer = [FIRST_OWN_TOKEN + 2 * self.place + 1] * self.output
        place = self.place + 1
        new = [FIRST_OWN_TOKEN + 2 * place] * turn["new"]
        prompt = self.prompt + answer + new
        return Session(place, self.asked, prompt, turn["output"], later)


def _first_turns(workload):
    place = 0
    for asked in workload["requests"]:
        prompt = asked.get("prompt_ids") or _prompt(place, asked, workload["stretches"])
        later = asked.get("turns", [])
        yield Session(place, asked, prompt, asked["output"], later)
        place += 1 + len(later)


def _known(kind, **values):
    """Those that it takes: not every version does."""
    return {
        n: value
        for n, value in values.items()
        if n in inspect.signature(kind).parameters
    }


def _request(session, hasher):
    params = SamplingParams(
        ignore_eos=True,
        max_tokens=session.output,
        prompt_logprobs=1 if session.asked["prompt_logprobs"] else None,
    )
    params.update_from_generation_config({}, 2)
    return Request(
        **_known(Request, eos_token_id=2),
        request_id=f"{session.place:06}",
        prompt_token_ids=session.prompt,
        sampling_params=params,
        pooling_params=None,
        arrival_time=float(session.place),
        block_hasher=hasher,
    )


def _prompt(place, asked, stretches):
    shared, stretch = [], asked["stretch"]
    while stretch >= 0:
        shared = [FIRST_SHARED_TOKEN + stretch] * stretches[stretch]["tokens"] + shared
        stretch = stretches[stretch]["parent"]
    own = FIRST_OWN_TOKEN + 2 * place
    return (shared + [own] * asked["prompt"])[: asked["prompt"]]


class Before:
    """The requests before a step: what it did to them is not told by every version."""

    def __init__(self, scheduler):
        self._requests = dict(scheduler.requests)
        self._promised = {n: self._promises(n) for n in self._requests}
        self._running = [request.request_id for request in scheduler.running]

    def _promises(self, name):
        """Tokens of steps that are scheduled and not computed."""
        return getattr(self._requests[name], "num_output_placeholders", 0)

    def samples(self, name):
        """Does the step give it a token, as no part of it is left for later?"""
        request = self._requests[name]
        if hasattr(request, "is_prefill_chunk"):
            return not request.is_prefill_chunk
        promised = self._promises(name) > self._promised[name]
        return promised or request.num_computed_tokens >= request.num_tokens

    def preempted(self):
        return [
            n for n in self._running if self._requests[n].status.name == "PREEMPTED"
        ]


def _seen(out, before):
    tokens = {int(name): count for name, count in out.num_scheduled_tokens.items()}
    told = (
        out.preempted_req_ids
        if hasattr(out, "preempted_req_ids")
        else before.preempted()
    )
    return {"tokens": tokens, "preempted": sorted(map(int, told or ()))}


def _finish(scheduler, out, sampling):
    names = list(out.num_scheduled_tokens)
    result = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: place for place, name in enumerate(names)},
        sampled_token_ids=[
            AS_SAMPLED(
                [FIRST_OWN_TOKEN + 2 * int(name) + 1] if name in sampling else []
            )
            for name in names
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
    facts = {"vllm": vllm.__version__, "unknown": sorted(UNKNOWN), "answers": answers}
    print(MARK + json.dumps(facts))
