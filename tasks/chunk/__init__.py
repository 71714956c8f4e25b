"""Chunk: text to parents and children."""
