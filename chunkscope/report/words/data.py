"""What is said of data: files, prompts, lengths, what they share."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope.artefacts.numbers import number, plural, share
from chunkscope.report.words import Template, sentence

if TYPE_CHECKING:
    from chunkscope.lengths.profile import DatasetProfile, Profile
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.prefixes.reuse import CachedAt, NearMiss, PrefixReuse
    from chunkscope.prompts.harness.log import LogSummary
    from chunkscope.report.reuse import PlannedCache, PrefixSummary

LONG = 2_048  # tokens: shorter prompts fit a step of every setting people use
SCORED_ONCE = "0.31"  # the first vLLM whose likelihood requests may read the prefix cache
GENERATIVE_SCORING = "0.20"  # the first with /generative_scoring
MOST_NOTES = 20


# -- lengths -------------------------------------------------------------------------------------


def prompts(profile: "Profile") -> str:
    datasets = plural(len(profile.datasets), "dataset")
    return f"{plural(profile.overall.count, 'prompt')} in {datasets}"


def answer(profile: "Profile") -> Iterator[str]:
    lengths = profile.overall
    p50, p95 = (number(lengths.percentile(p)) for p in (50, 95))
    sampled = " (a sample)" if any(dataset.sample for dataset in profile.datasets) else ""
    yield (
        f"{prompts(profile)}{sampled}: median {p50} tokens, p95 {p95}, longest "
        f"{number(lengths.max)}."
    )
    yield " ".join(filter(None, (_long_ones(profile), _shared(profile))))


def _long_ones(profile: "Profile") -> str:
    part = profile.overall.share_over(LONG)
    if not part:
        return f"No prompt is longer than {LONG:,} tokens, so chunked prefill hardly matters here."
    return f"{share(part)} are longer than {LONG:,} tokens, where chunked prefill starts to matter."


def _shared(profile: "Profile") -> str:
    """What the prefix cache can do; empty where it was not measured."""
    from chunkscope.report.reuse import measured_in, overall_reuse

    measured = measured_in(profile)
    if not measured:
        return ""
    reuse = overall_reuse(measured)
    if reuse.unread_tokens > reuse.cached_tokens:
        part = share((reuse.cached_tokens + reuse.unread_tokens) / reuse.tokens)
        return (
            f"{part} of the prompt tokens repeat the start of an earlier prompt{compared(reuse)}, "
            "but likelihood requests do not read vLLM's prefix cache (see `chunkscope prefixes`)."
        )
    if not reuse.cached_tokens:
        return (
            f"No prompt starts like an earlier one{compared(reuse)}, so the prefix cache has "
            "nothing to serve."
        )
    part = share(reuse.cached_tokens / reuse.tokens)
    return (
        f"{part} of the prompt tokens repeat the start of an earlier prompt{compared(reuse)}, so "
        "vLLM's prefix cache can serve them (see `chunkscope prefixes`)."
    )


def compared(reuse: "PrefixReuse") -> str:
    """Of how many prompts a figure is, where not all were compared; to be put behind it."""
    if not reuse.is_partial:
        return ""
    return f" (judged by {reuse.prompts:,} of {reuse.out_of_prompts:,} prompts)"


def counted_with(profile: "Profile") -> str:
    tokenizer = profile.tokenizer
    if tokenizer.kind == "none":
        return "The lengths came with the data; no tokenizer was needed."
    text = f"Counted with the tokenizer {tokenizer.name}."
    given = profile.options.tokenizer is not None
    return text if given else f"{text} For your model's: --model NAME or --tokenizer NAME."


def counting(profile: "Profile") -> Iterator[str]:
    """How the counting was done, for those who check it."""
    tokenizer = profile.tokenizer
    if tokenizer.kind != "none":
        engines = " and ".join(part.split(" ")[0] for part in tokenizer.engine.split(" + "))
        yield f"Counted by {engines}, checked against {tokenizer.reference}."
    added = tokenizer.special_tokens_added
    if added and any(d.kind == "text" and not d.log for d in profile.datasets):
        yield f"Each text prompt includes {plural(added, 'special token')}."
    for dataset in profile.datasets:
        if (part := dataset.sample) is not None:
            rows = f"{part.rows:,} of {part.out_of:,} rows"
            yield f"{dataset.name}: a sample of {rows} (seed {part.seed})."
    for dataset in profile.datasets[:MOST_NOTES]:
        if dataset.log:
            yield f"{log_line(dataset.log)}."


def remark(dataset: "DatasetProfile") -> str:
    if dataset.failure:
        return f"not read to its end: {dataset.failed_because}"
    if dataset.skipped:
        return f"{plural(dataset.skipped, 'bad row')} skipped"
    if dataset.sample:
        return f"a sample of {dataset.sample.out_of:,} rows"
    return ""


def cautions(profile: "Profile") -> Iterator[str]:
    """What may be missing or wrong, most important first."""
    missing: dict[str, list[str]] = {}
    for dataset in profile.datasets:
        for note in dataset.uncounted:
            missing.setdefault(sentence(note), []).append(dataset.name)
    for text, names in list(missing.items())[:MOST_NOTES]:
        yield f"{named(names)}: {text}"
    yield from map(sentence, profile.tokenizer.notes)
    notes = [(dataset, note) for dataset in profile.datasets for note in dataset.notes]
    for dataset, note in notes[:MOST_NOTES]:
        yield f"{dataset.name}: {sentence(note)}"
    if len(notes) > MOST_NOTES:
        yield f"{len(notes) - MOST_NOTES:,} more notes are in the profile"


def bad_rows(profile: "Profile") -> Iterator[str]:
    """The first rows that could not be used, how many there were, and datasets that failed."""
    rows = [(dataset, row) for dataset in profile.datasets for row in dataset.bad_rows]
    for dataset, row in rows[:MOST_NOTES]:
        yield f"bad row: {dataset.path} {dataset.unit} {row.position}: {row.reason}"
    if profile.skipped > len(rows[:MOST_NOTES]):
        yield f"... and {profile.skipped - len(rows[:MOST_NOTES]):,} more"
    if profile.skipped:
        yield f"{plural(profile.skipped, 'bad row')} skipped; the figures are without"
    for dataset in profile.failures:
        yield f"error: {dataset.name}: {dataset.failure}"


def named(names: Sequence[str], most: int = 2) -> str:
    """
    >>> named(["a", "b"]), named(["a", "b", "c"])
    ('a and b', 'a, b and 1 more')
    """
    if len(names) <= most:
        return " and ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"


# -- what prompts share --------------------------------------------------------------------------


def rate(cached: int | None, tokens: int) -> str:
    return share(cached / tokens if tokens and cached is not None else None)


def reuse_answer(summary: "PrefixSummary") -> Iterator[str]:
    reuse = summary.overall
    yield (
        f"vLLM's prefix cache can serve {rate(reuse.cached_tokens, reuse.tokens)} of the prompt "
        f"tokens ({reuse.cached_tokens:,} of {reuse.tokens:,}){compared(reuse)}."
    )
    if summary.planned is not None:
        yield _planned(summary.planned)
    elif (size := summary.enough) is not None:
        yield f"A KV cache of {size:,} tokens is large enough for nearly all of that."


def _planned(planned: "PlannedCache") -> str:
    return (
        f"The plan's KV cache ({planned.kv_tokens:,} tokens, up to {planned.running:,} requests at "
        f"once) serves {rate(planned.cached_tokens, planned.tokens)}."
    )


def reuse_advice(summary: "PrefixSummary") -> Iterator[str]:
    """What would make more of it: another way to score, another order, another template."""
    yield from _scoring(summary.measured)
    for dataset, reuse, at in summary.better_orders:
        yield (
            f"Sending {dataset.name} sorted by prefix would raise it from "
            f"{rate(_as_sent(at), reuse.tokens)} to "
            f"{rate(at.best_order_cached_tokens, reuse.tokens)} with a KV cache of "
            f"{at.kv_tokens:,} tokens."
        )
    for dataset, near in summary.near_misses:
        yield _near_miss(dataset, near)


def _as_sent(at: "CachedAt") -> int:
    sent = at.sent_order_cached_tokens
    return at.cached_tokens if sent is None else sent


def _near_miss(dataset: "DatasetProfile", near: "NearMiss") -> str:
    return (
        f"{dataset.name}: about {plural(near.prompts, 'prompt')} are identical except for an early "
        f"difference ({dataset.unit} {near.position:,} and {near.other_position:,}). Moving it to "
        f"the end would let the cache serve about {near.lost_tokens:,} more tokens "
        f"({rate(near.lost_tokens, dataset.lengths.total)})."
    )


def _scoring(measured: "Sequence[tuple[DatasetProfile, PrefixReuse]]") -> Iterator[str]:
    """How often likelihood requests read a context, and which way of asking saves that."""
    scored = [(dataset, reuse) for dataset, reuse in measured if reuse.unread_tokens]
    if not scored:
        return
    tokens = sum(reuse.tokens for _, reuse in scored)
    saved = sum(reuse.unread_tokens for _, reuse in scored)
    requests = sum(reuse.scoring.requests for _, reuse in scored if reuse.scoring)
    contexts = sum(reuse.scoring.contexts for _, reuse in scored if reuse.scoring)
    names = named([dataset.name for dataset, _ in scored])
    if contexts and requests > contexts:
        yield (
            f"{names}: {requests:,} likelihood requests score {contexts:,} contexts, so each "
            f"context is computed {requests / contexts:.1f} times."
        )
    yield (
        f"{names}: likelihood requests do not read the prefix cache. With it, {saved:,} tokens "
        f"({rate(saved, tokens)}) need not be computed; from vLLM {SCORED_ONCE} on a request can "
        "ask for that (skip_reading_prefix_cache=False with prompt_logprob_start). lm-eval 0.4.13 "
        "does not."
    )
    single = [reuse for _, reuse in scored if reuse.scoring and reuse.scoring.single_token]
    if single:
        least = sum(max(r.scoring.repeated_tokens, r.unread_tokens) for r in single if r.scoring)
        part = rate(least, sum(reuse.tokens for reuse in single))
        where = "" if len(single) == len(scored) else f" in {plural(len(single), 'dataset')}"
        yield (
            f"Every choice{where} is a single token, so /generative_scoring (vLLM "
            f"{GENERATIVE_SCORING} on) would compute each context once: at least {least:,} tokens "
            f"({part}) less."
        )


def reuse_rules(summary: "PrefixSummary") -> Iterator[str]:
    """By which rule it was computed."""
    running = summary.overall.running or 1
    yield (
        "Computed by vLLM's rule: full blocks of 16 tokens, never a prompt's last token, in the "
        f"order of the file, with up to {running:,} requests running. Likelihood requests do not "
        "read the cache."
    )
    for dataset, reuse in summary.measured:
        if reuse.last_half_tokens is not None:
            halves = [
                "nothing" if value is None else f"{100 * value:.1f} %"
                for value in (reuse.hit_rate, reuse.last_half_hit_rate)
            ]
            yield (
                f"{dataset.name}: by the trace's own blocks of {reuse.block_size} tokens. Served "
                f"over all of it: {halves[0]}, over its second half: {halves[1]}."
            )
        if reuse.is_partial:
            yield f"{dataset.name}: only the first {reuse.prompts:,} prompts were compared."
    if left := [d.name for d in summary.profile.datasets if not d.prefixes]:
        yield f"Not measured: {named(left, 5)}."


# -- a trace that was written --------------------------------------------------------------------


def exported(export: "TraceExport", file: Path) -> Iterator[str]:
    """What is in it, and how it is replayed."""
    trace, size = export.summary, export.block_size
    part = share(trace.cached_tokens / trace.tokens if trace.tokens else None)
    yield (
        f"wrote {file}: {plural(trace.requests, 'request')}, all at once; by its hash_ids (blocks "
        f"of {size:,} tokens) {part} of the prompt tokens were sent before"
    )
    if trace.assumed_outputs:
        yield (
            f"note: {trace.assumed_outputs:,} of its output lengths are assumed; --output-field "
            "names the answers"
        )
    if trace.unknown_prompts:
        yield f"note: {trace.unknown_prompts:,} prompts share nothing: only lengths are known"
    yield (
        f"replay it: vllm bench serve --backend vllm --model MODEL --dataset-name timed_trace "
        f"--dataset-path {shlex.quote(str(file))} --num-prompts {trace.requests} "
        f"--timed-trace-chunk-hash-size {size} --timed-trace-sec-multiplier 0.001"
    )


# -- logs and notes ------------------------------------------------------------------------------


def log_line(log: "LogSummary") -> str:
    """What a harness's log is: "lm-eval 0.4.13, task gsm8k, 8 shots, 1,319 documents, ..."."""
    document = "sample" if log.harness == "Inspect" else "document"
    parts = (
        f"{log.harness} {log.version or ''}".rstrip(),
        f"task {log.task}" if log.task else None,
        None if log.shots is None else plural(log.shots, "shot"),
        plural(log.documents, document),
        plural(log.requests, "request"),
        "rendered" if log.rendered else None,
    )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in log.kinds.items())
    capped = sum(log.output_caps.values())
    some = "" if capped == log.kinds.get("generate") else f"{capped:,} of them "
    limit = f", {some}at most {log.output_limit:,} tokens each" if capped else ""
    return f"{', '.join(filter(None, parts))} ({kinds}{limit}; {log.order})"


