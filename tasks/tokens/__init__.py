"""Tokens: embedded text to the terms of the lexical index."""
