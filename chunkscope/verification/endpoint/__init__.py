"""A server that is already running: what it is, what it is asked, what it answers and when."""
