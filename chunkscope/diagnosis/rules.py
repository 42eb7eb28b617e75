"""What limits an engine, as rules: each with its versions and where it is known from.

A rule sees one engine and says nothing without evidence. Sources are sections of the project's
notes on vLLM (LOGS, VLLM) unless they say otherwise.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chunkscope.artefacts.numbers import plural, share
from chunkscope.diagnosis.diagnosis import Symptom
from chunkscope.diagnosis.phases import FULL, Bound, LoadPhase
from chunkscope.vllm.flags import NEWEST, OLDEST, Version, spelled
from chunkscope.vllm.log.reader import EngineLife
from chunkscope.vllm.log.trouble import Trouble

_CONTEXT, _BUDGET = spelled("max_model_len"), spelled("max_num_batched_tokens")
_SEQS, _SHARE = spelled("max_num_seqs"), spelled("gpu_memory_utilization")
_THRESHOLD, _EAGER = spelled("long_prefill_token_threshold"), spelled("enforce_eager")
SMALLEST_DEFAULT = 2_048  # the least token budget that any version takes by itself
LITTLE = 0.05  # of the busy time: not worth a word
_GRAPHS_OFF_GIB = 0.5
_STARVED = 3.0  # times as long: a decode step with a prompt in it
_STORM = 0.05  # preemptions for each request that ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """All that a rule may look at."""

    life: EngineLife
    phases: tuple[LoadPhase, ...]
    max_num_seqs: int | None = None
    default_budget: int | None = None  # that this version takes on this GPU
    shareable: float | None = None  # of the prompts' tokens, by the profile
    longest_prompt: int | None = None  # by the profile
    preemptions: int | None = None
    finished: int | None = None

    @property
    def busy_s(self) -> float:
        return sum(phase.seconds for phase in self.phases if phase.bound is not Bound.IDLE)

    def of(self, bound: Bound) -> list[LoadPhase]:
        return [phase for phase in self.phases if phase.bound is bound]

    def share_of(self, bound: Bound) -> float:
        busy = self.busy_s
        return sum(phase.seconds for phase in self.of(bound)) / busy if busy else 0.0

    def line(self, *facts: str) -> tuple[int, ...]:
        return tuple(self.life.said_at[name] for name in facts if name in self.life.said_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    name: str
    source: str
    check: Callable[[Patient], Symptom | None]
    since: Version = OLDEST
    until: Version = NEWEST  # the last that it was read in; later ones are taken to be alike


def _symptom(
    rule: str, title: str, evidence: list[str], lines: tuple[int, ...], change: str, effect: float
) -> Symptom:
    return Symptom(
        rule=rule,
        title=title,
        evidence=tuple(evidence),
        lines=tuple(dict.fromkeys(lines)),
        change=change,
        effect=min(1.0, effect),
    )


# -- what ended an engine ------------------------------------------------------------------------

_CHANGES = {
    Trouble.NO_FREE_MEMORY: f"end what else uses the GPU, or lower {_SHARE} to what is free",
    Trouble.NO_CACHE_BLOCKS: f"raise {_SHARE} or lower {_BUDGET}; "
    "else the model needs more GPUs or quantised weights",
    Trouble.CONTEXT_TOO_LONG: f"set {_CONTEXT} to what fits if no prompt is longer "
    f"(`chunkscope analyze` says), else raise {_SHARE} or use more GPUs",
    Trouble.OOM_SAMPLER: f"lower {_SEQS} or {_SHARE}",
    Trouble.OOM_LOGPROBS: f"lower {_BUDGET}: the log-probabilities of a chunk's "
    "tokens are memory that vLLM does not set aside",
    Trouble.OOM_LOADING: "the weights do not fit into what is free: more GPUs "
    f"({spelled('tensor_parallel_size')}), quantised weights, or end what else uses the GPU",
    Trouble.OOM_START: f"lower {_BUDGET} or {_SHARE}",
    Trouble.OOM_RUNNING: f"lower {_SHARE}: a step took more than vLLM had set aside",
    Trouble.DIED: "read the log around this line: the first error of its traceback is the cause",
}
_UNITS = {"longest": "tokens", "requests": "requests"}
_WORDS = {
    "asked_gib": "asked for",
    "left_gib": "left",
    "needed_gib": "needed for one request",
    "available_gib": "available to the KV cache",
    "longest": "longest context that fits",
    "free_gib": "free at the start",
    "requests": "dummy requests",
}


def _ended(patient: Patient) -> Symptom | None:
    trouble = patient.life.trouble
    if trouble is None:
        return None
    evidence = [
        f"{_WORDS[name]}: "
        + (f"{value:,g} {_UNITS[name]}" if name in _UNITS else f"{value:,.2f} GiB")
        for name, value in trouble.figures.items()
    ]
    if trouble.error:
        evidence.append(f"it ended with {trouble.error}")
    title = trouble.kind.value
    return _symptom("ended", title, evidence, (trouble.line,), _CHANGES[trouble.kind], 1.0)


# -- what was lost -------------------------------------------------------------------------------


def _refused(patient: Patient) -> Symptom | None:
    refused = patient.life.refused
    if refused is None or not refused.count:
        return None
    limit = f"the limit is {refused.limit:,}"
    longest = f"the longest has {refused.longest:,} tokens, " if refused.longest else ""
    return _symptom(
        "refused-prompts",
        "prompts were refused for their length: their samples are missing from the scores",
        [f"{plural(refused.count, 'line says', 'lines say')} so", longest + limit],
        (refused.first_line,),
        f"raise {_CONTEXT} above {max(refused.longest, refused.limit):,} tokens and the answer, "
        "if the model allows it; else cut the prompts where you choose to",
        0.95,
    )


def _bad_requests(patient: Patient) -> Symptom | None:
    """Since 0.28 at least, a server logs the answer and not why."""
    refused, longest = patient.life.refused, patient.longest_prompt
    if refused is None or refused.unexplained <= refused.count:
        return None
    evidence = [plural(refused.unexplained, "answer 400", "answers 400")]
    limit = patient.life.facts.max_model_len
    if longest is not None and limit is not None and longest >= limit:
        evidence.append(f"the longest prompt has {longest:,} tokens, the limit is {limit:,}")
    return _symptom(
        "bad-requests",
        "the server refused requests (HTTP 400) and does not log why: their samples are missing",
        evidence,
        (refused.first_line,),
        "look at the client's errors: most often a prompt and its answer are longer than "
        f"{_CONTEXT}; `chunkscope analyze` says how long prompts are",
        0.95,
    )


def _auto_fit(patient: Patient) -> Symptom | None:
    facts, longest = patient.life.facts, patient.longest_prompt
    if facts.fitted_to is None or facts.fitted_from is None:
        return None
    evidence = [f"from {facts.fitted_from:,} to {facts.fitted_to:,} tokens"]
    if longest is not None:
        if longest < facts.fitted_to:
            return None
        evidence.append(f"the longest prompt has {longest:,} tokens")
    return _symptom(
        "auto-fit",
        "vLLM reduced max_model_len to what the KV cache holds: longer prompts will be refused",
        evidence,
        patient.line("fitted_to"),
        f"set {_CONTEXT} to the longest prompt and its answer, and make room for it: a higher "
        f"{_SHARE}, an fp8 KV cache or more GPUs",
        0.9 if longest is not None else 0.3,
    )


# -- what the time went into ---------------------------------------------------------------------


def _in_phase(patient: Patient, bound: Bound) -> tuple[float, list[LoadPhase]] | None:
    found, part = patient.of(bound), patient.share_of(bound)
    return (part, found) if found and part >= LITTLE else None


def _lines_of(found: list[LoadPhase]) -> tuple[int, ...]:
    longest = sorted(found, key=lambda phase: -phase.seconds)[:3]
    return tuple(sorted(line for p in longest for line in {p.first_line, p.last_line}))


def _time(patient: Patient, found: list[LoadPhase]) -> str:
    """Of several engines, as long as it was for each on average."""
    engines = len({phase.engine for phase in patient.phases})
    seconds, part = sum(p.seconds for p in found), patient.share_of(found[0].bound)
    return f"{seconds / engines:,.0f} s, {share(part)} of the busy time"


def _kv_bound(patient: Patient) -> Symptom | None:
    if (in_phase := _in_phase(patient, Bound.KV)) is None:
        return None
    part, found = in_phase
    return _symptom(
        "kv-bound",
        "the KV cache was full while requests waited",
        [
            _time(patient, found),
            f"KV cache up to {share(max(p.kv_use for p in found))}, "
            f"up to {max(p.waiting for p in found):,} waiting",
        ],
        _lines_of(found),
        f"more room for KV: {_SHARE}, an fp8 KV cache or more GPUs; a smaller "
        f"{_CONTEXT} does not help",
        part,
    )


def _seqs_bound(patient: Patient) -> Symptom | None:
    if (in_phase := _in_phase(patient, Bound.SEQS)) is None:
        return None
    part, found = in_phase
    running = max(p.running for p in found)
    return _symptom(
        "max-num-seqs",
        "as many requests ran as max_num_seqs allows, others waited, and the KV cache had room",
        [
            _time(patient, found),
            f"{running:,} running, up to {max(p.waiting for p in found):,} waiting, KV cache up to "
            f"{share(max(p.kv_use for p in found))}",
        ],
        _lines_of(found),
        f"raise {_SEQS} above {running:,}; `chunkscope simulate` says what it brings",
        part,
    )


def _queue_bound(patient: Patient) -> Symptom | None:
    if (in_phase := _in_phase(patient, Bound.PREFILL)) is None:
        return None
    part, found = in_phase
    rate = max(
        w.prompt_tokens_per_s
        for w in patient.life.windows
        if any(p.engine == w.engine and p.first_line <= w.line <= p.last_line for p in found)
    )
    evidence = [_time(patient, found), f"{rate:,.0f} prompt tokens/s at best"]
    if waiting := max(p.waiting for p in found):
        evidence.append(f"up to {waiting:,} waiting, KV cache up to {share(found[0].kv_use)}")
    if any(p.burst for p in found):
        came = max(p.running for p in found if p.burst)
        evidence.append(f"{came:,} requests came between two lines of the log")
    return _symptom(
        "queue-bound",
        "requests waited for their prefill: prompts came faster than the GPU reads them",
        evidence,
        _lines_of(found),
        "nothing to change for throughput, the GPU is at work; where the first token counts, send "
        "fewer at once, share prefixes, or add a GPU",
        part * 0.5,  # it is work being done
    )


def _client_bound(patient: Patient) -> Symptom | None:
    if (in_phase := _in_phase(patient, Bound.CLIENT)) is None:
        return None
    part, found = in_phase
    seconds = sum(p.seconds for p in found)
    use = sum(p.kv_use * p.seconds for p in found) / seconds
    if use >= FULL / 2:
        return None  # a cache half full leaves little to gain from more requests
    deferred = max(p.waiting for p in found)
    waited = f"{deferred:,} waiting for something else than room" if deferred else "none waiting"
    return _symptom(
        "client-bound",
        "nothing waited and the KV cache was nearly empty: the client sent too little",
        [
            _time(patient, found),
            f"{max(p.running for p in found):,} running at most, {waited}, KV cache "
            f"{share(use)} on average",
        ],
        _lines_of(found),
        "raise the client's concurrency (lm-eval: num_concurrent; Inspect: --max-connections); for "
        "a server with a fixed load it is headroom",
        part * (1 - use),
    )


def _starved(patient: Patient) -> Symptom | None:
    steps = patient.life.steps
    if steps is None or steps.slowdown is None or steps.slowdown < _STARVED:
        return None
    part = steps.mixed_ms / (steps.mixed_ms + steps.decoding_ms)
    return _symptom(
        "prefill-bound",
        "long prompts make answers wait: steps that read a prompt are much longer",
        [
            f"{steps.mixed_ms / steps.mixed:,.1f} ms with a prompt, "
            f"{steps.decoding_ms / steps.decoding:,.1f} ms without ({steps.slowdown:.1f} times)",
            f"the longest {steps.longest_ms:,.0f} ms",
        ],
        (steps.longest_line,),
        f"where token gaps count, lower {_BUDGET} or set "
        f"{_THRESHOLD}; `chunkscope recommend --slo itl_p99=...` finds the value",
        part * 0.5,
    )


def _preempted(patient: Patient) -> Symptom | None:
    count, requests = patient.preemptions, patient.finished
    if not count or (requests and count / requests < _STORM):
        return None
    return _symptom(
        "preemptions",
        "requests were preempted and read their prompts again",
        [f"{count:,} preemptions" + (f", {requests:,} requests" if requests else "")],
        patient.line("preemptions"),
        f"lower {_SEQS} so that fewer share the KV cache, or give it more room",
        count / (requests or count),
    )


# -- what was set --------------------------------------------------------------------------------


def _hit_rate(patient: Patient) -> Symptom | None:
    rates = [w for w in patient.life.windows if w.hit_rate is not None and not w.idle]
    if not rates or not patient.shareable or patient.shareable < LITTLE:
        return None
    last, off = rates[-1], patient.life.facts.enable_prefix_caching is False
    if (last.hit_rate or 0.0) >= patient.shareable / 2:
        return None
    return _symptom(
        "hit-rate",
        "the prefix cache found far less than the prompts share",
        [
            f"{share(last.hit_rate)} found, {share(patient.shareable)} of the tokens are shared",
            *(["prefix caching is off"] if off else []),
        ],
        (*patient.line("enable_prefix_caching"), last.line),
        "switch prefix caching on"
        if off
        else "send prompts that begin alike one after the other (`chunkscope prefixes` shows the "
        "order), or make room in the KV cache; with prompt_logprobs vLLM does not look",
        patient.shareable - (last.hit_rate or 0.0),
    )


def _budget(patient: Patient) -> Symptom | None:
    asked = patient.life.arguments.get("max_num_batched_tokens")
    least = patient.default_budget or SMALLEST_DEFAULT
    if not isinstance(asked, int) or asked >= least or not patient.of(Bound.PREFILL):
        return None
    return _symptom(
        "small-budget",
        "the token budget is under vLLM's own, and prompts waited",
        [f"max_num_batched_tokens is {asked:,}, by itself vLLM takes {least:,}"],
        patient.line("arguments", "max_num_batched_tokens"),
        f"leave {_BUDGET} out, unless token gaps are why it was set",
        patient.share_of(Bound.PREFILL),
    )


def _eager(patient: Patient) -> Symptom | None:
    if not patient.life.facts.enforce_eager:
        return None
    return _symptom(
        "eager",
        "eager mode is on: no CUDA graphs and no compilation, every small step is slower",
        ["enforce_eager=True"],
        patient.line("enforce_eager"),
        f"leave {_EAGER} out, unless the start has to be short",
        0.25,
    )


def _graphs(patient: Patient) -> Symptom | None:
    facts = patient.life.facts
    pool, estimate = facts.graph_pool_gib, facts.graph_estimate_gib
    if pool is None or estimate is None or abs(pool - estimate) < _GRAPHS_OFF_GIB:
        return None
    more = pool > estimate
    return _symptom(
        "graph-memory",
        "CUDA graphs took " + ("more" if more else "less") + " than vLLM had estimated",
        [f"{pool:.2f} GiB, estimated {estimate:.2f} GiB"],
        patient.line("graph_pool_gib"),
        f"the GPU has that much less room than {_SHARE} says: lower it if it runs out of memory"
        if more
        else f"{_SHARE} may be raised by the difference, if KV is short",
        0.1,
    )


RULES = (
    Rule(name="ended", source="LOGS: errors", check=_ended),
    Rule(name="refused-prompts", source="LOGS: refused prompts", check=_refused),
    Rule(name="bad-requests", source="a real log of 0.28", check=_bad_requests),
    Rule(name="auto-fit", source="LOGS: auto-fit", check=_auto_fit, since=(0, 14, 0)),
    Rule(name="kv-bound", source="LOGS: periodic lines", check=_kv_bound),
    Rule(name="max-num-seqs", source="LOGS: periodic lines", check=_seqs_bound),
    Rule(name="queue-bound", source="LOGS: periodic lines", check=_queue_bound),
    Rule(name="client-bound", source="LOGS: periodic lines", check=_client_bound),
    Rule(name="prefill-bound", source="LOGS: per step", check=_starved, since=(0, 14, 0)),
    Rule(name="preemptions", source="num_preemptions_total; LOGS: preemption", check=_preempted),
    Rule(name="hit-rate", source="LOGS: periodic lines; the profile", check=_hit_rate),
    Rule(name="small-budget", source="VLLM: defaults by version", check=_budget),
    Rule(name="eager", source="LOGS: engine configuration", check=_eager),
    Rule(name="graph-memory", source="LOGS: CUDA graph pool", check=_graphs, since=(0, 18, 0)),
)


def examine(patient: Patient, version: Version | None) -> tuple[Symptom, ...]:
    """Every rule that holds for this version, the gravest symptom first."""
    found = list(_found(patient, version))
    return tuple(sorted(found, key=lambda symptom: -symptom.effect))


def _found(patient: Patient, version: Version | None) -> Iterator[Symptom]:
    for rule in RULES:
        if version is not None and not rule.since <= min(version, NEWEST) <= rule.until:
            continue
        if (symptom := rule.check(patient)) is not None:
            yield symptom
