"""What an operator sees of a gate: metrics, log lines, clients, and what each sender has used."""
