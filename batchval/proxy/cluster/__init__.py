"""The brokers of a cluster: which there are, whether they serve, and the ports for them."""
