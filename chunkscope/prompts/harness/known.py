"""Which harness wrote this, if any did."""

from collections.abc import Sequence
from typing import Any

from chunkscope.prompts.harness.eval_scope import EvalScopeLog
from chunkscope.prompts.harness.helm import HelmLog
from chunkscope.prompts.harness.inspect_log import InspectLog
from chunkscope.prompts.harness.lighteval import LightevalLog
from chunkscope.prompts.harness.lm_eval import LmEvalLog
from chunkscope.prompts.harness.open_compass import OpenCompassLog
from chunkscope.prompts.harness.openai_evals import OpenAiEvalsLog
from chunkscope.prompts.harness.promptfoo import PromptfooLog
from chunkscope.prompts.harness.request import HarnessLog
from chunkscope.prompts.harness.simple_evals import SimpleEvalsLog
from chunkscope.sources.reader import RecordReader

LOGS: tuple[type[HarnessLog], ...] = (
    LmEvalLog,
    InspectLog,
    HelmLog,
    LightevalLog,
    OpenCompassLog,
    OpenAiEvalsLog,
    SimpleEvalsLog,
    EvalScopeLog,
    PromptfooLog,
)


def recognise(head: Sequence[Any], reader: RecordReader) -> HarnessLog | None:
    """The reader of a harness's log, found by the keys of its first records."""
    for log in LOGS:
        if found := log.recognise(head, reader):
            return found
    return None
