"""Record -> prompt: which part of a record is sent, and how."""
