"""What is said of prefix reuse in sentences, on the terminal and on the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chunkscope.artefacts.numbers import plural, share
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.planning.plan import Plan
from chunkscope.prefixes.reuse import BLOCK_SIZE, FLAT, CachedAt, PrefixReuse
from chunkscope.prefixes.reuse_together import reuse_together
from chunkscope.vllm.enums import Task

Measured = Sequence[tuple[DatasetProfile, PrefixReuse]]

_MATTERS = 0.05  # of all tokens: less is not worth a sentence
_MOST_SCORED = 10
READS_PER_REQUEST = "0.31"  # the first vLLM with prompt_logprob_start
GENERATIVE_SCORING = "0.20"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCache:
    """What is found in the KV cache that a plan predicts, with as many requests as it lets run."""

    kv_tokens: int
    running: int
    cached_tokens: int
    tokens: int

    @property
    def found(self) -> float:
        return self.cached_tokens / self.tokens if self.tokens else 0.0


def measured_in(profile: Profile) -> Measured:
    return [(dataset, dataset.prefixes) for dataset in profile.datasets if dataset.prefixes]


def all_of(measured: Measured) -> PrefixReuse:
    return reuse_together([reuse for _, reuse in measured])


def rate(cached: int | None, tokens: int) -> str:
    return share(cached / tokens if tokens and cached is not None else None)


def planned_cache(measured: Measured, plan: Plan | None) -> PlannedCache | None:
    """None without a plan that knows its model and GPU, or where it is not known of a dataset."""
    if plan is None or plan.memory is None or plan.memory.kv_cache_tokens is None:
        return None
    if plan.request.task is Task.LOGLIKELIHOOD:
        return None  # its requests do not read from the cache
    size, running = plan.memory.kv_cache_tokens, plan.effective.max_num_seqs
    if type(running) is not int:
        return None
    found = [_found_in(dataset, reuse, size, running) for dataset, reuse in measured]
    if any(tokens is None for tokens in found):
        return None
    return PlannedCache(
        kv_tokens=size,
        running=running,
        cached_tokens=sum(tokens or 0 for tokens in found),
        tokens=sum(reuse.tokens for _, reuse in measured),
    )


def _found_in(
    dataset: DatasetProfile, reuse: PrefixReuse, kv_tokens: int, running: int
) -> int | None:
    """Prompt by prompt as they are sent; likelihood requests, which mix with others, do not say."""
    from chunkscope.prefixes.kv_curve import Load, found_share

    if not reuse.cached_tokens:
        return 0
    if dataset.sharing is None or reuse.unread_tokens or reuse.block_size != BLOCK_SIZE:
        return None
    load = Load(running=running, output_tokens=reuse.output_tokens or 1)
    found = found_share(dataset.sharing, kv_tokens, load)
    return None if found is None else round(found * reuse.tokens)


def flat_at(reuse: PrefixReuse) -> int | None:
    """The smallest KV cache that finds nearly all that can be found; None where it is not known."""
    enough = FLAT * reuse.cached_tokens
    sizes = (at.kv_tokens for at in reuse.capacities if at.cached_tokens >= enough)
    return next(sizes, None) if reuse.cached_tokens else None


def headline(reuse: PrefixReuse) -> str:
    return (
        f"Of {reuse.tokens:,} prompt tokens, vLLM's prefix cache would find "
        f"{reuse.cached_tokens:,} ({rate(reuse.cached_tokens, reuse.tokens)}) if it forgot "
        f"nothing: {reuse.tokens - reuse.cached_tokens:,} are left to compute."
    )


def plan_sentence(planned: PlannedCache) -> str:
    return (
        f"The plan's KV cache of {planned.kv_tokens:,} tokens would find "
        f"{rate(planned.cached_tokens, planned.tokens)}, with up to {planned.running:,} requests "
        "running."
    )


def order_sentences(measured: Measured, planned: PlannedCache | None) -> Iterator[str]:
    """Where sorting pays: at the plan's size, else in the largest cache in which it does.

    Requests of a trace come when they come: nobody can sort them.
    """
    for dataset, reuse in measured:
        sizes = [at for at in reuse.capacities if _gain(at) > _MATTERS * reuse.tokens]
        if planned is not None:
            sizes = [at for at in sizes if _is_about(at, reuse, planned.kv_tokens)]
        for at in sizes[-1:] if dataset.kind != "lengths" else ():
            is_sorted = at.sent_order_cached_tokens is not None
            order = " (longest first, as the harness sends them)" if is_sorted else ""
            yield (
                f"Sorting {dataset.name} by prefix lifts what a KV cache of {at.kv_tokens:,} "
                f"tokens finds from {rate(_as_sent(at), reuse.tokens)}{order} to "
                f"{rate(at.best_order_cached_tokens, reuse.tokens)}"
                + ("." if dataset.log else ": `chunkscope analyze --order FILE` writes it sorted.")
            )


def _as_sent(at: CachedAt) -> int:
    sent = at.sent_order_cached_tokens
    return at.cached_tokens if sent is None else sent


def _gain(at: CachedAt) -> int:
    return (at.best_order_cached_tokens or 0) - _as_sent(at)


def _is_about(at: CachedAt, reuse: PrefixReuse, kv_tokens: int) -> bool:
    """Is it the largest that the plan's cache holds?"""
    return at == next((a for a in reversed(reuse.capacities) if a.kv_tokens <= kv_tokens), None)


