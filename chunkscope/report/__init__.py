"""Artefacts and verdicts -> what people and machines read: terminal, page, Markdown, CSV, XML."""
