"""`analyze`: paths -> profile. The one function behind the command and the Python API."""

import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.console import ScanProgress
from chunkscope.errors import InputError
from chunkscope.lengths.profile import DatasetProfile, Profile, TokenizerInfo
from chunkscope.lengths.scan import ScanOptions, scan
from chunkscope.sources.base import ReadOptions, Skipped, Source, printable
from chunkscope.sources.discovery import discover
from chunkscope.sources.selection import SelectOptions
from chunkscope.tokenizers.tokenizer import Tokenizer


@dataclass(slots=True)
class Listener:
    """Who wants to know what happens on the way: nobody, by default."""

    skipped: Callable[[Sequence[Skipped]], None] = lambda _: None
    preparing: Callable[[str], None] = lambda _: None
    recounting: Callable[[str], None] = lambda _: None
    progress: ScanProgress = field(default_factory=ScanProgress)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """Everything `analyze` can be told."""

    tokenizer: str | None = None
    names: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    read: ReadOptions = field(default_factory=ReadOptions)
    select: SelectOptions = field(default_factory=SelectOptions)
    apply_chat_template: bool = False
    chat_template: Path | None = None
    chat_date: datetime.date | None = None
    special_tokens: bool = True
    sample: int | None = None
    seed: int = 0
    keep_longest: int = 10
    exact_check: bool = False
    use_cache: bool = True


def analyze(
    paths: Sequence[str | Path] | str | Path,
    tokenizer: str | None = None,
    *,
    options: AnalyzeOptions | None = None,
    listener: Listener | None = None,
) -> Profile:
    """Measure how long the prompts in `paths` are.

    Bad rows and datasets that failed are in the profile (`skipped`, `failures`); an error is
    raised only when nothing could be counted at all.
    """
    options = options or AnalyzeOptions()
    options = replace(options, tokenizer=options.tokenizer or tokenizer)
    listener = listener or Listener()
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    memo = DigestMemo()
    sources, skipped = discover(
        [str(path) for path in given],
        names=options.names,
        include=options.include,
        exclude=options.exclude,
        options=options.read,
    )
    template = _digest_of_template(options.chat_template)
    counter = _tokenizer(options, sources, memo, listener)
    try:
        listener.skipped(skipped)
        listener.progress.begin(sum(source.bytes or 0 for source in sources))
        datasets = _counted(sources, counter, options, memo, listener)
        info = _info(counter, datasets, options, template)
    finally:
        memo.save()
    _refuse_nothing(datasets)
    return Profile(tokenizer=info, datasets=tuple(datasets), options=_recorded(options, given))


def _tokenizer(
    options: AnalyzeOptions, sources: Sequence[Source], memo: DigestMemo, listener: Listener
) -> Tokenizer:
    return Tokenizer(
        options.tokenizer,
        memo=memo,
        chat_template=options.chat_template,
        chat_date=options.chat_date,
        trust_remote_code=options.read.trust_remote_code,
        exact_check=options.exact_check,
        expected_bytes=sum(source.bytes or 0 for source in sources),
        on_compile=listener.preparing,
    )


def _counted(
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    options: AnalyzeOptions,
    memo: DigestMemo,
    listener: Listener,
) -> list[DatasetProfile]:
    """Scan; and once more with the reference if a sample of the rows shows a difference."""
    how = ScanOptions(
        read=options.read,
        select=options.select,
        apply_chat_template=options.apply_chat_template,
        special_tokens=options.special_tokens,
        exact_check=options.exact_check,
        sample=options.sample,
        seed=options.seed,
        keep_longest=options.keep_longest,
        use_cache=options.use_cache and not options.exact_check,
    )
    datasets, commit = scan(sources, tokenizer, how, memo=memo, progress=listener.progress)
    if tokenizer.was_loaded and not tokenizer.counting.sample_agrees():
        if gone := [source.path for source in sources if source.is_read_once]:
            raise InputError(
                f"a fast engine and the reference differ on this data, and {gone[0]} is read "
                "already",
                hint="run the same command again: the reference will be used from now on",
            )
        listener.recounting(", ".join(sorted(tokenizer.counting.used)))
        tokenizer.counting.use_reference()
        datasets, commit = scan(sources, tokenizer, how, memo=memo, progress=listener.progress)
    commit()
    return datasets


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
    datasets: Sequence[DatasetProfile],
    options: AnalyzeOptions,
    template: str | None,
) -> TokenizerInfo:
    counted = [dataset for dataset in datasets if dataset.kind != "lengths"]
    if not counted:
        return TokenizerInfo(
            name="none (the lengths came with the data)", digest="", kind="none", engine="none",
            reference="none", special_tokens_added=0,
        )  # fmt: skip
    engines = {part for d in counted if d.engine for part in d.engine.split(" + ")}
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
            f"exact check: {counting.recounted:,} texts recounted with {tokenizer.reference}, "
            f"{counting.corrected:,} differed"
        ]
    if counting.checked_texts:
        return [
            f"{counting.checked_texts:,} of these rows were recounted with "
            f"{tokenizer.reference}: no difference"
        ]
    return []


def _refuse_nothing(datasets: Sequence[DatasetProfile]) -> None:
    """When not one prompt was counted, that is an error and not a profile."""
    if any(dataset.rows for dataset in datasets):
        return
    for dataset in datasets:
        if dataset.failure:
            message, _, hint = dataset.failure.partition("\n\nhint: ")
            raise InputError(message, hint=hint or None)
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


def _recorded(options: AnalyzeOptions, paths: Sequence[str | Path]) -> dict[str, Any]:
    """What is needed to repeat the run."""
    return {
        "paths": [printable(str(path)) for path in paths],
        "tokenizer": printable(options.tokenizer) if options.tokenizer else None,
        "fields": list(options.select.fields),
        "template": options.select.template,
        "prefix_sha256": (
            hashlib.sha256(options.select.prefix.encode()).hexdigest()
            if options.select.prefix
            else None
        ),
        "output_field": options.select.output_field,
        "chat": options.select.chat,
        "apply_chat_template": options.apply_chat_template,
        "chat_date": options.chat_date.isoformat() if options.chat_date else None,
        "special_tokens": options.special_tokens,
        "sample": options.sample,
        "seed": options.seed if options.sample else None,
        "include": [printable(pattern) for pattern in options.include],
        "exclude": [printable(pattern) for pattern in options.exclude],
    }
