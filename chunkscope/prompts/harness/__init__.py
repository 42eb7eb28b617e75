"""What harnesses sent: their logs, recognised by the keys of their rows, and their tasks."""

from chunkscope.prompts.harness import inspect_log, lm_eval, small
from chunkscope.prompts.harness.log import HarnessLog
from chunkscope.sources.reader import Format, register

LOGS: tuple[type[HarnessLog], ...] = (
    *(lm_eval.LmEvalLog, small.HelmLog, small.LightevalLog, small.OpenCompassLog),
    *(
        small.OpenAiEvalsLog,
        small.SimpleEvalsLog,
        small.EvalScopeLog,
        small.PromptfooLog,
    ),
)

# What `sources` cannot know of files: which belong to a harness, and how to read them.
register(
    Format(
        name=inspect_log.FORMAT,
        suffixes=(".eval",),
        rows=inspect_log.inspect_rows,
        claims_start=inspect_log.STARTS_LIKE_JSON.match,
        claims_members=inspect_log.is_inspect_zip,
        task_name=inspect_log.NAME,
    ),
    Format(task_name=lm_eval.SAMPLES_NAME, skip_reason=lm_eval.skip_reason),
    Format(skip_reason=small.skip_reason),
)