def _options(name: str, fields: Sequence[str]) -> str:
    return " ".join(f"{name} {shlex.quote(field)}" for field in fields)


def _first_conversation_counted(field: str, count: int) -> str:
    second = _options("--field", [f"{field}[1]"])
    return (
        f'counted only "{field}[0]", the first of up to {count} conversations in a row '
        f"({second} counts the second)"
    )


def _more_to_count(field: str, longer: str | None, more: list[str]) -> str:
    what = f'"{longer}" holds more text' if longer else f'tools are in "{more[0][:-5]}"'
    options = _options("--field", [*more, field])
    return f'counted only "{field}"; {what}: use {options}, or --template'


def _first_of_list_counted(field: str, longer: str | None) -> str:
    text = f'; "{longer}" holds more text' if longer else ""
    fields = f" {_options('--field', [longer, field])}" if longer else ""
    return (
        f'counted only "{field}[0]", the first of a list of texts{text}: --field chooses, '
        f"{_options('--each', [field])}{fields} makes a prompt of each"
    )


def _begun_twice(begin: str, count: int) -> str:
    return (
        f"{plural(count, 'prompt')} already {_verb(count, 'begin')} with {begin}, and the "
        "tokenizer adds another one, so the model reads it twice (special_tokens = false in "
        "chunkscope.toml adds none)"
    )


