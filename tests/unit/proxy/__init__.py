"""The gate, between clients and brokers of every sort."""
