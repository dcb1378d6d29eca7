"""A client of Kafka brokers for one asyncio loop: whole frames out, whole frames in, never a look at what they carry.

``connection`` is one pipelined connection, ``in_flight`` its only cap, ``network_client`` the connections to all nodes,
``client`` what Kafka calls ConsumerNetworkClient, ``future`` its RequestFuture. docs/network.md says how they behave.
"""
