"""Native walks over frames that decode only what is asked for: a proxy passes on the rest as it
came.

``positions`` finds the fields that a proxy needs, ``fetch_layout`` is the layout of Fetch answers
that are read while they come (both generated). ``produce``, ``produce_answer``,
``addresses`` and ``fetch_tail`` read requests and responses by them, and write them again with
other values. ``topic_ids`` and ``broker_requests`` read alone.
"""
