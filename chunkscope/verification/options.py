"""What `verify` is asked, and who hears of its progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chunkscope.console import Progress
from chunkscope.errors import UsageError
from chunkscope.simulation.outputs import OutputLengths
from chunkscope.simulation.slo import Slo
from chunkscope.verification.result import Run, Verification
from chunkscope.verification.settings import USUALLY
from chunkscope.vllm.check import vllm_python

LEAST = {"repeats": 1, "timeout_s": 1, "time_limit_s": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What to send, against what, and how to start the engine.

    None: as the plan has it.
    """

    model: str | None = None
    against: Sequence[str] = USUALLY
    also: Sequence[str] = ()
    requests: int = 200
    arrivals: str | None = None
    max_output: int | None = None
    output: OutputLengths | None = None
    samples: int | None = None
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
    python: str = field(default_factory=vllm_python)
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} must be at least {least}, not {value:g}")

    @property
    def arguments(self) -> dict[str, Any]:
        """Of every engine."""
        if self.trust_remote_code:
            return {**self.engine_args, "trust_remote_code": True}
        return self.engine_args


def nobody_is_told(run: Run, log: str) -> None:
    """What to do with a run that failed, where nobody wants to hear of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where the artefact is written after every row, and who hears of progress."""

    output: Path = Verification.default_path
    listener: Progress = field(default_factory=Progress)
    on_failure: Callable[[Run, str], None] = nobody_is_told  # and the engine's log
