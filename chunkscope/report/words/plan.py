"""What is said of a plan and of a simulated run: advice, reasons, warnings."""

from chunkscope.report.words import Template

SENTENCES: dict[str, Template] = {}
