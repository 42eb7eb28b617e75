"""vLLM as data: its settings, flags, rules and logs, in its own words."""
