"""What sentences are made of: an entry of the catalogue of notes, names, capitals."""

from collections.abc import Callable, Sequence

# A template of `str.format`, or a function of the note's values.
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


def capital(text: str) -> str:
    """The text with a capital first letter, unless it starts with a name.

    >>> capital("the engine died"), capital("max_num_seqs is low"), capital("vLLM died")
    ('The engine died', 'max_num_seqs is low', 'vLLM died')
    """
    word = text.partition(" ")[0]
    if word.isalpha() and word.islower():
        return text[0].upper() + text[1:]
    return text
