"""The gate: a proxy that speaks Kafka's wire, with the engine in it. docs/proxy-configuration.md says what it takes.

``config`` the settings, ``tls`` certificates and who a client is, ``policies`` what each topic allows, ``metrics`` and
``health`` what can be asked of it, ``refusals`` what it writes about batches that it turned away.

The data path: ``server`` has the listeners, one a broker, and all connections; ``downstream`` is a client's connection
and its answers in order, ``upstream`` the one to the broker behind it; ``gate`` judges a produce request, ``cluster``
keeps brokers' own addresses from clients; ``options`` is what they are told.
"""

from batchval.optional import require

require(__name__)
