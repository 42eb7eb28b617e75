"""What is to be decided: a request, where it runs, its prompts; and what vLLM needs to start.

`needed` are settings without which vLLM would not start or not survive: a context that the KV cache
holds, fewer requests at once, smaller steps, less memory so that the logits of prompt_logprobs have
room.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from chunkscope.errors import InputError, UsageError
from chunkscope.hardware.memory import Memory
from chunkscope.lengths.histogram import LengthHistogram
from chunkscope.lengths.profile import DatasetProfile, Profile, together
from chunkscope.planning.plan import Advice
from chunkscope.planning.request import PlanRequest, chosen_datasets
from chunkscope.planning.simulator import HOSTS, VARIATIONS, Simulator, draw
from chunkscope.simulation.workload import DatasetOutput, served_prompts
from chunkscope.vllm.engine import Engine
from chunkscope.vllm.enums import Entry, Mode
from chunkscope.vllm.settings import OWN, Settings

LADDER = (512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
FEWEST_SEQS = 8
LEAST = Settings(
    max_num_batched_tokens=LADDER[0],
    max_num_seqs=FEWEST_SEQS,
    long_prefill_token_threshold=1,
)
ROUND, SURE = 256, 0.95  # of a predicted KV cache, the rest is room for error
SMALLEST_CHUNK = 256  # of a prompt whose logits are wanted
CHUNKS = tuple(SMALLEST_CHUNK << n for n in reversed(range(16)))
USUAL_BUDGET = 2_048
LOWEST_PERCENT = 50  # of gpu_memory_utilization
LARGER = "take a larger GPU, more of them with --tp, or a quantized checkpoint"

FEWEST_SEARCHED, MOST_SEARCHED = (
    256,
    4_096,
)  # requests of the part that settings are tried on


@dataclass(frozen=True, kw_only=True)
class Problem:
    """`tick` is called for each simulated run."""

    request: PlanRequest
    deployment: Engine
    datasets: tuple[DatasetProfile, ...]
    needed: Settings = OWN
    tick: Callable[[], None] = lambda: None
    _simulators: dict[object, Simulator] = field(
        default_factory=dict, init=False, compare=False
    )

    @classmethod
    def of(
        cls, profile: Profile, request: PlanRequest, deployment: Engine
    ) -> "Problem":
        """UsageError where what is asked cannot be, InputError where no prompt is served."""
        datasets = chosen_datasets(profile, request.dataset)
        problem = cls(request=request, deployment=deployment, datasets=datasets)
        shape, parallel = deployment.shape, request.settings.parallel
        parallel.check(shape)
        if parallel.data > 1 and deployment.entry is Entry.LLM:
            hint = "leave out --dp, or choose --entry serve and a form of it: --emit vllm-args"
            raise UsageError(
                "--dp is for `vllm serve`: vLLM's LLM starts one replica", hint=hint
            )
        limit, context = shape.limit if shape else None, request.settings.max_model_len
        if limit and context and context > limit:
            over = f"max_model_len {context:,} is over the model's limit of {limit:,}"
            raise UsageError(over, hint="leave it out: vLLM uses the model's limit")
        if problem.refused == problem.lengths.count:
            room = f"{problem.context:,} tokens with {problem.output_tokens:,} for the output"
            ways = (
                ["lower --max-output"]
                if (problem.lengths.min or 0) < problem.context
                else []
            )
            ways += ["raise --max-model-len"] if context and context != limit else []
            hint = ", or ".join([*ways, "choose a model with a longer context"])
            raise InputError(f"no prompt fits the context of {room}", hint=hint)
        return problem

    @cached_property
    def outputs(self) -> tuple[DatasetOutput, ...]:
        return self.request.outputs(self.datasets)

    @property
    def pairs(self) -> "zip[tuple[DatasetProfile, DatasetOutput]]":
        return zip(self.datasets, self.outputs, strict=True)

    @property
    def output_tokens(self) -> int:
        """The most of any dataset."""
        return max(output.tokens for output in self.outputs)

    @property
    def refused(self) -> int:
        """Prompts that leave no room for the output of their dataset."""
        return self.lengths.count - served_prompts(
            self.datasets, self.outputs, self.context
        )

    @cached_property
    def lengths(self) -> LengthHistogram:
        return together(self.datasets)

    @property
    def base(self) -> Settings:
        """What every setting has in common."""
        return self.needed.over(self.request.settings)

    @cached_property
    def default(self) -> Settings:
        """vLLM's own choice, with what is asked for and what it needs to start."""
        return self.deployment.effective(self.base)

    @property
    def need(self) -> int:
        """The longest request: its prompt and the output, as far as the model takes them."""
        limit = self.deployment.shape.limit if self.deployment.shape else None
        need = max((d.lengths.max or 0) + output.tokens for d, output in self.pairs)
        return min(need, limit) if limit else need

    @property
    def context(self) -> int:
        """The longest that is taken; where no model is known, what is needed."""
        return self.default.max_model_len or round_up(self.need)

    @cached_property
    def longest(self) -> int:
        """The longest prompt that is served: longer ones are refused."""
        rooms = [
            (d.lengths.counts, o.longest_prompt(self.context)) for d, o in self.pairs
        ]
        return max(
            (n for counts, room in rooms for n in counts if 0 < n <= room), default=1
        )

    @property
    def can_simulate(self) -> bool:
        """The model is known, and the speed of its GPU."""
        gpu = self.deployment.gpu
        return (
            self.deployment.shape is not None
            and gpu is not None
            and gpu.speed is not None
        )

    def memory(self, settings: Settings = OWN) -> Memory | None:
        return self.deployment.memory(settings.over(self.base), longest=self.longest)

    def fits(self, settings: Settings = OWN) -> bool:
        """Would vLLM start, and survive its prompt_logprobs? Unknown counts as yes."""
        memory = self.memory(settings)
        return memory is None or memory.holds(self.context)

    def fitted(self) -> "Problem":
        """With what vLLM needs to start here; InputError, or UsageError where chunks must stay."""
        fitted = _with_budget(_with_safe_logprobs(_with_room(self)))
        return _unchunked(fitted) if self.request.mode is Mode.OFF else fitted

    def advised(self, advice: Advice) -> Settings:
        """What the engine ends up with by this advice."""
        wanted = advice.settings.over(advice.needed).over(self.request.settings)
        return self.deployment.effective(wanted)

    # -- its simulators --------------------------------------------------------------------------

    def simulator(self, count: int | None = None, variation: str = "") -> Simulator:
        """On so many of the requests (None: all), as they are or varied."""
        key = count, variation
        if key not in self._simulators:
            there, how = self.deployment, VARIATIONS.get(variation, {})
            workload = draw(
                self.request, there, self.datasets, self.context, count=count, **how
            )
            self._simulators[key] = Simulator(
                request=self.request,
                deployment=there,
                workload=workload,
                host_times=HOSTS.get(variation, 1.0),
                tick=self.tick,
            )
        return self._simulators[key]

    @cached_property
    def part(self) -> Simulator:
        """A simulator with as few requests as comparing settings takes: more than run at once, with
        vLLM's default or, without limits, with a full KV cache, so that some wait. At a rate that
        the default serves, a few hundred show what later ones would see."""
        every, data, memory = self.simulator(), self.base.parallel.data, self.memory()
        run = every.attempt(self.default)
        running = run.most_running if run else self.default.step_requests * data
        mean = round(self.lengths.mean or 0) + self.output_tokens
        held = (
            self.deployment.requests_of(mean, memory, self.base) * data if memory else 0
        )
        held = 0 if self.request.slo else held
        most = round((1.5 if self.request.is_open else 2) * running)
        count = max(FEWEST_SEARCHED, most, min(running + held, MOST_SEARCHED))
        if run is not None and run.backlog is not None and not run.queue_grows:
            count = FEWEST_SEARCHED
        return (
            every
            if 2 * count >= len(every.workload.requests)
            else self.simulator(count)
        )

    @cached_property
    def hosts(self) -> dict[str, Simulator]:
        """By code: simulators with the requests of the part, on faster and slower hosts."""
        count = len(self.part.workload.requests)
        return {code: self.simulator(count, code) for code in HOSTS}

    @cached_property
    def varied(self) -> dict[str, Simulator]:
        """By code of the variation: simulators with as many requests. Variations that change no
        request are left out, such as of output lengths that are known."""
        part = self.part.workload.requests
        others = {code: self.simulator(len(part), code) for code in VARIATIONS}
        return {
            code: one for code, one in others.items() if one.workload.requests != part
        }


