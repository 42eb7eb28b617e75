"""What `verify` is asked, and who hears of its progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chunkscope.artefacts.files import several
from chunkscope.artefacts.note import one_of
from chunkscope.console import Progress
from chunkscope.errors import UsageError
from chunkscope.simulation.outputs import OutputLengths, read_output
from chunkscope.simulation.slo import Slo
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.settings import USUALLY, parse_engine_args
from chunkscope.vllm.check import vllm_python
from chunkscope.vllm.enums import SendOrder, Task

NOTHING = "none"  # `--against none`
LEAST = {"repeats": 1, "timeout_s": 1, "time_limit_s": 1, "shared_prefix": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What to send, against what, and how to start the engine.

    None: as the plan has it.
    """

    model: str | None = None
    against: Sequence[str] = USUALLY
    also: Sequence[str] = ()
    requests: int = 200
    seed: int = 0
    arrivals: str | None = None
    task: Task | None = None
    max_output: int | None = None
    output: OutputLengths | None = None
    samples: int | None = None
    shared_prefix: int | None = None
    order: SendOrder | None = None
    slo: Slo = ()
    concurrency: int | None = None
    samples_at_once: int | None = None
    e2e_timeout_s: float | None = None
    together: bool = False
    time_limit_s: float | None = None  # of a repeat: what has not ended is given up
    check_outputs: bool = False
    repeats: int = 3
    timeout_s: float = 1_800
    load_format: str = "auto"
    trust_remote_code: bool = False
    engine_args: dict[str, Any] = field(default_factory=dict)
    data: Sequence[str] = ()
    tokenizer: str | None = None
    python: str = field(default_factory=vllm_python)
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} must be at least {least}, not {value:g}")
        if self.shared_prefix is not None and self.data:
            raise UsageError(
                "shared_prefix and --data cannot be used together",
                hint="leave one of them out: real prompts have their own prefixes",
            )


def read_options(options: VerifyOptions) -> VerifyOptions:
    """The options with their words read, such as `task="loglikelihood"`."""
    task = one_of(Task, options.task, "task") if options.task else None
    order = one_of(SendOrder, options.order, "order") if options.order else None
    against = []
    for text in several(options.against):
        names = [name for name in text.split(",") if name not in ("", NOTHING)]
        against += names
    output = options.output
    if isinstance(output, str | int):  # as people write it
        output = read_output(output)
    engine_args = options.engine_args
    if not isinstance(engine_args, dict):  # as `--engine-arg` has them
        engine_args = parse_engine_args(several(engine_args))
    if options.trust_remote_code:
        engine_args = {**engine_args, "trust_remote_code": True}
    return replace(
        options,
        task=task,
        order=order,
        output=output,
        against=tuple(against),
        also=several(options.also),
        data=several(options.data),
        engine_args=engine_args,
    )


def nobody_is_told(run: Run, log: str) -> None:
    """What to do with a run that failed, where nobody wants to hear of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where the artefact is written after every row, and who hears of progress."""

    output: Path = Verification.default_path
    listener: Progress = field(default_factory=Progress)
    on_failure: Callable[[Run, str], None] = nobody_is_told  # and the engine's log
