"""What the tests of prompts share: records turned into prompts, logs read to their
end.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chunkscope.prompts.harness.log import HarnessLog, LogSummary, SentRequest
from chunkscope.prompts.options import SelectOptions, select, selected
from chunkscope.prompts.selection import Prompts, Selection
from chunkscope.report.words import sentence
from chunkscope.sources.base import Chunk, Problems, ReadOptions, Source
from chunkscope.sources.find import discover
from chunkscope.sources.reader import RecordReader

CHAT = [{"role": "user", "content": "hi"}]


def choose(*head: Any, prefix: str = "", **options: Any) -> Selection:
    return select(list(head), SelectOptions(**options), prefix=prefix)


def extract(selection: Selection, *records: Any) -> tuple[Prompts, list[int]]:
    """The prompts, and the positions of bad rows."""
    problems = Problems()
    prompts = selection.extract(
        Chunk(range(1, len(records) + 1), list(records)), problems
    )
    assert problems.count == len(problems.rows)
    assert all(sentence(row.reason) for row in problems.rows)
    return prompts, [row.position for row in problems.rows]


def items(selection: Selection, *records: Any) -> list[Any]:
    prompts, bad = extract(selection, *records)
    assert not bad
    return prompts.items


def codes(notes: Any) -> list[str]:
    return [note.code for note in notes]


@dataclass
class ReadLog:
    """A harness's log, read to its end; `bad` are the positions of rows that could not
    be used.
    """

    log: HarnessLog
    requests: list[SentRequest] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)

    @property
    def summary(self) -> LogSummary:
        kinds = Counter(request.kind for request in self.requests)
        return self.log.summary(dict(kinds), {})


def read_log(source: Path | Source, **options: Any) -> ReadLog:
    counts_texts = options.pop("counts_texts", False)
    if isinstance(source, Path):
        (source,) = discover([str(source)], options=ReadOptions())[0]
    problems = Problems()
    with RecordReader(source, ReadOptions(), problems) as reader:
        selection = selected(
            reader,
            reader.head(),
            SelectOptions(**options),
            {},
            counts_texts=counts_texts,
        )
        assert selection.log, selection.label
        result = ReadLog(selection.log)
        columns = None if selection.columns is None else sorted(selection.columns)
        for chunk in reader.chunks(columns):
            prompts = selection.extract(chunk, problems)
            result.requests += prompts.items
            result.positions += prompts.positions
    assert all(sentence(row.reason) for row in problems.rows)
    result.bad = [row.position for row in problems.rows]
    return result


def lm_eval_sample(doc_id: int, *arguments: list[Any], **more: Any) -> dict[str, Any]:
    """A row of lm-eval's samples, with the arguments of each request."""
    groups = {
        f"gen_args_{i}": {f"arg_{j}": value for j, value in enumerate(given)}
        for i, given in enumerate(arguments)
    }
    answers = [[["-1.0", "False"]] for _ in arguments]
    return {"doc_id": doc_id, "doc": {}, "arguments": groups, "resps": answers, **more}


def lengths(dataset: dict[str, Any]) -> dict[int, int]:
    """How many prompts of a dataset in a profile's JSON have how many tokens."""
    return {
        int(tokens): count for tokens, count in dataset["lengths"]["counts"].items()
    }
