"""The version, where every part can read it without loading another."""

__version__ = "0.1.0"
