"""Kafka's log segments on disk or in an object store (remote.py), validated batch by batch."""
