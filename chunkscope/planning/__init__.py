"""From lengths, a model and a GPU to a plan: what to set, and what it brings."""
