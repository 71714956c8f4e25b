"""Embed: context and chunk to vector."""
