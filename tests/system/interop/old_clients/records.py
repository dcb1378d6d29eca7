"""The records that every program of this folder sends, their digest, and the report that it prints.

Record ``number`` has a key and a value that depend on the number alone; some have none. The digest
is SHA-256 over key and value of each record, in the order of offsets: int32 length (-1: null) and
bytes. Java and Go have the same functions (java/Report.java, sarama/report.go).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import threading
from collections.abc import Iterable
from typing import Any

__all__ = ["Digest", "Report", "digest_of", "key_of", "value_of"]

Record = tuple[bytes | None, bytes | None]


def key_of(number: int) -> bytes | None:
    """Return the key of a record."""
    return None if number % 50 == 24 else b"key-%d" % number


def value_of(number: int) -> bytes | None:
    """Return the value of a record."""
    return None if number % 50 == 49 else b"value-%d-" % number + b"." * (number % 100)


class Digest:
    """Counts and hashes records."""

    def __init__(self) -> None:
        self.records = 0
        self.disordered = 0
        self._last = -1
        self._hash = hashlib.sha256()

    def begin(self) -> None:
        """Begin a topic, whose offsets start anew."""
        self._last = -1

    def add(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Take in the next record; its offset should be above the last one's."""
        self.disordered += offset <= self._last
        self._last = offset
        self.records += 1
        for data in (key, value):
            self._hash.update(
                struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
            )

    def text(self) -> str:
        """Return the digest of the records so far."""
        return self._hash.hexdigest()


def digest_of(records: Iterable[Record]) -> Digest:
    """Return the digest of these records at offsets 0 and up."""
    digest = Digest()
    for offset, (key, value) in enumerate(records):
        digest.add(offset, key, value)
    return digest


class Report:
    """What one operation has found: a line of JSON, printed once. Arguments are NAME=VALUE.

    A client may wait for ever. After ``seconds`` what is known is printed, and the program ends.
    """

    def __init__(self, pairs: list[str]) -> None:
        self.arguments = dict(pair.split("=", 1) for pair in pairs)
        self.fields: dict[str, Any] = {}
        self.digest = Digest()
        self._lock = threading.Lock()
        seconds = self.arguments["seconds"]
        late = TimeoutError(f"not finished after {seconds} s")
        limit = threading.Timer(int(seconds), self.print, [late])
        limit.daemon = True
        limit.start()

    @property
    def topics(self) -> list[str]:
        """Return the topics, of which only produce and consume have several."""
        return self.arguments["topic"].split(",")

    @property
    def topics_and_codecs(self) -> list[tuple[str, str]]:
        """Return the topics to produce to, each with its codec."""
        return list(zip(self.topics, self.arguments["codec"].split(","), strict=True))

    @property
    def count(self) -> int:
        """Return how many records to send to, or to read from, each topic."""
        return int(self.arguments["count"])

    def print(self, error: BaseException | None) -> None:
        """Print what is known, with the error if there is one, and end the process."""
        with self._lock:
            if self.digest.records:
                self.fields["digest"] = self.digest.text()
            self.fields |= {"records": self.digest.records, "disordered": self.digest.disordered}
            self.fields["error"] = None if error is None else f"{type(error).__name__}: {error}"
            print(json.dumps(self.fields), flush=True)
            os._exit(0)

    @classmethod
    def run(cls, operations: dict[str, Any]) -> None:
        """Run the operation that the command line names, with this report, and print the report."""
        report = cls(sys.argv[2:])
        try:
            operations[sys.argv[1]](report)
        except BaseException as error:
            report.print(error)
        report.print(None)
