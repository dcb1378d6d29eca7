"""What any part of a gate may use: sockets, files, states, names. No part of it knows a client."""
