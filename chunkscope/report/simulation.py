"""Until it is rewritten: simulation as sections, made blocks."""

from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.runs import simulated_sections
from chunkscope.simulation.result import Simulation


def simulation_blocks(artefact: Simulation) -> list[Block]:
    return blocks_of(simulated_sections(artefact))
