"""Measuring of producers and consumers: Kafka's perf tools, with microseconds and threads."""
