"""Notes about files, prompts, lengths, logs of engines and the gate, as text."""

from chunkscope.report.notes import NoteText

NOTES: dict[str, NoteText] = {}
