"""The host's memory as a second tier of the KV cache (`--kv-offloading-size`).

Blocks of answered and preempted requests are copied there; a request that comes again
finds what the GPU has forgotten. Those that were unused for longest are dropped, the
last of a prompt first.
"""

from collections import OrderedDict

from chunkscope.prefixes.sharing import Path


class HostTier:
    """Which blocks of which stretch it holds: always the first ones."""

    def __init__(self, blocks: int) -> None:
        self._free = blocks
        self._ends: OrderedDict[int, int] = OrderedDict()  # by stretch
        self._starts: dict[int, int] = {}

    def store(self, path: Path, blocks: int) -> None:
        """The first blocks of a request; they are the latest that were used."""
        for part in reversed(path):
            end = min(part.end, blocks)
            if end <= part.start:
                continue
            known = self._ends.get(part.stretch, part.start)
            self._free -= max(0, end - known)
            self._starts[part.stretch] = part.start
            self._ends[part.stretch] = max(end, known)
            self._ends.move_to_end(part.stretch)
        while self._free < 0:
            self._drop()

    def _drop(self) -> None:
        """Some blocks of the stretch that was unused for longest."""
        stretch, end = next(iter(self._ends.items()))
        start = self._starts[stretch]
        dropped = min(-self._free, end - start)
        self._free += dropped
        self._ends[stretch] = end - dropped
        if end - dropped == start:
            del self._ends[stretch]
            del self._starts[stretch]

    def found(self, path: Path, first: int, limit: int) -> int:
        """Up to which block of a request all from `first` on are here."""
        place = first
        for part in path:
            if part.end <= place:
                continue
            end = self._ends.get(part.stretch, part.start)
            if place < part.start or end <= place:
                break
            self._ends.move_to_end(part.stretch)
            place = min(end, part.end, limit)
            if place < part.end:
                break
        return place
