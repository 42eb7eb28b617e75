"""Notes about simulated and measured runs, as text."""

from chunkscope.report.notes import NoteText

NOTES: dict[str, NoteText] = {}
