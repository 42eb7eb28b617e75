"""Files, archives, hub sets, remote addresses -> records."""

from chunkscope.sources import (
    hub,
    json_rows,
    tables,
)  # which register the formats they read

__all__ = ["hub", "json_rows", "tables"]
