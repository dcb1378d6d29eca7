"""batchval decides whether a Kafka record batch may enter a log.

>>> from batchval import LogValidator
>>> result = LogValidator().check(records, now_ms=1_700_000_000_000)
>>> result.ok, result.rule, result.path
"""

__version__ = "0.1.0"
