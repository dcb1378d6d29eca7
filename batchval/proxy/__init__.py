"""The gate: a proxy that speaks Kafka's wire protocol, with the engine in it.

See docs/concepts/gate.md and docs/reference/proxy/settings.md.

    client_connection ─ frames ─▶ session ─ frames ─▶ broker_connection
                                  │  handlers: requests and answers of each API
                                  │  fast_path: the ordinary frames, in native code
                                  │  gate: validates a Produce request; in threads if it takes long
    server: one listener and its sessions;  budget: what all of them may hold

``config``, ``loading``, ``values``, ``secret``: the settings.  ``assemble``: from settings to a
running gate.
"""

from batchval.optional import require

require(__name__)
