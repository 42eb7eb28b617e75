"""Artefacts and verdicts -> what people and machines read: text, page, Markdown."""
