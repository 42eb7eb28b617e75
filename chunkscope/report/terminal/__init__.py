"""What each command shows on a terminal: one file for each thing that is shown."""
