"""Artefacts x budget file -> promises kept or broken: what CI obeys."""
