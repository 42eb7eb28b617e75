"""A running server: what it is, what it is asked, what it answers and when."""
