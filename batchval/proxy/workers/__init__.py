"""Several processes that serve the same ports: ``workers: N``.

parent   owns the listening sockets, accepts, admits, and passes each connection to a worker;
         has the port of /metrics, the state files and the signals; reads no byte of a client
worker   one event loop that serves the connections passed to it; listens nowhere
"""
