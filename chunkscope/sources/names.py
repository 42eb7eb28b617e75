"""Names that differ: of datasets, and of a table's columns."""

from collections.abc import Iterable


def unique_names(names: Iterable[str], mark: str) -> list[str]:
    """Number what comes again.

    >>> unique_names(["a", "b", "a"], "#")
    ['a', 'b', 'a#2']
    """
    taken: dict[str, None] = {}
    for base in names:
        name, copy = base, 2
        while name in taken:
            name, copy = f"{base}{mark}{copy}", copy + 1
        taken[name] = None
    return list(taken)