def flat_sentence(reuse: PrefixReuse) -> str | None:
    size = flat_at(reuse)
    if size is None:
        return None
    running = f" with up to {reuse.running:,} requests running" if reuse.running else ""
    return f"A KV cache of {size:,} tokens finds nearly all of it{running}; more adds nothing."


def near_miss_sentences(measured: Measured) -> Iterator[tuple[str, str, str]]:
    """Per group: what it costs, and the two texts with the place of each."""
    for dataset, reuse in measured:
        for near in reuse.near_misses:
            yield (
                f"About {plural(near.prompts, 'prompt')} of {dataset.name} go on alike after an "
                f"early difference: without it about {near.lost_tokens:,} tokens more "
                f"({rate(near.lost_tokens, reuse.tokens)}) would be found.",
                f"{dataset.path} {dataset.unit} {near.position:,}: "
                f"{_marked(near.text, near.same_before)}",
                f"{dataset.path} {dataset.unit} {near.other_position:,}: "
                f"{_marked(near.other_text, near.same_before)}",
            )


def _marked(text: str, same: int) -> str:
    """The text on one line, an arrow where it differs.

    >>> _marked("It is 12:00", 6)
    '"It is →12:00"'
    """
    shown = [
        part.encode("unicode_escape").decode() if not part.isprintable() else part
        for part in (text[:same], text[same:])
    ]
    return f'"{shown[0]}→{shown[1]}"'


def scoring_sentences(measured: Measured) -> Iterator[str]:
    """How often likelihood requests read a context, and what other ways of asking would save."""
    scored = [(dataset, reuse) for dataset, reuse in measured if reuse.unread_tokens]
    for dataset, reuse in scored[:_MOST_SCORED]:
        yield f"{dataset.name}: {_read_again(reuse)}."
    if len(scored) > _MOST_SCORED:
        yield f"... and {len(scored) - _MOST_SCORED:,} more datasets of likelihood requests"
    if not scored:
        return
    tokens = sum(reuse.tokens for _, reuse in scored)
    saved = sum(reuse.unread_tokens for _, reuse in scored)
    yield (
        f"vLLM before {READS_PER_REQUEST} computes all of that again. From {READS_PER_REQUEST} on "
        "a request may read the cache (skip_reading_prefix_cache=False, with prompt_logprob_start "
        f"at the choice), which would save {saved:,} tokens ({rate(saved, tokens)}); lm-eval "
        "0.4.13 does not do so."
    )
    single = [reuse for _, reuse in scored if reuse.scoring and reuse.scoring.single_token]
    if single:
        yield _generative_scoring(single, everywhere=len(single) == len(scored))


def _read_again(reuse: PrefixReuse) -> str:
    scoring = reuse.scoring
    if scoring is None or scoring.contexts == scoring.requests:
        again = f"{reuse.unread_tokens:,} tokens ({rate(reuse.unread_tokens, reuse.tokens)})"
        return f"its likelihood requests read {again} again that the cache would have"
    return (
        f"each of its {plural(scoring.contexts, 'context')} is read {scoring.reads:.1f} times, by "
        f"{plural(scoring.requests, 'likelihood request')}; {scoring.repeated_tokens:,} tokens "
        f"({rate(scoring.repeated_tokens, scoring.tokens)}) are read again"
    )


def _generative_scoring(single: Sequence[PrefixReuse], *, everywhere: bool) -> str:
    """Each context is then read once, and finds what it shares with others."""
    saved = sum(max(r.scoring.repeated_tokens, r.unread_tokens) for r in single if r.scoring)
    where = "Every" if everywhere else f"In {plural(len(single), 'dataset')} every"
    return (
        f"{where} choice is a single token: /generative_scoring (vLLM {GENERATIVE_SCORING} on) "
        f"reads each context once and would save at least {saved:,} tokens "
        f"({rate(saved, sum(reuse.tokens for reuse in single))})."
    )
