"""The records of a fetched partition, walked. The engine's own file is batches/fetched.pyx."""

from batchval.core.batches.fetched import Fetched, walk_fetched

__all__ = ["Fetched", "walk_fetched"]
