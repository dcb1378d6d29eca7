"""Batches of one format made of those of another, and without aborted records."""
