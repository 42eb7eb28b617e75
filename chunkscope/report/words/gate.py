"""What is said of the gate's checks."""

from chunkscope.report.words import Template

SENTENCES: dict[str, Template] = {}
