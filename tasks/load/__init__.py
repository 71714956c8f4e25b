"""Load: bytes of one file to one normalised text with what the document states about itself."""
