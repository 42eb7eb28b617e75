"""`analyze`: paths -> profile. The functions behind the command and the Python API."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from chunkscope.artefacts.digests import DigestMemo
from chunkscope.artefacts.words import Name
from chunkscope.errors import ChunkscopeError, UsageError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.parts import Checks, CountedPiece, ProfilePart, refuse_nothing, told
from chunkscope.lengths.profile import Profile, TokenizerInfo
from chunkscope.lengths.row_order import check_order, write_order
from chunkscope.lengths.scan import Listener, scan
from chunkscope.lengths.shards import Shard, digest
from chunkscope.lengths.tally import Counted
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.prompts.prefix_files import assigned
from chunkscope.sources.base import Source, printable
from chunkscope.sources.discovery import discover
from chunkscope.sources.readers import Part, split
from chunkscope.sources.remote import without_secrets
from chunkscope.tokenizers.tokenizer import Tokenizer

Paths = Sequence[Name] | Name


def analyze(
    paths: Paths,
    tokenizer: Name | None = None,
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
    named = os.fspath(tokenizer) if tokenizer is not None else None
    options = replace(options, tokenizer=options.tokenizer or named)
    listener = listener or Listener()
    with found(paths, options, listener) as work:
        if options.order is not None:
            check_order(work.sources, options)
        counter = CountingRun(work.options, listener)
        counted = counter.count(work.sources, export=export)
    if export is not None:
        export.datasets = [dataset.trace for dataset in counted if dataset.trace]
    refuse_nothing(counted)
    if options.order is not None:
        write_order(work.sources[0], counted[0], options.order)
    info = counter.info(counted)
    return Profile(
        tokenizer=told(info, counter.checks, counted, info.notes),
        datasets=tuple(dataset.profile for dataset in counted),
        options=work.recorded(),
    )


def analyze_shard(
    paths: Paths, shard: Shard, *, options: AnalyzeOptions, listener: Listener | None = None
) -> ProfilePart:
    """Count one shard of what `paths` hold; `merge` makes a profile of all of them."""
    listener = listener or Listener()
    with found(paths, options, listener) as work:
        work.refuse_to_divide("--shard")
        places = shard.places(work.pieces)
        counter = CountingRun(work.options, listener)
        counted = counter.count([work.pieces[place] for place in places])
    return work.part(shard, places, counted, counter)


@dataclass(frozen=True, kw_only=True)
class Work:
    """All that is to be counted, and how."""

    given: tuple[str, ...]
    sources: tuple[Source, ...]
    options: AnalyzeOptions

    @cached_property
    def pieces(self) -> list[Part]:
        size = self.options.divided_into
        return [p for s in self.sources for p in (split(s, size) if size else [Part(source=s)])]

    @cached_property
    def _digest(self) -> str:
        return digest(self.pieces)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {source.name: number for number, source in enumerate(self.sources)}

    def recorded(self) -> dict[str, Any]:
        paths = [printable(without_secrets(path)) for path in self.given]
        return {"paths": paths, **self.options.recorded()}

    def refuse_to_divide(self, asked: str) -> None:
        """Before work is divided that only one process can do."""
        if self.options.order is not None:
            raise UsageError(f"{asked} excludes --order", hint="leave one of them out")
        for source in self.sources:
            if source.is_read_once or source.rendered:
                what = "a harness's task" if source.rendered else "a pipe, which is read once"
                raise UsageError(
                    f"{asked} cannot divide {source.path}: it is {what}",
                    hint="save it to a file first, or count it in one process",
                )

    def part(
        self, shard: Shard, places: Sequence[int], counted: Sequence[Counted], by: "CountingRun"
    ) -> ProfilePart:
        pieces = self.pieces
        return ProfilePart(
            shard=shard.number,
            of=shard.of,
            divided=self._digest,
            out_of=len(pieces),
            tokenizer=by.info(counted),
            checks=by.checks,
            pieces=tuple(
                CountedPiece.of(place, self._numbers[pieces[place].source.name], piece)
                for place, piece in zip(places, counted, strict=True)
            ),
            options=self.recorded(),
        )


@contextmanager
def found(paths: Paths, options: AnalyzeOptions, listener: Listener) -> Iterator[Work]:
    """What the paths hold; what a harness rendered for it is there until the end."""
    given = [str(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    with options.rendering(listener.running) as rendering:
        sources, skipped = discover(
            given,
            names=options.names,
            include=options.include,
            exclude=options.exclude,
            options=options.read,
            tasks=rendering,
        )
        listener.skipped(skipped)
        files = assigned(options.prefix_files, [source.name for source in sources])
        yield Work(
            given=tuple(given),
            sources=tuple(sources),
            options=replace(options, prefix_files=files),
        )


class CountingRun:
    """A tokenizer that counts sources or pieces of them, and what is to be said of it."""

    def __init__(
        self, options: AnalyzeOptions, listener: Listener, *, threads: int | None = None
    ) -> None:
        self._threads = threads or os.cpu_count() or 1
        self._options = options
        self._listener = listener
        self._memo = DigestMemo()
        self._template = _digest_of_template(options.chat_template)
        self._tokenizer: Tokenizer | None = None

    def count(
        self, work: Sequence[Source] | Sequence[Part], *, export: TraceExport | None = None
    ) -> list[Counted]:
        total_bytes = sum(one.bytes or 0 for one in work)
        options, memo, listener = self._options, self._memo, self._listener
        tokenizer = self._made(total_bytes)
        try:
            listener.progress.begin(total_bytes)
            return scan(
                work,
                tokenizer,
                options,
                memo=memo,
                listener=listener,
                export=export,
                threads=self._threads,
            )
        finally:
            memo.save()

    def prepare(self, expected_bytes: int = 0) -> None:
        """Load the tokenizer now; if that fails, whoever needs it will say so."""
        with suppress(ChunkscopeError):
            _ = self._made(expected_bytes).counter

    def use_reference(self) -> None:
        """From now on count without fast engines."""
        with suppress(ChunkscopeError):
            self._made(0).counter.use_reference()

    def _made(self, expected_bytes: int) -> Tokenizer:
        options = self._options
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(
                options.tokenizer,
                memo=self._memo,
                chat_template=options.chat_template,
                chat_date=options.chat_date,
                trust_remote_code=options.read.trust_remote_code,
                exact_check=options.exact_check,
                expected_bytes=expected_bytes,
                on_prepare=self._listener.preparing,
            )
        return self._tokenizer

    def info(self, datasets: Sequence[Counted]) -> TokenizerInfo:
        """The tokenizer, with what is to be said of it whatever was counted."""
        tokenizer = self._tokenizer
        counted = [dataset for dataset in datasets if not dataset.brought_its_lengths]
        if not counted or tokenizer is None:
            return TokenizerInfo(
                name="none (the lengths came with the data)", digest="", kind="none",
                engine="none", reference="none", special_tokens_added=0,
            )  # fmt: skip
        facts = tokenizer.facts
        return TokenizerInfo(
            name=printable(tokenizer.name),
            digest=tokenizer.digest,
            kind=tokenizer.kind,
            engine="none",
            reference=tokenizer.prepared.reference_name,
            special_tokens_added=facts.special_added if self._options.special_tokens else 0,
            chat_template=self._template,
        )

    @property
    def checks(self) -> Checks:
        if self._tokenizer is None or not self._tokenizer.was_loaded:
            return Checks()
        counter = self._tokenizer.counter
        return Checks(
            sampled=counter.checked_texts > 0,
            recounted=counter.recounted,
            corrected=counter.corrected,
            only_reference=counter.only_reference,
        )


def _digest_of_template(path: Path | None) -> str | None:
    """None also where it comes through a pipe, which can be read only once."""
    if path is None or not path.is_file():
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None  # whoever needs it will say so
