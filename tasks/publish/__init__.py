"""Publish: passages, catalog, BM25 and vectors of a candidate snapshot, its verification, and the flip."""
