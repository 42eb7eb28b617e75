"""`--each`: a list of a record stands for so many prompts, which share the rest of the record."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chunkscope.errors import UsageError
from chunkscope.prompts.fields import FieldPath, Step, UnusableError, describe
from chunkscope.prompts.selection import Prompts, Selection
from chunkscope.sources.base import Chunk, Problems


@dataclass(frozen=True, slots=True, kw_only=True)
class EachSelection(Selection):
    """What `one` selects of every record that is left when a list becomes one of its elements."""

    lists: tuple[FieldPath, ...]
    one: Selection

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        positions: list[int] = []
        records: list[Any] = []
        answers = self.output.key if self.output else None
        for position, record in zip(chunk.positions, chunk.records, strict=True):
            try:
                made = list(spread(record, self.lists, answers))
            except UnusableError as error:
                problems.bad(position, str(error))
                continue
            records += made
            positions += [position] * len(made)
        return self.one.extract(Chunk(positions, records), problems)

    def _item(self, record: Any) -> Any:
        return self.one._item(record)


def each(lists: Sequence[FieldPath], one: Selection, *notes: str) -> EachSelection:
    columns = {path.column for path in lists}
    known = one.columns is not None and None not in columns
    return EachSelection(
        kind=one.kind,
        label=f"{one.label}, each of {', '.join(path.text for path in lists)}",
        columns=frozenset({*(one.columns or ()), *filter(None, columns)}) if known else None,
        output=one.output,
        notes=(*one.notes, *notes),
        left_out=one.left_out,
        remarks=one.remarks,
        lists=tuple(lists),
        one=one,
    )


def spread(record: Any, lists: Sequence[FieldPath], answers: str | None = None) -> Iterator[Any]:
    """The record once for each element, which stands where the list was, beside its answer.

    >>> list(spread({"doc": "d", "q": ["a", "b"]}, [FieldPath.to("q")]))
    [{'doc': 'd', 'q': 'a'}, {'doc': 'd', 'q': 'b'}]
    """
    if not lists:
        yield record
        return
    path = lists[0]
    elements = path.get(record)
    if not isinstance(elements, list):
        raise UnusableError(f'field "{path.text}" is {describe(elements)}, not a list')
    beside = record.get(answers) if answers != path.key else None
    paired = beside if isinstance(beside, list) and len(beside) == len(elements) else None
    for place, element in enumerate(elements):
        one = _with(record, path.steps, element)
        if paired is not None:
            one = {**one, answers: paired[place]}
        yield from spread(one, lists[1:], answers if paired is None else None)


def spread_head(head: Sequence[Any], lists: Sequence[FieldPath]) -> list[Any]:
    """The first records, spread; those without the list are left out."""
    found: list[Any] = []
    for record in head:
        try:
            found += spread(record, lists)
        except UnusableError:
            continue
    if not found:
        names = ", ".join(path.text for path in lists)
        raise UsageError(f"no record has a list at {names}", hint="--each takes a list of a record")
    return found


def _with(value: Any, steps: Sequence[Step], element: Any) -> Any:
    """A copy that has another value at that place."""
    if not steps:
        return element
    step = steps[0]
    if not isinstance(step, str):
        raise UsageError("--each takes the name of a list", hint="such as --each instructions")
    return {**value, step: _with(value[step], steps[1:], element)}
