"""From a profile, a model and a GPU to a plan: the mode, the arguments and what they bring."""
