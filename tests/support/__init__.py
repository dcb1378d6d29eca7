"""Helpers that tests of several packages share, in plain Python and without batchval."""
