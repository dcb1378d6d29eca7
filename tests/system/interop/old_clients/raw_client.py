"""Produce 0 as an appliance sends it: frames made here, no request before them, acks 1.

    python -m tests.system.interop.old_clients.raw_client produce NAME=VALUE...

A message set of version 0 holds messages of magic 0:

    int64 offset | int32 size | int32 crc | int8 magic | int8 attributes | bytes key | bytes value

With gzip one message holds the set of the others.
"""

from __future__ import annotations

import socket
import struct
import zlib

from tests.system.interop.old_clients.records import Report, key_of, value_of

PRODUCE, VERSION = 0, 0
CLIENT_ID = b"appliance"
GZIP = 1
RECORDS_A_REQUEST = 250
TIMEOUT_MS = 5000


def sized(data: bytes | None) -> bytes:
    """Return an int32 length and the bytes; -1 for null."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def text(data: bytes) -> bytes:
    """Return an int16 length and the bytes."""
    return struct.pack(">h", len(data)) + data


def message(offset: int, key: bytes | None, value: bytes | None, attributes: int = 0) -> bytes:
    """Return a message of magic 0."""
    body = struct.pack(">bb", 0, attributes) + sized(key) + sized(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def message_set(numbers: range, codec: str) -> bytes:
    """Return the records of these numbers."""
    messages = [message(at, key_of(number), value_of(number)) for at, number in enumerate(numbers)]
    plain = b"".join(messages)
    if codec == "none":
        return plain
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return message(len(numbers) - 1, None, compressor.compress(plain) + compressor.flush(), GZIP)


def request(correlation: int, topic: str, acks: int, records: bytes) -> bytes:
    """Return a frame of Produce 0 for partition 0 of a topic."""
    head = struct.pack(">hhi", PRODUCE, VERSION, correlation) + text(CLIENT_ID)
    body = struct.pack(">hii", acks, TIMEOUT_MS, 1) + text(topic.encode())
    return sized(head + body + struct.pack(">ii", 1, 0) + sized(records))


def check_answer(answer: bytes, correlation: int, topic: str, offset: int) -> None:
    """Raise ValueError if an answer is not that of one partition and this base offset."""
    begin = struct.pack(">ii", correlation, 1) + text(topic.encode()) + struct.pack(">ii", 1, 0)
    if not answer.startswith(begin) or len(answer) != len(begin) + 10:
        raise ValueError(f"unexpected answer: {answer.hex()}")
    code, base = struct.unpack_from(">hq", answer, len(begin))
    if code or base != offset:
        raise ValueError(f"error code {code}, base offset {base}, expected offset {offset}")


def produce(report: Report) -> None:
    """Send records 0 to count - 1 to each topic, a request at a time."""
    report.fields["acked"] = 0
    for topic, codec in report.topics_and_codecs:
        send_to(topic, codec, report)


def send_to(topic: str, codec: str, report: Report) -> None:
    """Send the records to a topic, on a connection of its own."""
    known = report.arguments
    host, _, port = known["bootstrap"].rpartition(":")
    acks = -1 if known["acks"] == "all" else int(known["acks"])
    with (
        socket.create_connection((host, int(port)), 5) as connection,
        connection.makefile("rb") as answers,
    ):
        for correlation, first in enumerate(range(0, report.count, RECORDS_A_REQUEST)):
            numbers = range(first, min(first + RECORDS_A_REQUEST, report.count))
            records = message_set(numbers, codec)
            connection.sendall(request(correlation, topic, acks, records))
            if acks:
                head = answers.read(4)
                if len(head) < 4:
                    raise ConnectionError("the connection was closed")
                check_answer(answers.read(struct.unpack(">i", head)[0]), correlation, topic, first)
            report.fields["acked"] += len(numbers)
        if not acks:
            # no request is answered: what is left to read is the end of the connection
            connection.shutdown(socket.SHUT_WR)
            answers.read()


if __name__ == "__main__":
    Report.run({"produce": produce})
