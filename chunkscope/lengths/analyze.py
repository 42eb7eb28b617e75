"""`analyze`: paths -> profile. The functions behind the command and the Python API."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from chunkscope.artefacts.files import Name, several
from chunkscope.console import Progress
from chunkscope.errors import InputError
from chunkscope.lengths.options import AnalyzeOptions
from chunkscope.lengths.profile import DatasetProfile, Profile
from chunkscope.lengths.scan import Scan
from chunkscope.lengths.trace_export import TraceExport
from chunkscope.prompts.harness.rendering import Rendering
from chunkscope.prompts.prefix_files import check_datasets
from chunkscope.sources.base import DataError, Source, printable, without_secrets
from chunkscope.sources.find import discover
from chunkscope.tokenizers.foreign import engine_name
from chunkscope.tokenizers.resolve import TokenizerInfo

Paths = Sequence[Name] | Name


def analyze(
    paths: Paths,
    *,
    options: AnalyzeOptions | None = None,
    listener: Progress | None = None,
    export: TraceExport | None = None,
) -> Profile:
    """Measure how long the prompts in `paths` are; `export` collects them as a trace.

    Bad rows and datasets that failed are in the profile (`skipped`, `failures`); an
    error is raised only when nothing could be counted at all.

    >>> analyze("sample_data/math_word_problems.jsonl").overall
    <LengthHistogram of 200: p50 101, p95 170, longest 205 tokens>
    """
    options = options or AnalyzeOptions()
    listener = listener or Progress()
    with discovered(paths, options, listener) as sources:
        size = sum(source.bytes or 0 for source in sources)
        scan = Scan(options, expected_bytes=size, listener=listener, export=export)
        listener.begin(size)
        datasets = scan.datasets(sources)
    if export is not None:
        names = [source.name for source in sources]
        export.datasets = {name: export.datasets[name] for name in names}
    info = None
    if any(dataset.engine for dataset in datasets):
        info = info_of(scan)
    return profile_of(paths, options, datasets, info)


@contextmanager
def discovered(
    paths: Paths, options: AnalyzeOptions, listener: Progress
) -> Iterator[list[Source]]:
    """The sources at the paths. What a harness rendered for it is there until the
    end.
    """
    with ExitStack() as folders:
        rendering = Rendering(
            folders=folders,
            options=options.render,
            tokenizer=options.tokenizer,
            chat=options.apply_chat_template,
            chat_template=options.chat_template,
            trust_remote_code=options.read.trust_remote_code,
            tell=listener.tell,
        )
        sources, _ = discover(
            several(paths),
            exclude=options.exclude,
            options=options.read,
            tasks=rendering.sources,
            tell=listener.tell,
        )
        check_datasets([*options.datasets], [source.name for source in sources])
        yield sources


def info_of(scan: Scan) -> TokenizerInfo:
    """The tokenizer that counted, with how its counts were checked."""
    tokenizer = scan.tokenizer
    template = scan.options.chat_template
    digest = None
    # What comes through a pipe can be read only once.
    if template is not None and template.is_file():
        digest = hashlib.sha256(template.read_bytes()).hexdigest()
    added = tokenizer.facts.special_added if scan.options.special_tokens else 0
    return TokenizerInfo(
        name=printable(tokenizer.name),
        digest=tokenizer.digest,
        kind=tokenizer.kind,
        reference=engine_name(tokenizer.facts.package),
        special_tokens_added=added,
        chat_template=digest,
        notes=tuple(tokenizer.notes),
    )


def profile_of(
    paths: Paths,
    options: AnalyzeOptions,
    datasets: Sequence[DatasetProfile],
    info: TokenizerInfo | None,
) -> Profile:
    """The profile of counted datasets; an error when not one prompt was counted."""
    if not any(dataset.lengths.counts for dataset in datasets):
        raise nothing_counted(datasets)
    engines: set[str] = set()
    for dataset in datasets:
        if dataset.engine:
            engines.update(dataset.engine.split(" + "))
    tokenizer = TokenizerInfo()
    if info is not None and engines:
        tokenizer = replace(info, engine=" + ".join(sorted(engines)))
    return Profile(
        tokenizer=tokenizer,
        datasets=tuple(datasets),
        options=options.recorded(),
        paths=tuple(printable(without_secrets(path)) for path in several(paths)),
    )


def nothing_counted(datasets: Sequence[DatasetProfile]) -> InputError:
    """Why: a dataset that failed, else the first bad row."""
    for dataset in datasets:
        if dataset.failure is not None:
            return DataError.from_note(dataset.failure)
    for dataset in datasets:
        if dataset.bad_rows:
            first = dataset.bad_rows[0]
            return DataError(
                "all_bad",
                rows=dataset.skipped,
                path=dataset.path,
                unit=dataset.unit,
                position=first.position,
                reason=first.reason,
            )
    names = ", ".join(dataset.path for dataset in datasets[:3])
    return InputError(f"there are no rows in {names}", hint="is the file empty?")
