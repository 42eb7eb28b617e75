"""From prompts to exact lengths: counting, the cache, the profile. Nothing of vLLM comes in."""
