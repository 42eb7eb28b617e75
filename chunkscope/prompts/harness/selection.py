"""The requests of a harness's log as prompts: several may come of one row, or none."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from chunkscope.prompts.chat import Conversation, plain_text
from chunkscope.prompts.fields import UnusableError
from chunkscope.prompts.harness.request import HarnessLog, SentRequest
from chunkscope.prompts.selection import (
    Kind,
    Prompts,
    Selection,
    SelectOptions,
    check_unicode,
)
from chunkscope.sources.base import Chunk, Problems


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSelection(Selection):
    """What a harness sent, row by row. Its state is the log's: it goes through a file once."""

    kind: Kind = "requests"
    log: HarnessLog
    chat: bool = True

    def extract(self, chunk: Chunk, problems: Problems) -> Prompts:
        prompts = Prompts([], [], None)
        records = zip(chunk.positions, chunk.records, strict=True)
        rows = chain.from_iterable(self.log.rows(at, record) for at, record in records)
        for position, row in rows:
            try:
                found = list(self._item(row))
            except UnusableError as error:
                problems.bad(position, str(error))
                continue
            prompts.positions.extend([position] * len(found))
            prompts.items.extend(found)
        return prompts

    def _item(self, record: object) -> Iterator[SentRequest]:
        for request in self.log.requests(record):
            for part in (request.prompt, request.continuation, request.output):
                check_unicode(part)
            if isinstance(request.prompt, Conversation) and not self.chat:
                request = replace(request, prompt=plain_text(request.prompt.messages))
            yield request


def of_log(log: HarnessLog, options: SelectOptions) -> RequestSelection:
    unused = {
        "prefix": options.prefix,
        "choices field": options.choices,
        "output field": options.output_field,
    }
    return RequestSelection(
        label=f"requests ({log.harness})",
        log=log,
        chat=options.chat,
        columns=log.columns,
        notes=tuple(
            f"the {name} was not used: a log has what was sent and answered"
            for name, given in unused.items()
            if given
        ),
    )
