"""Contextualize: the short text that places a chunk in its document."""
