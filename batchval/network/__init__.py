"""A client of Kafka brokers for one asyncio loop. It sends and receives whole frames and does not
read their contents.

``connection`` is one pipelined connection, ``in_flight`` its only cap, ``network_client`` the
connections to all nodes, ``client`` what Kafka calls ConsumerNetworkClient, ``future`` its
RequestFuture. ``cluster_metadata`` knows the leaders, ``coordinator`` the coordinators;
``security`` and ``sasl`` authenticate.
docs/reference/library/network.md says how they behave.
"""
