"""What does happen: a plan's settings on a real engine or server, measured and compared."""
