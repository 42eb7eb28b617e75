"""What does happen: settings on a real engine or server, measured and compared."""
