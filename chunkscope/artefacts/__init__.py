"""What lies on disk: reading, checking, writing and digesting it."""
