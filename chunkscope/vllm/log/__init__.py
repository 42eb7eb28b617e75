"""vLLM's log, read by message and never by prefix."""
