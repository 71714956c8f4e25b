"""Chunk: text to parent and child spans."""
