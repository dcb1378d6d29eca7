"""Batches of a Fetch response, converted down for old consumers."""
