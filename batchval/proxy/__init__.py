"""The gate: a proxy that speaks Kafka's wire protocol, with the engine in it.

See docs/concepts/gate.md and docs/reference/proxy/settings.md.

    ClientConnection ─ frames ─▶ session ─ frames ─▶ BrokerConnection
                                  │  handlers: requests and answers of each API
                                  │  fast_path: the ordinary frames, in native code
                                  │  gate: validates a Produce request; in threads if it takes long
    server: one listener and its sessions;  budget: what all of them may hold

Its folders, highest first; an import runs down from one to the next:

    workers    several processes that serve the same ports
    life       the process: assembled from settings, reloaded, handed over, stopped; HTTP pages
    session    one client: its connections, its requests and their answers
    produce    validation of Produce requests
    watch      what an operator sees: metrics, log lines, clients, senders
    cluster    the brokers of the cluster, and the ports that stand for them
    tls        contexts, server names, handshakes
    settings   from a file and the command line to the options of the data path
    kit        what any of them may use: sockets, files, states, names
"""

from batchval.optional import require

require(__name__)
