"""Notes about models, GPUs, memory and plans, as text."""

from chunkscope.report.notes import NoteText

NOTES: dict[str, NoteText] = {}
