"""The decision about one batch: Kafka's three paths, claims, and a call's arguments."""
