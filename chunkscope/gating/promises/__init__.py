"""One module per table of the budget: evidence x limits -> verdicts."""
