"""Load: bytes to one normalised text per document."""
