"""What harnesses sent: their logs, recognised by the keys of their rows, and their
tasks.
"""

from collections.abc import Callable

from chunkscope.prompts.harness import (
    bailian,
    evalscope,
    harbor,
    helm,
    inspect_file,
    inspect_log,
    lighteval,
    lm_eval,
    mini_swe,
    opencompass,
    sessions,
    tau2,
    trajectory_files,
)
from chunkscope.prompts.harness.log import HarnessLog, LogStart
from chunkscope.sources.formats import Format, LogRules, add_logs

RECOGNISERS: tuple[Callable[[LogStart], HarnessLog | None], ...] = (
    inspect_log.recognise,
    lm_eval.recognise,
    helm.recognise,
    lighteval.recognise,
    opencompass.recognise,
    evalscope.recognise,
    harbor.recognise,
    mini_swe.recognise,
    tau2.recognise,
    bailian.recognise,
    sessions.recognise,
)


def recognise_log(start: LogStart) -> HarnessLog | None:
    """The log that a file is, or None. Raises DataError for one that cannot be read."""
    for recognise in RECOGNISERS:
        log = recognise(start)
        if log is not None:
            return log
    return None


# What `sources` cannot know of files: which belong to a harness, and how to read them.
add_logs(
    formats=[
        Format(
            name=inspect_file.FORMAT,
            suffixes=(".eval",),
            open=inspect_file.InspectRows,
            is_archive=True,
        ),
        Format(name=trajectory_files.FORMAT, open=trajectory_files.TrajectoryRows),
    ],
    rules=[
        LogRules(
            name=inspect_file.FORMAT,
            claims_start=inspect_file.STARTS_LIKE_JSON.match,
            claims_members=inspect_file.is_inspect_zip,
            task_name=inspect_file.NAME,
        ),
        LogRules(
            name=trajectory_files.FORMAT,
            claims_start=trajectory_files.STARTS.match,
            is_sample=True,
        ),
        LogRules(task_name=lm_eval.SAMPLES_NAME, skip_reason=lm_eval.skip_reason),
        LogRules(skip_reason=helm.skip_reason),
    ],
)
