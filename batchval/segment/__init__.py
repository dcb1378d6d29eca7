"""Kafka's log segments on disk: read by pread, judged batch by batch."""
