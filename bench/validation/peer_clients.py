"""Other libraries that read batches, for worker.py: each parses and checks the CRC, and makes every
record.

That is all they offer: none validates a batch, so their work is not the same. ``header`` stops
before the records. crc32c and google-crc32c are there for the checksum alone.
"""

from __future__ import annotations

from bench.validation.worker import Job


def _count(statement: str, names: dict[str, object]) -> Job:
    exec(f"def once(data):\n{statement}", names)
    once = names["once"]
    return Job(
        "once(data)", {"once": once, "data": names["data"]}, 1, {"records": once(names["data"])}
    )


def _aiokafka(data: bytes, records: bool) -> Job:
    import aiokafka.record._crecords.default_records  # the C extension, or nothing  # noqa: F401
    from aiokafka.record.memory_records import MemoryRecords

    walk = "        for record in batch: n += 1\n" if records else "        n += 1\n"
    body = (
        "    n = 0\n    batches = MemoryRecords(data)\n"
        "    while batches.has_next():\n        batch = batches.next_batch()\n        assert batch.validate_crc()\n"
        + walk
        + "    return n\n"
    )
    return _count(body, {"MemoryRecords": MemoryRecords, "data": data})


def _kafka_python(data: bytes, records: bool) -> Job:
    from kafka.record import util
    from kafka.record.memory_records import MemoryRecords

    if util.crc32c_c is None:
        raise RuntimeError("kafka-python without the crc32c package is another peer")
    walk = "        for record in batch: n += 1\n" if records else "        n += 1\n"
    body = (
        "    n = 0\n    for batch in MemoryRecords(data):\n        assert batch.validate_crc()\n"
        + walk
        + "    return n\n"
    )
    return _count(body, {"MemoryRecords": MemoryRecords, "data": data})


def _crc32c(data: bytes) -> Job:
    import crc32c

    return Job(
        "crc32c(data)", {"crc32c": crc32c.crc32c, "data": data}, 1, {"crc": crc32c.crc32c(data)}
    )


def _google_crc32c(data: bytes) -> Job:
    import google_crc32c

    if google_crc32c.implementation != "c":
        raise RuntimeError("google-crc32c without its C extension is another peer")
    return Job(
        "value(data)",
        {"value": google_crc32c.value, "data": data},
        1,
        {"crc": google_crc32c.value(data)},
    )


PEERS = {
    "aiokafka": {
        "records": lambda data: _aiokafka(data, True),
        "header": lambda data: _aiokafka(data, False),
    },
    "kafka-python": {
        "records": lambda data: _kafka_python(data, True),
        "header": lambda data: _kafka_python(data, False),
    },
    "crc32c": {"crc32c": _crc32c},
    "google-crc32c": {"crc32c": _google_crc32c},
}
