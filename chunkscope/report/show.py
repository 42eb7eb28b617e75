"""What is shown of an artefact: its blocks, which every renderer draws.

Modules are imported when they are needed: `analyze` has no use for plans.
"""

from chunkscope.lengths.profile import Profile
from chunkscope.report.blocks import Block, Headline


def blocks(artefact: object) -> list[Block]:
    """Everything there is to show of it: the answer first, details last."""
    if isinstance(artefact, Profile):
        from chunkscope.report.profile import profile_blocks

        return profile_blocks(artefact)
    from chunkscope.gating.check import GateResult
    from chunkscope.report.prefixes import PrefixSummary, prefix_blocks

    if isinstance(artefact, PrefixSummary):
        return prefix_blocks(artefact)
    if isinstance(artefact, GateResult):
        from chunkscope.report.gate import gate_blocks

        return gate_blocks(artefact)
    return _engine_blocks(artefact)


def _engine_blocks(artefact: object) -> list[Block]:
    """Blocks of what is about an engine."""
    from chunkscope.diagnosis.diagnosis import Diagnosis
    from chunkscope.planning.plan import Plan
    from chunkscope.simulation.result import Simulation
    from chunkscope.verification.result import Verification
    from chunkscope.vllm.footprint import Footprint

    if isinstance(artefact, Plan):
        from chunkscope.report.plan import plan_blocks

        return plan_blocks(artefact)
    if isinstance(artefact, Footprint):
        from chunkscope.report.footprint import footprint_blocks

        return footprint_blocks(artefact)
    if isinstance(artefact, Simulation):
        from chunkscope.report.simulation import simulation_blocks

        return simulation_blocks(artefact)
    if isinstance(artefact, Verification):
        from chunkscope.report.verification import verification_blocks

        return verification_blocks(artefact)
    if isinstance(artefact, Diagnosis):
        from chunkscope.report.diagnosis import diagnosis_blocks

        return diagnosis_blocks(artefact)
    return _other_blocks(artefact)


def _other_blocks(artefact: object) -> list[Block]:
    """Blocks of a folder of results and of the demo, which needs torch."""
    from chunkscope.findings import Findings
    from chunkscope.reference.demo import Demonstration

    if isinstance(artefact, Findings):
        from chunkscope.report.folder import folder_blocks

        return folder_blocks(artefact)
    if isinstance(artefact, Demonstration):
        from chunkscope.report.demo import demo_blocks

        return demo_blocks(artefact)
    raise TypeError(f"nothing is shown of a {type(artefact).__name__}")


def headline(artefact: object) -> str:
    """The answer in a sentence or two."""
    for block in blocks(artefact):
        if isinstance(block, Headline):
            return block.text
    return ""