def round_up(tokens: int) -> int:
    """A length that leaves a little room and reads well: 3,072 for 3,001."""
    step = 256 if tokens <= 8_192 else 1_024 if tokens <= 65_536 else 4_096
    return -(-tokens // step) * step


# -- a context that fits -------------------------------------------------------------------------


def _with_room(p: Problem) -> Problem:
    """With a context that the KV cache holds: shorter first, as that costs nothing; then with fewer
    requests at once."""
    start = p.default.max_num_seqs
    if p.memory() is None or start is None or p.default.max_model_len is None:
        return p
    for shift in range(start.bit_length()):
        seqs = max(FEWEST_SEQS, start >> shift)
        memory = p.memory(replace(LEAST, max_num_seqs=seqs))
        if memory is None or memory.kv_cache_tokens >= p.need:
            break
    else:
        raise _does_not_fit(p, p.memory(LEAST))
    fitted = replace(p, needed=OWN if seqs == start else Settings(max_num_seqs=seqs))
    # Again and again: of a shorter request, layers with a window keep a larger part.
    while p.request.settings.max_model_len is None and p.need < fitted.context:
        if (
            memory := fitted.memory()
        ) is None or memory.kv_cache_tokens >= fitted.context:
            break
        held = int(SURE * memory.kv_cache_tokens) // ROUND * ROUND
        fitted = replace(
            fitted, needed=replace(fitted.needed, max_model_len=max(held, p.need))
        )
    return fitted


def _does_not_fit(p: Problem, memory: Memory | None) -> InputError:
    shape, gpu, parallel = p.deployment.shape, p.deployment.gpu, p.base.parallel
    if shape is None or gpu is None or memory is None:
        raise AssertionError("memory is known only with a model and a GPU")
    why = (
        f"the weights need {memory.line('weights').gib:,.1f} GiB per GPU of "
        f"{memory.requested_gib:,.1f}, and {max(0.0, memory.kv_cache_gib):,.1f} GiB of KV cache "
        f"are too small for a request of {p.need:,} tokens"
    )
    hint = "take a larger GPU, a quantized checkpoint or a smaller model; or shorten the prompts"
    if tp := p.deployment.fitting_tp(LEAST.over(p.base), p.need):
        hint = f"--tp {tp} would fit; or take a larger GPU, or a quantized checkpoint"
    many = f"{parallel.gpus} x " if parallel.gpus > 1 else ""
    return InputError(f"{shape.name} does not fit {many}{gpu.title}: {why}", hint=hint)


def _with_budget(p: Problem) -> Problem:
    """vLLM's own, unless the memory model says that it does not fit."""
    for budget in (
        None,
        *(rung for rung in reversed(LADDER) if rung < p.default.step_tokens),
    ):
        smaller = replace(p, needed=replace(p.needed, max_num_batched_tokens=budget))
        if smaller.fits():
            return smaller
    least, context = Settings(max_num_batched_tokens=LADDER[0]), p.context
    while context and (memory := p.memory(replace(least, max_model_len=context))):
        if memory.kv_cache_tokens >= context:
            break
        context = memory.kv_cache_tokens // ROUND * ROUND
    hint = (
        f"lower --max-model-len to {context}, or {LARGER}"
        if 0 < context < p.context
        else LARGER
    )
    raise InputError(f"no setting fits a request of {p.context:,} tokens", hint=hint)


def _unchunked(p: Problem) -> Problem:
    """A step has to hold the longest request whole, so the context is no longer than it must be."""
    limit, release, shape = (
        p.default.max_model_len,
        p.deployment.release,
        p.deployment.shape,
    )
    context = min(round_up(p.need), limit) if limit else round_up(p.need)
    p = replace(p, needed=replace(p.needed, max_model_len=context))
    whole = Settings(max_num_batched_tokens=context, long_prefill_token_threshold=0)
    memory, why = p.memory(whole), ""
    if shape and shape.hybrid and release.rules.hybrid_refuses_off:
        why = f"vLLM {release.text} requires chunked prefill for models with mamba-like layers"
    elif memory is not None and not memory.holds(context):
        why = (
            f"a step of {context:,} tokens leaves no room for the KV cache (predicted)"
        )
    if why:
        hint = "leave --mode out, or shorten the data"
        raise UsageError(f"--mode off is not possible: {why}", hint=hint)
    return p


def _with_safe_logprobs(p: Problem) -> Problem:
    """prompt_logprobs needs memory that vLLM neither profiles nor sets aside."""
    if not p.deployment.logprobs or p.memory() is None or p.fits():
        return p
    own = p.default.gpu_memory_utilization or 0.0
    for share in (
        percent / 100 for percent in range(round(own * 100), LOWEST_PERCENT - 1, -1)
    ):
        for chunk in (p.longest, *(size for size in CHUNKS if size < p.longest)):
            # At a small budget and at a large one: a larger step sets more memory aside to reuse.
            budgets = (
                min(USUAL_BUDGET, max(SMALLEST_CHUNK, chunk)),
                max(USUAL_BUDGET, chunk),
            )
            capped = Settings(
                long_prefill_token_threshold=chunk, gpu_memory_utilization=share
            )
            bills = [
                p.memory(replace(capped, max_num_batched_tokens=budget))
                for budget in budgets
            ]
            if all(memory is None or memory.survives_logprobs for memory in bills):
                needed = replace(
                    p.needed, gpu_memory_utilization=share if share < own else None
                )
                if chunk < min(p.default.step_tokens, p.longest):
                    needed = replace(needed, long_prefill_token_threshold=chunk)
                return replace(p, needed=needed)
    raise InputError(
        "prompt_logprobs would need more memory than this GPU can spare", hint=LARGER
    )
