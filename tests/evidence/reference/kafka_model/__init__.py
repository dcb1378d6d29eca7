"""Kafka 4.4.0's produce path, written down again in plain Python.

The modules follow Kafka's own seams, because its answers depend on them: which exception is caught
where, and in which pieces a decompressor hands out its bytes. From the bottom up: ``java``
(numbers, buffers, exceptions),
``streams`` with one module per codec, ``records`` and ``legacy`` (what is in a batch), ``batches``,
``builder``,
``validator``. ``segment`` judges a log at rest.
"""
