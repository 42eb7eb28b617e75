"""vLLM as data: its settings, flags, rules and logs; the only room that spells its words."""
