"""Datasets on the Hugging Face hub, streamed through `datasets` (imported when needed).

Nothing is downloaded beforehand. Without a network the local cache of `datasets` is read; it does
that by itself, but only after half a minute of retries, so we look first whether the hub is there.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError, UsageError
from chunkscope.network import hub_problem
from chunkscope.sources.base import Chunk, Source
from chunkscope.sources.reader import Format, RecordReader, register
from chunkscope.sources.remote import explaining

_HUB_NAME = re.compile(
    r"hf:(?P<repo>[\w.-]+(/[\w.-]+)?)(:(?P<config>[^:@]+))?(@(?P<split>.+))?"
)


def hub_source(text: str) -> Source:
    """The source for `hf:org/name:config@split`, by default of the test split or the next best."""
    repo, config, split = _hub_name(text)
    if split is None:
        with explaining(text):
            splits = _datasets().get_dataset_split_names(repo, config)
        if not splits:
            raise InputError(
                "the dataset has no splits", hint="name one: hf:org/name@split"
            )
        likely = (split for split in ("test", "validation") if split in splits)
        text = f"{text}@{next(likely, splits[0])}"
    return Source(name=text.removeprefix("hf:"), path=text, format="hub")


def _hub_name(text: str) -> tuple[str, str | None, str | None]:
    match = _HUB_NAME.fullmatch(text)
    if match is None:
        raise UsageError(
            f"not a hub dataset: {text}", hint="write hf:org/name:config@split"
        )
    repo = match[
        "repo"
    ]  # even if a local folder has its name, which `datasets` would take
    repo = f"hf://datasets/{repo}" if Path(repo).exists() else repo
    return repo, match["config"], match["split"]


def hub_rows(reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
    """A split batch by batch; pictures and sounds in it are never decoded."""
    repo, config, split = _hub_name(reader.source.path)
    with explaining(reader.source.path):
        dataset = _datasets().load_dataset(repo, config, split=split, streaming=True)
        wanted = [
            name for name in dataset.column_names or () if columns and name in columns
        ]
        if wanted:
            dataset = dataset.select_columns(wanted)
        for table in dataset.with_format("arrow").iter(batch_size=256):
            records, row = table.to_pylist(), reader.positions + 1
            reader.positions += len(records)
            yield Chunk(range(row, row + len(records)), records)


def _datasets() -> Any:
    """The library, quiet, and told at once when there is no way to the hub."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    if not datasets.config.HF_HUB_OFFLINE and hub_problem(datasets.config.HF_ENDPOINT):
        import huggingface_hub.constants

        datasets.config.HF_HUB_OFFLINE = True
        huggingface_hub.constants.HF_HUB_OFFLINE = True
    return datasets


register(Format(name="hub", rows=hub_rows, is_columnar=True))
