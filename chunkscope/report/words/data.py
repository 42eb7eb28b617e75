"""What is said of data: files, prompts, lengths, what they share."""

from chunkscope.report.words import Template

SENTENCES: dict[str, Template] = {}
