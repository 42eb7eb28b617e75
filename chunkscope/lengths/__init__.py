"""From prompts to exact lengths: counting, sessions, the profile."""
