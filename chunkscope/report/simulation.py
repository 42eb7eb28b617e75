"""Until it is rewritten: simulation as sections, made blocks."""

from chunkscope.simulation.result import Simulation
from chunkscope.report.adapter import blocks_of
from chunkscope.report.blocks import Block
from chunkscope.report.runs import simulated_sections


def simulation_blocks(artefact: Simulation) -> list[Block]:
    return blocks_of(simulated_sections(artefact))
