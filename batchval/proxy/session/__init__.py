"""One client: its two connections, its requests and their answers, until its end."""
