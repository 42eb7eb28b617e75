"""Until it is rewritten: demo as sections, made blocks."""

from chunkscope.reference.demo import Demonstration
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.runs import demo_sections


def demo_blocks(artefact: Demonstration) -> list[Block]:
    return blocks_of(demo_sections(artefact))
