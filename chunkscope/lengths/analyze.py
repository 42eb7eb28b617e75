"""`analyze`: paths -> profile. The one function behind the command and the Python API."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.errors import InputError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import Profile, TokenizerInfo
from chunkscope.lengths.row_order import check_order, write_order
from chunkscope.lengths.scan import Listener, scan
from chunkscope.lengths.tally import Counted
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.sources.base import Source, printable
from chunkscope.sources.discovery import discover
from chunkscope.sources.prefix_files import assigned
from chunkscope.tokenizers.tokenizer import Tokenizer


def analyze(
    paths: Sequence[str | Path] | str | Path,
    tokenizer: str | None = None,
    *,
    options: AnalyzeOptions | None = None,
    listener: Listener | None = None,
    export: TraceExport | None = None,
) -> Profile:
    """Measure how long the prompts in `paths` are; `export` collects them as a trace.

    Bad rows and datasets that failed are in the profile (`skipped`, `failures`); an error is
    raised only when nothing could be counted at all.
    """
    options = options or AnalyzeOptions()
    options = replace(options, tokenizer=options.tokenizer or tokenizer)
    listener = listener or Listener()
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    with options.rendering(listener.running) as rendering:
        sources, skipped = discover(
            [str(path) for path in given],
            names=options.names,
            include=options.include,
            exclude=options.exclude,
            options=options.read,
            rendering=rendering,
        )
        listener.skipped(skipped)
        if options.order is not None:
            check_order(sources, options)
        names = [source.name for source in sources]
        options = replace(options, prefix_files=assigned(options.prefix_files, names))
        counted, info = _counted(sources, options, listener, export)
    if export is not None:
        export.datasets = [dataset.trace for dataset in counted if dataset.trace]
    _refuse_nothing(counted)
    if options.order is not None:
        write_order(sources[0], counted[0], options.order)
    return Profile(
        tokenizer=info,
        datasets=tuple(dataset.profile for dataset in counted),
        options={"paths": [printable(str(path)) for path in given], **options.recorded()},
    )


def _counted(
    sources: Sequence[Source],
    options: AnalyzeOptions,
    listener: Listener,
    export: TraceExport | None,
) -> tuple[list[Counted], TokenizerInfo]:
    memo = DigestMemo()
    template = _digest_of_template(options.chat_template)
    total_bytes = sum(source.bytes or 0 for source in sources)
    counter = Tokenizer(
        options.tokenizer,
        memo=memo,
        chat_template=options.chat_template,
        chat_date=options.chat_date,
        trust_remote_code=options.read.trust_remote_code,
        exact_check=options.exact_check,
        expected_bytes=total_bytes,
        on_compile=listener.preparing,
    )
    try:
        listener.progress.begin(total_bytes)
        counted = scan(sources, counter, options, memo=memo, listener=listener, export=export)
        return counted, _info(counter, counted, options, template)
    finally:
        memo.save()


def _digest_of_template(path: Path | None) -> str | None:
    """None also where it comes through a pipe, which can be read only once."""
    if path is None or not path.is_file():
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None  # whoever needs it will say so


def _info(
    tokenizer: Tokenizer,
    datasets: Sequence[Counted],
    options: AnalyzeOptions,
    template: str | None,
) -> TokenizerInfo:
    counted = [dataset for dataset in datasets if not dataset.brought_its_lengths]
    if not counted:
        return TokenizerInfo(
            name="none (the lengths came with the data)", digest="", kind="none", engine="none",
            reference="none", special_tokens_added=0,
        )  # fmt: skip
    engines = {engine for dataset in counted for engine in dataset.engines}
    compiled = tokenizer.compiled
    return TokenizerInfo(
        name=printable(tokenizer.name),
        digest=tokenizer.digest,
        kind=tokenizer.kind,
        engine=" + ".join(sorted(engines)) or "none",
        reference=tokenizer.reference,
        special_tokens_added=compiled.special_added if options.special_tokens else 0,
        chat_template=template,
        notes=(*compiled.notes, *_check_notes(tokenizer)),
    )


def _check_notes(tokenizer: Tokenizer) -> list[str]:
    if not tokenizer.was_loaded:
        return []
    counting = tokenizer.counting
    if counting.only_reference:
        return [
            f"a fast engine differed from {tokenizer.reference} on a sample of these rows: "
            "everything was counted again with the reference"
        ]
    if counting.recounted:
        return [
            f"exact check: {counting.recounted:,} texts recounted with {counting.reference.name} "
            f"from the tokenizer's own files, {counting.corrected:,} differed"
        ]
    if counting.checked_texts:
        return [
            f"{counting.checked_texts:,} of these rows were recounted with "
            f"{tokenizer.reference}: no difference"
        ]
    return []


def _refuse_nothing(counted: Sequence[Counted]) -> None:
    """When not one prompt was counted, that is an error and not a profile."""
    datasets = [dataset.profile for dataset in counted]
    if any(dataset.rows for dataset in datasets):
        return
    for failed in counted:
        if failed.error:
            raise failed.error
    for dataset in datasets:
        if dataset.bad_rows:
            first = dataset.bad_rows[0]
            raise InputError(
                f"none of the {dataset.skipped:,} rows of {dataset.path} could be used; "
                f"{dataset.unit} {first.position}: {first.reason}",
                hint="is it another format, or another field? See --input-format and --field",
            )
    names = ", ".join(dataset.path for dataset in datasets[:3])
    raise InputError(f"there are no rows in {names}", hint="is the file empty?")
