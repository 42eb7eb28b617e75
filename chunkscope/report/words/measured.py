"""What is said of measured runs: verdicts and comparisons."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chunkscope.report.words import Template

if TYPE_CHECKING:
    from chunkscope.planning.plan import Plan
    from chunkscope.verification.result import Verification

SENTENCES: dict[str, Template] = {}


def measured_elsewhere(plan: "Plan", verification: "Verification") -> Iterator[str]:
    """Where the plan was made for another vLLM or GPU than it was measured on."""
    machine = verification.machine
    if machine is None:
        return
    planned = plan.release.text
    if machine.vllm and planned.split(".")[:2] != machine.vllm.split(".")[:2]:
        yield (
            f"the plan was made for vLLM {planned}, this is {machine.vllm}: plan again with "
            f"`chunkscope recommend --vllm-version {machine.vllm}`"
        )
    if machine.gpu and plan.gpu and plan.gpu.title != machine.gpu:
        yield f"the plan was made for {plan.gpu.title}, this is {machine.gpu}"
