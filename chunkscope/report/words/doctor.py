"""What is said of an engine's log or metrics."""

from chunkscope.report.words import Template

SENTENCES: dict[str, Template] = {}
