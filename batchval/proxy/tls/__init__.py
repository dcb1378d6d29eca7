"""TLS on both sides: contexts, server names, and the handshakes of clients."""
