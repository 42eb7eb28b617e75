"""What is said of measured runs: verdicts and comparisons."""

from chunkscope.report.words import Template

SENTENCES: dict[str, Template] = {}
