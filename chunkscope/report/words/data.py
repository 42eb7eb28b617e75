"""What is said of data: files, prompts, lengths, what they share."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chunkscope.artefacts.note import note
from chunkscope.artefacts.numbers import number, plural, share
from chunkscope.report.words import Template, sentence

if TYPE_CHECKING:
    from chunkscope.lengths.profile import DatasetProfile, Profile
    from chunkscope.lengths.trace_export import TraceExport
    from chunkscope.prefixes.reuse import PrefixReuse
    from chunkscope.report.reuse import PrefixSummary

LONG = 2_048  # tokens: shorter prompts fit a step of every setting people use
MOST_NOTES = 20


# -- lengths -------------------------------------------------------------------------------------


def prompts(profile: "Profile") -> str:
    datasets = plural(len(profile.datasets), "dataset")
    return f"{plural(profile.overall.count, 'prompt')} in {datasets}"


def answer(profile: "Profile") -> Iterator[str]:
    lengths = profile.overall
    p50, p95 = (number(lengths.percentile(p)) for p in (50, 95))
    sampled = " (a sample)" if any(dataset.sample for dataset in profile.datasets) else ""
    figures = f"median {p50} tokens, p95 {p95}, longest {number(lengths.max)}"
    yield f"{prompts(profile)}{sampled}: {figures}."
    long = lengths.share_over(LONG)
    matters = f"{share(long)} are longer than {LONG:,} tokens, where chunked prefill matters."
    if not long:
        matters = f"No prompt is longer than {LONG:,} tokens, so chunked prefill hardly matters."
    yield " ".join(filter(None, (matters, _shared(profile))))


def _shared(profile: "Profile") -> str:
    """What the prefix cache can do; empty where it was not measured."""
    from chunkscope.prefixes.reuse import reuse_together

    measured = [dataset.prefixes for dataset in profile.datasets if dataset.prefixes]
    if not measured:
        return ""
    reuse = reuse_together(measured)
    if not reuse.cached_tokens + reuse.unread_tokens:
        return f"No prompt starts like an earlier one{compared(reuse)}."
    use = "so vLLM's prefix cache can serve them"
    tokens = reuse.cached_tokens
    if reuse.unread_tokens > tokens:
        use = "but likelihood requests do not read vLLM's prefix cache"
        tokens += reuse.unread_tokens
    return (
        f"{share(tokens / reuse.tokens)} of the prompt tokens repeat the start of an earlier "
        f"prompt{compared(reuse)}, {use} (see `chunkscope prefixes`)."
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
    for dataset in profile.datasets[:MOST_NOTES]:
        if (part := dataset.sample) is not None:
            rows = f"{part.rows:,} of {part.out_of:,} rows"
            yield f"{dataset.name}: a sample of {rows} (seed {part.seed})."


def remark(dataset: "DatasetProfile") -> str:
    if dataset.failure:
        return f"not read to its end: {dataset.failed_because}"
    if dataset.skipped:
        return f"{plural(dataset.skipped, 'bad row')} skipped"
    return f"a sample of {dataset.sample.out_of:,} rows" if dataset.sample else ""


def cautions(profile: "Profile") -> Iterator[str]:
    """What may be missing or wrong, most important first."""
    missing: dict[str, list[str]] = {}
    for dataset in profile.datasets:
        for one in dataset.uncounted:
            missing.setdefault(sentence(one), []).append(dataset.name)
    for text, names in list(missing.items())[:MOST_NOTES]:
        yield f"{named(names)}: {text}"
    yield from map(sentence, profile.tokenizer.notes)
    notes = [(dataset, one) for dataset in profile.datasets for one in dataset.notes]
    for dataset, one in notes[:MOST_NOTES]:
        yield f"{dataset.name}: {sentence(one)}"
    if len(notes) > MOST_NOTES:
        yield f"{len(notes) - MOST_NOTES:,} more notes are in the profile"


def bad_rows(profile: "Profile") -> Iterator[str]:
    """The first rows that could not be used, how many there were, and datasets that failed."""
    rows = [(dataset, row) for dataset in profile.datasets for row in dataset.bad_rows]
    for dataset, row in rows[:MOST_NOTES]:
        yield f"bad row: {dataset.path} {dataset.unit} {row.position}: {row.reason}"
    if profile.skipped:
        yield f"{plural(profile.skipped, 'bad row')} skipped and not counted"
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
    reuse, planned = summary.overall, summary.planned
    yield (
        f"vLLM's prefix cache can serve {rate(reuse.cached_tokens, reuse.tokens)} of the prompt "
        f"tokens ({reuse.cached_tokens:,} of {reuse.tokens:,}){compared(reuse)}."
    )
    if planned is not None:
        yield (
            f"The plan's KV cache ({planned.kv_tokens:,} tokens, up to {planned.running:,} "
            f"requests at once) serves {rate(planned.cached_tokens, planned.tokens)}."
        )
    elif (size := summary.enough) is not None:
        yield f"A KV cache of {size:,} tokens is large enough for nearly all of that."


def reuse_advice(summary: "PrefixSummary") -> Iterator[str]:
    """What would make more of it: another way to score, another order, another template."""
    yield from _scoring(summary.measured)
    for dataset, reuse, at in summary.better_orders:
        now, best = at.cached_tokens, at.best_order_cached_tokens
        yield (
            f"{sentence(note('better_order', dataset=dataset.name))}: {rate(now, reuse.tokens)} "
            f"would become {rate(best, reuse.tokens)} with {at.kv_tokens:,} tokens of KV cache."
        )
    for dataset, near in summary.near_misses:
        values = {"prompts": near.prompts, "text": near.text, "other": near.other_text}
        yield (
            f"{sentence(note('early_difference', dataset=dataset.name, **values))}: saves about "
            f"{near.lost_tokens:,} prompt tokens ({rate(near.lost_tokens, dataset.lengths.total)})."
        )


def _scoring(measured: "Sequence[tuple[DatasetProfile, PrefixReuse]]") -> Iterator[str]:
    """How often likelihood requests compute a context, and which way of asking saves that."""
    scored = [(dataset, reuse) for dataset, reuse in measured if reuse.unread_tokens]
    if not scored:
        return
    saved = sum(reuse.unread_tokens for _, reuse in scored)
    part = rate(saved, sum(reuse.tokens for _, reuse in scored))
    scoring = [reuse.scoring for _, reuse in scored if reuse.scoring]
    requests, contexts = (sum(getattr(s, n) for s in scoring) for n in ("requests", "contexts"))
    single = bool(scoring) and all(one.single_token for one in scoring)
    advice = note(
        "score_contexts_once",
        dataset=scored[0][0].name,
        others=len(scored) - 1,
        reads=requests / (contexts or 1),
        how="generative_scoring" if single else "read_cache",
    )
    yield f"{sentence(advice)}: saves {saved:,} prompt tokens ({part})."


def reuse_rules(summary: "PrefixSummary") -> Iterator[str]:
    """By which rule it was computed."""
    yield (
        "Computed by vLLM's rule: full blocks of 16 tokens (a trace's own where it has some), "
        "never a prompt's last token, in the order of the file, with up to "
        f"{summary.overall.running or 1:,} requests running."
    )
    if left := [d.name for d in summary.profile.datasets if not d.prefixes]:
        yield f"Not measured: {named(left, 5)}."


# -- a trace that was written --------------------------------------------------------------------


def exported(export: "TraceExport", file: Path) -> Iterator[str]:
    """What is in it, and how it is replayed."""
    trace = export.summary
    assumed = f", {trace.assumed_outputs:,} output lengths assumed" if trace.assumed_outputs else ""
    yield f"wrote {file}: {plural(trace.requests, 'request')}, all at once{assumed}"
    yield (
        f"replay it: vllm bench serve --backend vllm --model MODEL --dataset-name timed_trace "
        f"--dataset-path {shlex.quote(str(file))} --num-prompts {trace.requests} "
        f"--timed-trace-chunk-hash-size {export.block_size} --timed-trace-sec-multiplier 0.001"
    )


# -- notes ---------------------------------------------------------------------------------------


def _options(name: str, fields: Sequence[str]) -> str:
    return " ".join(f"{name} {shlex.quote(field)}" for field in fields)


def _more_to_count(field: str, longer: str | None, more: list[str]) -> str:
    what = f'"{longer}" holds more text' if longer else f'tools are in "{more[0][:-5]}"'
    return f'counted only "{field}"; {what}: use {_options("--field", [*more, field])}'


def _first_of_list_counted(field: str, longer: str | None) -> str:
    text = f'; "{longer}" holds more text' if longer else ""
    fields = f" {_options('--field', [longer, field])}" if longer else ""
    each = f"{_options('--each', [field])}{fields}"
    return f'counted only "{field}[0]", the first of a list{text}: {each} makes a prompt of each'


SENTENCES: dict[str, Template] = {
    "counted_again": "the fast engine differed from {reference} on a sample of these rows: all "
    "were counted again with the reference",
    "no_header": 'the table has no header: counted "{field}", its longest text (--field chooses)',
    "prefix_unused": "the prefix was not used: it goes before text prompts only",
    "nothing_to_score": "counted as generated: there are no choices whose likelihood to ask for",
    "choices_unused": "the choices were not used: they go after text prompts only",
    "choices_uncounted": lambda fields: (
        "multiple choice, counted without the choices that an evaluation sends too: use "
        + _options("--choices", [fields])
    ),
    "more_to_count": _more_to_count,
    "longer_field_beside_chat": 'counted only "{field}"; "{longer}" holds more text (--template '
    "joins fields)",
    "first_conversation_counted": lambda field, count: (
        f'counted only "{field}[0]", the first of up to {count} conversations '
        f"({_options('--field', [f'{field}[1]'])} counts the second)"
    ),
    "first_of_list_counted": _first_of_list_counted,
    "media_rows": "images, audio or video in {count:row}: only the text is counted",
    "tools_ignored": "the chat template ignores the tools of {count:row}: they are not counted",
    "begun_twice": "{count:prompt} with {begin} twice: in the text, and added by the tokenizer "
    "(special_tokens = false in chunkscope.toml adds none)",
    "date_in_template": "the chat template prints the date ({day}), so lengths can differ on "
    "another day (chat_date in chunkscope.toml sets it)",
    "blocks_unused": "{blocks} were not used: no block size fits them and {field}",
    # Harness logs.
    "unused_with_log": "{option} was not used: a log has what was sent and answered",
    "rolling_texts_whole": "{count:text} of loglikelihood_rolling counted whole: the log does not "
    "show the windows",
    "media_requests": "images or audio in {count:request}: only the text is counted",
    "several_models": "its requests went to several models: {models}",
    "counted_by_mock": "these lengths come from Inspect's mock model, which has no tokenizer "
    "(--field messages counts them with yours)",
}
