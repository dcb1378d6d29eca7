"""A runner for the record parsers of kafka-python and aiokafka, profile reader.

    python conformance/runners/python_reader.py kafka-python|aiokafka

Parses each batch as the library's consumer does with ``check_crcs``: MemoryRecords, the checksum of
each batch, then every record with its key, value and headers.
"""

from __future__ import annotations

import base64
import json
import sys
from importlib import import_module
from typing import Any

MODULES = {
    "kafka-python": "kafka.record.memory_records",
    "aiokafka": "aiokafka.record.memory_records",
}


def decode(memory_records: Any, data: bytes) -> int:
    """Return the number of records. An exception of any type is a refusal."""
    records = memory_records(data)
    if not records.has_next():
        # before the first batch, both consumers report bytes without a whole batch as an error
        raise ValueError("no whole batch")
    count = 0
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError("checksum")
        for record in batch:
            _ = (record.offset, record.timestamp, record.key, record.value, record.headers)
            count += 1
    return count


def main() -> None:
    """Judge one case a line."""
    memory_records = import_module(MODULES[sys.argv[1]]).MemoryRecords
    for line in sys.stdin:
        case = json.loads(line)
        verdict: dict[str, Any] = {"id": case["id"]}
        try:
            verdict |= {
                "accept": True,
                "records": decode(memory_records, base64.b64decode(case["batch"])),
            }
        except Exception as error:
            verdict |= {"accept": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
