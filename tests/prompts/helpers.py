"""What the tests of prompts share: records -> prompts, logs read to their end."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chunkscope.prompts.choose import choose_field, choose_prompt
from chunkscope.prompts.harness.log import HarnessLog, LogSummary, SentRequest
from chunkscope.prompts.options import SelectOptions
from chunkscope.prompts.prompt import LogReader, Prompt, PromptReader, read_prompts
from chunkscope.report.notes import sentence
from chunkscope.sources.base import Chunk, Problems, ReadOptions, Source
from chunkscope.sources.find import discover
from chunkscope.sources.reader import RecordReader

CHAT = [{"role": "user", "content": "hi"}]


def choose(*head: Any, prefix: str = "", **options: Any) -> PromptReader:
    return choose_field(list(head), SelectOptions(**options), prefix=prefix)


def extract(reader: PromptReader, *records: Any) -> tuple[list[Prompt], list[int]]:
    """The prompts, and the positions of bad rows."""
    problems = Problems()
    chunk = Chunk(range(1, len(records) + 1), list(records))
    prompts = read_prompts(reader, chunk, problems)
    assert problems.count == len(problems.rows)
    assert all(sentence(row.reason) for row in problems.rows)
    return prompts, [row.position for row in problems.rows]


def items(reader: PromptReader, *records: Any) -> list[Any]:
    prompts, bad = extract(reader, *records)
    assert not bad
    return [prompt.content for prompt in prompts]


def codes(notes: Any) -> list[str]:
    return [note.code for note in notes]


@dataclass
class ReadLog:
    """A harness's log, read to its end; `bad` are positions of unusable rows."""

    log: HarnessLog
    requests: list[SentRequest] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)

    @property
    def summary(self) -> LogSummary:
        kinds = Counter(request.kind for request in self.requests)
        return self.log.summary(dict(kinds), {})


def read_log(
    source: Path | Source, *, counts_texts: bool = False, **options: Any
) -> ReadLog:
    if isinstance(source, Path):
        (source,) = discover([str(source)], options=ReadOptions())[0]
    problems = Problems()
    with RecordReader(source, ReadOptions(), problems) as records:
        reader = choose_prompt(
            records,
            records.head(),
            SelectOptions(**options),
            counts_texts=counts_texts,
        )
        assert isinstance(reader, LogReader), reader.label
        result = ReadLog(reader.log)
        for chunk in records.chunks():
            for prompt in read_prompts(reader, chunk, problems):
                assert prompt.request is not None
                result.requests.append(prompt.request)
                result.positions.append(prompt.position)
    assert all(sentence(row.reason) for row in problems.rows)
    result.bad = [row.position for row in problems.rows]
    return result


def lm_eval_sample(doc_id: int, *arguments: list[Any], **more: Any) -> dict[str, Any]:
    """A row of lm-eval's samples, with the arguments of each request."""
    groups = {}
    for number, values in enumerate(arguments):
        named = {f"arg_{place}": value for place, value in enumerate(values)}
        groups[f"gen_args_{number}"] = named
    answers = [[["-1.0", "False"]] for _ in arguments]
    return {"doc_id": doc_id, "doc": {}, "arguments": groups, "resps": answers, **more}


def lengths(dataset: dict[str, Any]) -> dict[int, int]:
    """How many prompts of a dataset in a profile's JSON have how many tokens."""
    counts = dataset["lengths"]["counts"]
    return {int(tokens): count for tokens, count in counts.items()}
