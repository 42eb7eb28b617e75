"""Files, archives, hub sets, remote addresses -> records."""
