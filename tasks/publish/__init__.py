"""Publish: the stores that readers use, the snapshot that names them, and the flip."""
