"""From prompts to exact lengths: counting, the cache, the histogram and the profile."""
