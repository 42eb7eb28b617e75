"""What lies on disk: reading, checking, writing and digesting it. Any part may come in."""
