"""A sample of what comes by, without knowing how much will come."""

import random
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """`size` items out of all, each as likely as any other; the same on every machine."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self.items: list[T] = []
        self.offered = 0
        self.chance = random.Random(seed)  # noqa: S311  (a sample, not a secret)

    def add(self, items: Iterable[T]) -> None:
        for item in items:
            self.offered += 1
            if len(self.items) < self.size:
                self.items.append(item)
            elif (place := self.chance.randrange(self.offered)) < self.size:
                self.items[place] = item
