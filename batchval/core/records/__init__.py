"""The records of a batch, walked once, and what a topic's rules ask of them."""
