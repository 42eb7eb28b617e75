"""The stretches of several datasets as those of one: what all prompts of one begin with may be
what those of another begin with, too."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chunkscope.lengths.profile import DatasetProfile
from chunkscope.prefixes.reuse_together import heads
from chunkscope.prefixes.sharing import NOTHING, Sharing, Stretch


@dataclass(slots=True)
class JoinedStretches:
    """Stretches, dataset after dataset; `places` of one is where each of its own has gone."""

    stretches: list[Stretch] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)
    _known: dict[int, int] = field(default_factory=dict)  # by the hash of its last block

    def add(self, sharing: Sharing, pieces: Sequence[tuple[int, int]]) -> None:
        """`pieces`: hash and tokens of what the first stretch begins with and others have too."""
        places: list[int] = []
        for place, stretch in enumerate(sharing.stretches):
            parent = NOTHING if stretch.parent == NOTHING else places[stretch.parent]
            tokens = stretch.tokens
            for known, size in pieces if place == 0 else ():
                if known not in self._known:
                    self._known[known] = self._new(parent, size)
                parent = self._known[known]
                tokens -= size
            places.append(self._new(parent, tokens) if tokens else parent)
        self.places.append(places)

    def _new(self, parent: int, tokens: int) -> int:
        self.stretches.append(Stretch(parent=parent, tokens=tokens))
        return len(self.stretches) - 1


def joined(datasets: Sequence[DatasetProfile]) -> JoinedStretches:
    """Of datasets that are not known prompt by prompt there are none."""
    begun = [_common(dataset) for dataset in datasets]
    owners = Counter(block for blocks in begun for block in blocks)
    made = JoinedStretches()
    for dataset, blocks in zip(datasets, begun, strict=True):
        if dataset.sharing is None:
            made.places.append([])
        else:
            size = dataset.prefixes.block_size if dataset.prefixes else 0
            made.add(dataset.sharing, [*_pieces(blocks, owners, size)])
    return made


def _common(dataset: DatasetProfile) -> list[int]:
    """The hashes of the blocks that all prompts begin with, as far as the first stretch goes."""
    if not dataset.prefixes or not dataset.sharing or not dataset.sharing.stretches:
        return []
    first = dataset.sharing.stretches[0].tokens // dataset.prefixes.block_size
    return heads(dataset.prefixes)[:first]


def _pieces(blocks: list[int], owners: Counter[int], block_size: int) -> Iterator[tuple[int, int]]:
    """Cut where one of those who have it parts from the others: a hash stands for all before it."""
    start = 0
    for end, block in enumerate(blocks, start=1):
        after = owners[blocks[end]] if end < len(blocks) else 0
        if owners[block] > 1 and after != owners[block]:
            yield block, (end - start) * block_size
            start = end
