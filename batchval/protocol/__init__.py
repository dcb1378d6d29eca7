"""Kafka's wire protocol as bytes: frames in, offsets and values out. Without I/O; record batches
stay opaque.

``frames`` cuts a stream into frames. ``primitives`` reads and writes the types that every message
is made of. ``messages`` holds a class for each request and response (generated), ``walkers`` what a
proxy reads and writes without decoding a whole message.
"""
