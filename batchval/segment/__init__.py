"""Kafka's log segments on disk: read by pread, validated batch by batch."""
