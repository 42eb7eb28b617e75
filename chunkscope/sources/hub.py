"""Datasets on the Hugging Face hub, streamed through `datasets` (imported when needed).

Nothing is downloaded beforehand. Without a network the local cache of `datasets` is read; it does
that by itself, but only after half a minute of retries, so we look first whether the hub is there.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.network import hub_problem
from chunkscope.sources.base import Chunk, Source, first_line
from chunkscope.sources.reader import RecordReader

_NAME = re.compile(r"hf:(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?::(?P<config>[^:@]+))?(?:@(?P<split>.+))?")
_BATCH_ROWS = 256
_MISSING = {
    *("ConnectionError", "TimeoutError", "HTTPError", "TransportError", "HfHubHTTPError"),
    *("DatasetNotFoundError", "RepositoryNotFoundError", "GatedRepoError"),
}


def hub_source(text: str) -> Source:
    """The source for `hf:org/name:config@split`; a split that was not given is chosen here, so that
    it shows. Evaluations run on the test split, or on what stands in for it.
    """
    repo, config, split = _parsed(text)
    if split is None:
        with _explaining(text):
            splits = _datasets().get_dataset_split_names(_repo_path(repo), config)
        if not splits:
            raise InputError("the dataset has no splits", hint="name one: hf:org/name@split")
        likely = (split for split in ("test", "validation") if split in splits)
        split = str(next(likely, splits[0]))
        text = f"hf:{repo}{f':{config}' if config else ''}@{split}"
    return Source(name=text.removeprefix("hf:"), group="", path=text, format="hub", file=None)


def _parsed(text: str) -> tuple[str, str | None, str | None]:
    match = _NAME.fullmatch(text)
    if match is None:
        raise UsageError(
            f"not a hub dataset: {text}", hint="write hf:org/name, hf:org/name:config@split"
        )
    return match["repo"], match["config"], match["split"]


def hub_rows(reader: RecordReader, columns: Sequence[str] | None) -> Iterator[Chunk]:
    """A split batch by batch; pictures and sounds in it are never decoded."""
    repo, config, split = _parsed(reader.source.path)
    with _explaining(reader.source.path):
        dataset = _datasets().load_dataset(_repo_path(repo), config, split=split, streaming=True)
        wanted = [name for name in dataset.column_names or () if columns and name in columns]
        if wanted:
            dataset = dataset.select_columns(wanted)
        for table in dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS):
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


def _repo_path(repo: str) -> str:
    """The repository, even if a local folder has the same name: `datasets` would take that."""
    return f"hf://datasets/{repo}" if Path(repo).exists() else repo


@contextmanager
def _explaining(name: str) -> Iterator[None]:
    try:
        yield
    except (ChunkscopeError, GeneratorExit, MemoryError):
        raise
    except Exception as error:  # the hub, the network and every file format speak up here
        raise explained(name, error) from error


def explained(name: str, error: Exception) -> ChunkscopeError:
    words = first_line(error)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    # "LocalEntryNotFoundError" stands inside a sentence about files that were sought.
    if kinds & _MISSING or "LocalEntryNotFoundError" in words:
        return MissingError(
            f"{name} cannot be had from the hub, nor from the local cache: {words}",
            hint="check the name; a gated or private one needs HF_TOKEN; without a network load it "
            "beforehand (`datasets.load_dataset`) or set HF_DATASETS_CACHE to a cache that has it",
        )
    hint = "see the dataset's page for its configs and splits: hf:org/name:config@split"
    return InputError(f"cannot load {name}: {words}", hint=hint)
