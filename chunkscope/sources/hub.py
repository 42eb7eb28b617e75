"""Datasets on the Hugging Face hub, streamed through `datasets` (imported when needed).

Nothing is downloaded beforehand. Without a network the local cache of `datasets` is read; it does
that by itself, but only after half a minute of retries, so we look first whether the hub is there.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chunkscope.errors import ChunkscopeError, InputError, MissingError, UsageError
from chunkscope.network import hub_problem
from chunkscope.sources.base import Chunk, Problems, ReadOptions, Source, first_line
from chunkscope.sources.reader import RestartingReader

_SPEC = re.compile(r"hf:(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?::(?P<config>[^:@]+))?(?:@(?P<split>.+))?")
_BATCH_ROWS = 256


@dataclass(frozen=True, slots=True)
class HubName:
    """`hf:org/name:config@split`, taken apart."""

    repo: str
    config: str | None = None
    split: str | None = None

    @classmethod
    def parse(cls, text: str) -> "HubName":
        match = _SPEC.fullmatch(text)
        if match is None:
            raise UsageError(
                f"not a hub dataset: {text}", hint="write hf:org/name, hf:org/name:config@split"
            )
        return cls(match["repo"], match["config"], match["split"])

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        split = f"@{self.split}" if self.split else ""
        return f"hf:{self.repo}{config}{split}"


def hub_source(text: str, options: ReadOptions) -> Source:
    """The source for `hf:...`; a split that was not given is chosen here, so that it shows."""
    name = HubName.parse(text)
    if name.split is None:
        with _explaining_errors(name):
            datasets = _datasets()
            splits = datasets.get_dataset_split_names(
                _repo_path(name.repo), name.config, **_remote_code(datasets, options)
            )
        name = HubName(name.repo, name.config, _default_split([str(split) for split in splits]))
    shown = str(name)
    return Source(name=shown.removeprefix("hf:"), group="", path=shown, format="hub", file=None)


def _default_split(splits: Sequence[str]) -> str:
    """Evaluations run on the test split, or on what stands in for it."""
    if not splits:
        raise InputError("the dataset has no splits", hint="name one: hf:org/name@split")
    return next((split for split in ("test", "validation") if split in splits), splits[0])


class HubReader(RestartingReader):
    """Reads a split batch by batch; pictures and sounds in it are never decoded."""

    def __init__(self, source: Source, problems: Problems, options: ReadOptions) -> None:
        super().__init__(source, problems)
        self._name = HubName.parse(source.path)
        self._options = options

    @property
    def bytes_read(self) -> int:
        return 0  # `datasets` does not tell

    def close(self) -> None:
        pass  # `datasets` closes what it opens

    def _read(self, columns: Sequence[str] | None, problems: Problems) -> Iterator[Chunk]:  # noqa: ARG002
        row = 1
        with _explaining_errors(self._name):
            for table in self._tables(columns):
                records = table.to_pylist()
                yield Chunk(range(row, row + len(records)), records)
                row += len(records)

    def _tables(self, columns: Sequence[str] | None) -> Iterator[Any]:
        datasets = _datasets()
        dataset = datasets.load_dataset(
            _repo_path(self._name.repo),
            self._name.config,
            split=self._name.split,
            streaming=True,
            **_remote_code(datasets, self._options),
        )
        wanted = [name for name in dataset.column_names or () if columns and name in columns]
        if wanted:
            dataset = dataset.select_columns(wanted)
        tables: Iterator[Any] = dataset.with_format("arrow").iter(batch_size=_BATCH_ROWS)
        return tables


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


def _remote_code(datasets: Any, options: ReadOptions) -> dict[str, bool]:
    """Loading scripts are gone since datasets 4; before, they ran unless told not to."""
    if int(datasets.__version__.split(".")[0]) >= 4:
        return {}
    return {"trust_remote_code": options.trust_remote_code}


_UNREACHED = {"ConnectionError", "TimeoutError", "HTTPError", "TransportError", "HfHubHTTPError"}


@contextmanager
def _explaining_errors(name: HubName) -> Iterator[None]:
    try:
        yield
    except (ChunkscopeError, GeneratorExit, MemoryError):
        raise
    except Exception as error:  # the hub, the network and every file format speak up here
        raise _explained(name, error) from error


def _explained(name: HubName, error: Exception) -> ChunkscopeError:
    said = first_line(error)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "gated" in said or "GatedRepoError" in kinds:
        return MissingError(f"{name} is gated: {said}", hint="ask for access, then set HF_TOKEN")
    if kinds & {"DatasetNotFoundError", "RepositoryNotFoundError"}:
        return MissingError(
            f"there is no dataset {name} on the hub that we may read",
            hint="check the name; for a private one set HF_TOKEN",
        )
    unreached = "LocalEntryNotFoundError" in said  # inside a sentence about files that were sought
    if unreached or kinds & _UNREACHED:
        offline = "HF_HUB_OFFLINE is set" if _told_offline() else "the hub cannot be reached"
        return MissingError(
            f"{name} is not in the local cache, and {offline}",
            hint="load it once with a network (`datasets.load_dataset`), point HF_DATASETS_CACHE "
            "at a cache that has it, or name a local file",
        )
    hint = "see the dataset's page for its configs and splits: hf:org/name:config@split"
    return InputError(f"cannot load {name}: {said}", hint=hint)


def _told_offline() -> bool:
    return any(
        os.environ.get(name, "").upper() in ("1", "TRUE", "YES", "ON")
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    )
