"""Flows: wiring only. What is wired is in ``tasks``; who runs it is in ``runner``."""
