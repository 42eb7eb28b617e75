"""What an engine's log or metrics say limited it, and what to change."""
