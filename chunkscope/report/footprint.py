"""Until it is rewritten: footprint as sections, made blocks."""

from chunkscope.vllm.footprint import Footprint
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.plan import footprint_sections


def footprint_blocks(artefact: Footprint) -> list[Block]:
    return blocks_of(footprint_sections(artefact))
