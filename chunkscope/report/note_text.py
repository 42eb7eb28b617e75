"""What an entry of the catalogue of notes may be, and names in a sentence."""

from collections.abc import Callable, Sequence

# A template of `str.format`, or a function of the note's values by name.
NoteText = str | Callable[..., str]


def named(names: Sequence[str], most: int = 2) -> str:
    """
    >>> named(["a", "b"]), named(["a", "b", "c"])
    ('a and b', 'a, b and 1 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
