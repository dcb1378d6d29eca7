"""The gate: a proxy that speaks Kafka's wire, with the engine in it. docs/proxy-configuration.md says what it takes.

``config`` the settings, ``tls`` certificates and who a client is, ``policies`` what each topic allows, ``metrics`` and
``health`` what can be asked of it, ``refusals`` what it writes about batches that it turned away.
"""
