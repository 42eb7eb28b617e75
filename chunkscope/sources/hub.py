"""Datasets on the Hugging Face hub, streamed through `datasets` (imported when needed).

Nothing is downloaded beforehand. Without a network the local cache of `datasets` is
read. It does that by itself, but only after half a minute of retries, so we look first
whether the hub is there.
"""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chunkscope.errors import InputError, UsageError
from chunkscope.network import hub_problem
from chunkscope.sources.base import Chunk, Source
from chunkscope.sources.input import Input
from chunkscope.sources.remote import explaining

_BATCH_ROWS = 256
# hf:org/name:config@split
_NAME = re.compile(
    r"hf:(?P<repo>[\w.-]+(/[\w.-]+)?)(:(?P<config>[^:@]+))?(@(?P<split>.+))?"
)
_lock = threading.Lock()  # the library's settings are those of the process


@dataclass(frozen=True, slots=True)
class HubName:
    repo: str
    config: str | None
    split: str | None

    @classmethod
    def parse(cls, text: str) -> "HubName":
        match = _NAME.fullmatch(text)
        if match is None:
            raise UsageError(
                f"not a hub dataset: {text}", hint="write hf:org/name:config@split"
            )
        repo = match["repo"]
        if Path(repo).exists():  # a local folder, which `datasets` would take
            repo = f"hf://datasets/{repo}"
        return cls(repo, match["config"], match["split"])


def hub_source(text: str) -> Source:
    """The source for `hf:org/name:config@split`; without a split the test split."""
    name = HubName.parse(text)
    if name.split is None:
        with explaining(text), hub_library() as library:
            splits = library.get_dataset_split_names(name.repo, name.config)
        if not splits:
            raise InputError(
                "the dataset has no splits", hint="name one: hf:org/name@split"
            )
        text = f"{text}@{likely_split(splits)}"
    return Source(name=text.removeprefix("hf:"), path=text, format="hub")


def likely_split(splits: Sequence[str]) -> str:
    for split in ("test", "validation"):
        if split in splits:
            return split
    return splits[0]


class HubRows:
    """A split batch by batch; pictures and sounds in it are never decoded."""

    format = "hub"
    unit = "row"
    metadata: Mapping[str, Any] = {}

    def __init__(self, source: Input) -> None:
        self._path = source.source.path
        name = HubName.parse(self._path)
        with explaining(self._path), hub_library() as library:
            self._dataset = library.load_dataset(
                name.repo, name.config, split=name.split, streaming=True
            )

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        dataset = self._dataset
        position = 1
        with explaining(self._path):
            names = dataset.column_names or ()
            wanted = [name for name in names if name in (columns or ())]
            if wanted:
                dataset = dataset.select_columns(wanted)
            for table in dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS):
                records = table.to_pylist()
                yield Chunk(range(position, position + len(records)), records)
                position += len(records)


@contextmanager
def hub_library() -> Iterator[Any]:
    """`datasets`, quiet, and offline when there is no way to the hub.

    Its settings are those of the whole process, so they are put back afterwards.
    """
    import datasets
    import huggingface_hub.constants

    config = datasets.config
    with _lock:
        was_offline = config.HF_HUB_OFFLINE
        was_hub_offline = huggingface_hub.constants.HF_HUB_OFFLINE
        showed_progress = datasets.are_progress_bars_disabled() is False
        verbosity = datasets.logging.get_verbosity()
        try:
            datasets.disable_progress_bars()
            datasets.logging.set_verbosity_error()
            if not was_offline and hub_problem(config.HF_ENDPOINT):
                config.HF_HUB_OFFLINE = True
                huggingface_hub.constants.HF_HUB_OFFLINE = True
            yield datasets
        finally:
            config.HF_HUB_OFFLINE = was_offline
            huggingface_hub.constants.HF_HUB_OFFLINE = was_hub_offline
            datasets.logging.set_verbosity(verbosity)
            if showed_progress:
                datasets.enable_progress_bars()
