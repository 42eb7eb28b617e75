"""Artefacts -> what people and machines read: terminal, CSV, Markdown."""
