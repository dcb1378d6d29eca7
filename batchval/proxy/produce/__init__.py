"""Validation of Produce requests: policies, verdicts, long work, copies of refused batches."""
