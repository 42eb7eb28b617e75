"""`analyze`: paths -> profile. The functions behind the command and the Python API."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.artefacts.note import Note, note
from chunkscope.artefacts.words import Name
from chunkscope.errors import InputError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import NO_TOKENIZER, DatasetProfile, Profile, TokenizerInfo
from chunkscope.lengths.scan import Listener, Scan
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.prompts.prefix_files import check_datasets
from chunkscope.sources.base import Source, printable
from chunkscope.sources.discovery import discover
from chunkscope.sources.remote import without_secrets
from chunkscope.tokenizers.tokenizer import Tokenizer

Paths = Sequence[Name] | Name


def analyze(
    paths: Paths,
    *,
    options: AnalyzeOptions | None = None,
    listener: Listener | None = None,
    export: TraceExport | None = None,
) -> Profile:
    """Measure how long the prompts in `paths` are; `export` collects them as a trace.

    Bad rows and datasets that failed are in the profile (`skipped`, `failures`); an error is
    raised only when nothing could be counted at all.

    >>> analyze("sample_data/math_word_problems.jsonl")
    <Profile of 200 prompts in 1 dataset: p50 101, p95 170, longest 205 tokens>
    """
    options = options or AnalyzeOptions()
    listener = listener or Listener()
    with discovered(paths, options, listener) as sources:
        total_bytes = sum(source.bytes or 0 for source in sources)
        memo = DigestMemo()
        counted_by = tokenizer_for(options, memo, listener, total_bytes)
        listener.progress.begin(total_bytes)
        scan = Scan(counted_by, options, memo=memo, listener=listener, export=export)
        try:
            datasets = scan.datasets(sources)
        finally:
            memo.save()
    if export is not None:
        export.datasets = {source.name: export.datasets[source.name] for source in sources}
    return profile_of(paths, options, datasets, info_of(counted_by, options))


@contextmanager
def discovered(paths: Paths, options: AnalyzeOptions, listener: Listener) -> Iterator[list[Source]]:
    """The sources at the paths. What a harness rendered for it is there until the end."""
    with options.rendering(listener.running) as rendering:
        sources, skipped = discover(
            list(_words(paths)),
            names=options.names,
            include=options.include,
            exclude=options.exclude,
            options=options.read,
            tasks=rendering,
        )
        listener.skipped(skipped)
        check_datasets(options.prefix_files, [source.name for source in sources])
        yield sources


def tokenizer_for(
    options: AnalyzeOptions, memo: DigestMemo, listener: Listener, expected_bytes: int
) -> Tokenizer:
    return Tokenizer(
        options.tokenizer,
        memo=memo,
        chat_template=options.chat_template,
        chat_date=options.chat_date,
        trust_remote_code=options.read.trust_remote_code,
        exact_check=options.exact_check,
        expected_bytes=expected_bytes,
        on_prepare=listener.preparing,
    )


def info_of(tokenizer: Tokenizer, options: AnalyzeOptions) -> TokenizerInfo | None:
    """The tokenizer, with how its counts were checked; None if it is not known by now."""
    if tokenizer.counting_key is None:
        return None
    return TokenizerInfo(
        name=printable(tokenizer.name),
        digest=tokenizer.digest,
        kind=tokenizer.kind,
        engine="none",
        reference=tokenizer.prepared.reference_name,
        special_tokens_added=tokenizer.facts.special_added if options.special_tokens else 0,
        chat_template=_digest_of(options.chat_template),
        notes=tuple(_checks(tokenizer)),
    )


def _checks(tokenizer: Tokenizer) -> Iterator[Note]:
    """How what a fast engine counted was compared with the reference."""
    if not tokenizer.was_loaded:
        return
    counter, reference = tokenizer.counter, tokenizer.prepared.reference_name
    if counter.only_reference:
        yield note("counted_again", reference=reference)
    elif counter.recounted:
        yield note(
            "exactly_checked",
            reference=reference,
            count=counter.recounted,
            different=counter.corrected,
        )
    elif counter.checked_texts:
        yield note("sample_checked", reference=reference)


def profile_of(
    paths: Paths,
    options: AnalyzeOptions,
    datasets: Sequence[DatasetProfile],
    info: TokenizerInfo | None,
) -> Profile:
    """The profile of counted datasets; an error when not one prompt was counted."""
    _refuse_nothing(datasets)
    engines = {e for d in datasets for e in (d.engine or "").split(" + ") if e}
    return Profile(
        tokenizer=replace(info, engine=" + ".join(sorted(engines)))
        if info is not None and engines
        else NO_TOKENIZER,
        datasets=tuple(datasets),
        options=options.recorded(),
        paths=tuple(printable(without_secrets(path)) for path in _words(paths)),
    )


def _refuse_nothing(datasets: Sequence[DatasetProfile]) -> None:
    if any(dataset.rows for dataset in datasets):
        return
    for dataset in datasets:
        if dataset.failure:
            raise dataset.failure.error
    for dataset in datasets:
        if dataset.bad_rows:
            first = dataset.bad_rows[0]
            raise InputError(
                f"none of the {dataset.skipped:,} rows of {dataset.path} could be used; "
                f"{dataset.unit} {first.position}: {first.reason}",
                hint="another field (--field), or another format (see `chunkscope help config`)?",
            )
    names = ", ".join(dataset.path for dataset in datasets[:3])
    raise InputError(f"there are no rows in {names}", hint="is the file empty?")


def _words(paths: Paths) -> Iterator[str]:
    yield from map(str, [paths] if isinstance(paths, str | os.PathLike) else paths)


def _digest_of(template: Path | None) -> str | None:
    """None also where it comes through a pipe, which can be read only once."""
    if template is None or not template.is_file():
        return None
    return hashlib.sha256(template.read_bytes()).hexdigest()
