"""Batches of a Fetch answer, converted down for old consumers."""
