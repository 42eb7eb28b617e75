"""Until it is rewritten: footprint as sections, made blocks."""

from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.plan import footprint_sections
from chunkscope.vllm.footprint import Footprint


def footprint_blocks(artefact: Footprint) -> list[Block]:
    return blocks_of(footprint_sections(artefact))
