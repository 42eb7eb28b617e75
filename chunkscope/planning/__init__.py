"""From lengths, a model and a GPU to a plan: what to set, what it brings. No engine runs here."""
