"""The prefix tree of a dataset, by vLLM's rule: from token ids, or the blocks that a
trace names.

vLLM finds full blocks only, each known by its tokens and all before it. So a block is
known by its parent and its content. Blocks that occur only one after the other are kept
as one node, and compared at once: 14,000 few-shot prompts of MMLU, 42 MB of text, took
0.1 s of CPU, where counting them took 0.5 s with the fast engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chunkscope.artefacts.artefact import Numbers
from chunkscope.prefixes.near_misses import same_start
from chunkscope.prefixes.reuse import BLOCK_SIZE
from chunkscope.prefixes.sharing import NOTHING, Sharing, served
from chunkscope.tokenizers.reference import ID_BYTES

BLOCK_BYTES = BLOCK_SIZE * ID_BYTES
MOST_BLOCKS = 1_000_000  # that differ: 64 MB of token ids
USUAL_SIZES = (512, 16)  # tokens of a trace's block: Mooncake's, and vLLM's own


@dataclass(slots=True)
class Node:
    """Blocks that follow each other in all prompts that have them.

    `content` is what tells them from others; `end` how many bytes of a prompt there are
    up to the end of it.
    """

    parent: int
    content: bytes
    end: int
    prompts: int = 0  # that begin with it


class PrefixTree:
    """Prompts in the order in which they come, as nodes of blocks that they begin
    with."""

    def __init__(
        self, block_bytes: int = BLOCK_BYTES, block_size: int = BLOCK_SIZE
    ) -> None:
        self.block_bytes = block_bytes  # of what tells a block from others
        self.block_size = block_size  # in tokens
        self.nodes: list[Node] = []
        self.blocks = 0  # that differ
        self.lengths: list[int] = []  # by prompt, in tokens
        self.reads: list[bool] = []  # by prompt: whether it reads from the cache
        # By prompt, the tokens that it has of an earlier one and its answer.
        self.repeated: list[int] = []
        self.ends: list[int] = []  # by prompt, the last of its nodes
        self._children: dict[tuple[int, bytes], int] = {}  # by parent and first block

    def add(
        self, blocks: bytes, tokens: int, *, reads: bool = True, repeated: int = 0
    ) -> None:
        """A prompt by its full blocks, one after the other."""
        node, place = NOTHING, 0
        while place < len(blocks):
            first = blocks[place : place + self.block_bytes]
            child = self._children.get((node, first))
            if child is None:
                child = self._new(node, blocks[place:], len(blocks))
            else:
                content = self.nodes[child].content
                same = same_start(content, blocks[place:])
                same -= same % self.block_bytes
                if same < len(content):
                    child = self._split(child, same)
            self.nodes[child].prompts += 1
            node, place = child, self.nodes[child].end
        self.lengths.append(tokens)
        self.reads.append(reads)
        self.repeated.append(repeated)
        self.ends.append(node)

    def _new(self, parent: int, content: bytes, end: int) -> int:
        number = len(self.nodes)
        self.nodes.append(Node(parent, content, end))
        self._children[parent, content[: self.block_bytes]] = number
        self.blocks += len(content) // self.block_bytes
        return number

    def _split(self, number: int, size: int) -> int:
        """The node of the first `size` bytes; the old one goes on with what follows."""
        node, upper = self.nodes[number], len(self.nodes)
        start = node.end - len(node.content)
        first = Node(node.parent, node.content[:size], start + size, node.prompts)
        self.nodes.append(first)
        node.parent, node.content = upper, node.content[size:]
        self._children[first.parent, first.content[: self.block_bytes]] = upper
        self._children[upper, node.content[: self.block_bytes]] = number
        return upper

    def cached(self, order: Sequence[int], *, all_read: bool = False) -> int:
        """Tokens that prompts find in a cache that never forgets, sent in this
        order."""
        seen = [False] * len(self.nodes)
        tokens = 0
        for place in order:
            node = self.ends[place]
            while node != NOTHING and not seen[node]:
                seen[node] = True
                node = self.nodes[node].parent
            if all_read or self.reads[place]:
                found = max(self.tokens_up_to(node), self.repeated[place])
                tokens += served(found, self.lengths[place])
        return tokens

    def tokens_up_to(self, node: int) -> int:
        if node == NOTHING:
            return 0
        return self.nodes[node].end // self.block_bytes * self.block_size

    def sharing(self, order: Sequence[int]) -> Sharing:
        """The prompts one by one in this order, and the stretches that several begin
        with."""
        shared = []
        for number, node in enumerate(self.nodes):
            if node.prompts > 1:
                shared.append(number)
        shared.sort(key=self.tokens_up_to)  # parents before their children
        stretches = {NOTHING: NOTHING}
        parents, tokens = [], []
        for place, number in enumerate(shared):
            stretches[number] = place
            parent = self.nodes[number].parent
            parents.append(stretches[parent])
            tokens.append(self.tokens_up_to(number) - self.tokens_up_to(parent))
        ends = []
        for place in order:
            end = self.ends[place]
            while end not in stretches:
                end = self.nodes[end].parent
            ends.append(stretches[end])
        return Sharing(
            lengths=Numbers(self.lengths[place] for place in order),
            ends=Numbers(ends),
            parents=Numbers(parents),
            tokens=Numbers(tokens),
        )


def tree_of_prompts(prompts: Sequence[bytes], reads: Sequence[bool]) -> PrefixTree:
    """The tree of prompts given as token ids, ID_BYTES each."""
    tree = PrefixTree()
    for ids, may_read in zip(prompts, reads, strict=True):
        add_ids(tree, ids, reads=may_read)
    return tree


def add_ids(tree: PrefixTree, ids: bytes, *, reads: bool, repeated: int = 0) -> None:
    full = len(ids) - len(ids) % BLOCK_BYTES
    tree.add(ids[:full], len(ids) // ID_BYTES, reads=reads, repeated=repeated)


def block_size_of(tokens: Sequence[int], counts: Sequence[int]) -> int | None:
    """The block size with which each prompt has as many blocks as it names; None if
    none does.

    >>> block_size_of([6758, 2290], [14, 5])
    512
    """
    least, most = 0, None
    for length, count in zip(tokens, counts, strict=True):
        if count > 0:
            least = max(least, -(-length // count))
        if count > 1:
            size = -(-length // (count - 1)) - 1
            most = size if most is None else min(most, size)
    powers = [1 << power for power in range(40)]
    for size in (*USUAL_SIZES, *powers, least):
        if 0 < least <= size and (most is None or size <= most):
            return size
    return None


@dataclass(frozen=True, slots=True)
class NamedBlock:
    """A block of a trace. A shorter one at the end is another than a whole one of its
    number."""

    number: int
    tokens: int


def tree_of_trace(
    tokens: Sequence[int], hash_ids: Sequence[Sequence[int]]
) -> PrefixTree | None:
    """The tree of prompts by their lengths and the numbers of their blocks.

    How large a block is follows from the lengths. None where the blocks do not fit the
    lengths, or where a number does not stand for all before it, too.
    """
    size = block_size_of(tokens, [len(numbers) for numbers in hash_ids])
    if size is None:
        return None
    tree = PrefixTree(block_bytes=ID_BYTES, block_size=size)
    names: dict[NamedBlock, bytes] = {}
    before: dict[bytes, bytes] = {}  # by block, the one that all prompts have before it
    for length, numbers in zip(tokens, hash_ids, strict=True):
        blocks, previous = [], b""
        for place, number in enumerate(numbers):
            block = NamedBlock(number, min(size, length - place * size))
            name = names.setdefault(block, len(names).to_bytes(ID_BYTES, "little"))
            if before.setdefault(name, previous) != previous:
                return None
            blocks.append(name)
            previous = name
        tree.add(b"".join(blocks), length)
    return tree