def _verb(count: int, verb: str) -> str:
    """`begins` of one, `begin` of several; `hold` and the like."""
    return f"{verb}s" if count == 1 else verb


SENTENCES: dict[str, Template] = {
    "counted_again": (
        "the fast engine differed from {reference} on a sample of these rows: everything was "
        "counted again with the reference"
    ),
    "exactly_checked": (
        "exact check: {count:,} texts recounted with {reference} from the tokenizer's own files, "
        "{different:,} differed"
    ),
    "sample_checked": "a sample of these rows was recounted with {reference}: no difference",
    "no_rows": "there are no rows in it",
    "no_header": 'the table has no header: counted "{field}", its longest text (--field chooses)',
    "one_prompt_each": 'one prompt for each of "{field}", after "{after}"',
    "prefix_unused": "the prefix was not used: it goes before text prompts only",
    "choices_unused": "the choices were not used: they go after text prompts only",
    "choices_uncounted": lambda fields: (
        "multiple choice without its choices: an evaluation sends them too, see "
        + _options("--choices", [fields])
    ),
    "more_to_count": _more_to_count,
    "longer_field_beside_chat": (
        'counted only "{field}"; "{longer}" holds more text (--template puts fields together, '
        "as text)"
    ),
    "first_conversation_counted": _first_conversation_counted,
    "first_of_list_counted": _first_of_list_counted,
    "media_rows": lambda count: (
        f"{plural(count, 'row')} {_verb(count, 'hold')} images, audio or video: only the text is "
        "counted"
    ),
    "tools_ignored": lambda count: (
        f"{plural(count, 'row')} {'has' if count == 1 else 'have'} tools, which the chat template "
        "ignores: the model does not see them, and they are not counted"
    ),
    "begun_twice": _begun_twice,
    "date_in_template": (
        "the chat template prints the date ({day}): lengths can differ by a token on another day "
        "(chat_date in chunkscope.toml sets it)"
    ),
    "blocks_unused": "{blocks} were not used: no block size fits them and {field}",
    "block_size": "{blocks} stand for {tokens} tokens each, as the lengths show",
    # Harness logs.
    "unused_with_log": "{option} was not used: a log has what was sent and answered",
    "rolling_texts_whole": lambda count: (
        f"{plural(count, 'text')} of loglikelihood_rolling {'is' if count == 1 else 'are'} counted "
        "whole: the log does not say in which windows the model got them"
    ),
    "media_requests": lambda count: (
        f"{plural(count, 'request')} {_verb(count, 'hold')} images or audio: only the text is "
        "counted"
    ),
    "helm_cached": lambda count: (
        f"HELM answered {plural(count, 'request')} of these from its own cache"
    ),
    "promptfoo_cached": lambda count: (
        f"nothing was sent for {plural(count, 'result')} from promptfoo's cache"
    ),
    "several_models": lambda models: f"its requests went to several models: {', '.join(models)}",
    "counted_by_mock": (
        "the lengths are those of Inspect's mock model, which has no tokenizer (--field messages "
        "counts the messages with yours)"
    ),
}
