"""Until it is rewritten: verification as sections, made blocks."""

from chunkscope.verification.result import Verification
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.runs import measured_sections


def verification_blocks(artefact: Verification) -> list[Block]:
    return blocks_of(measured_sections(artefact))
