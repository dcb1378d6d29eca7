"""A client of Kafka brokers for one asyncio loop. It sends and receives whole frames and does not
read their contents.

``connection`` is one pipelined connection, ``in_flight`` its only cap, ``network_client`` the
connections to all nodes,
``client`` what Kafka calls ConsumerNetworkClient, ``future`` its RequestFuture;
``metadata`` who leads what, ``coordinator`` who coordinates, ``security`` and ``sasl`` who may.
docs/reference/library/network.md says how they behave.
"""
