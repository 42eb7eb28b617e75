"""What harnesses sent: their logs, recognised by the keys of their records, and their tasks."""

from collections.abc import Sequence
from typing import Any

from chunkscope.prompts.harness.inspect_log import InspectLog
from chunkscope.prompts.harness.lighteval import LightevalLog
from chunkscope.prompts.harness.lm_eval import LmEvalLog
from chunkscope.prompts.harness.log import HarnessLog
from chunkscope.prompts.harness.small import (
    EvalScopeLog,
    HelmLog,
    OpenAiEvalsLog,
    OpenCompassLog,
    PromptfooLog,
    SimpleEvalsLog,
)
from chunkscope.sources.reader import RecordReader

LOGS: tuple[type[HarnessLog], ...] = (
    *(LmEvalLog, InspectLog, HelmLog, LightevalLog, OpenCompassLog, OpenAiEvalsLog),
    *(SimpleEvalsLog, EvalScopeLog, PromptfooLog),
)


def recognise(head: Sequence[Any], reader: RecordReader) -> HarnessLog | None:
    """The reader of a harness's log, found by the keys of its first records."""
    logs = (log.recognise(head, reader) for log in LOGS)
    return next(filter(None, logs), None)
