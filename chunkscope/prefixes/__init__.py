"""What prompts share, by the rule of vLLM's prefix cache."""
