"""Runs one operation of one client on one route, and judges what came of it.

An operation is ok only if all records are acknowledged and a client of today reads them equal and
in order, or if the old client itself reads each record that there is, equal, in order and once.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from tests.support.topics import make_topic
from tests.system.interop.old_clients.clients import CODECS, ROOT, Client
from tests.system.interop.old_clients.records import Digest, key_of, value_of
from tests.system.interop.old_clients.rig import (
    GROUP_RECORDS,
    GROUP_TOPIC,
    PASSWORD,
    TOPICS,
    USER,
    Rig,
    numbered,
)

__all__ = ["OPERATIONS", "Outcome", "run"]

RECORDS = 2000
RECORDS_WITH_SASL = 200
COMMITTED = 777
#: for an operation that should work, and for one that Kafka itself may not know
SECONDS, SECONDS_IF_IT_MAY_FAIL = 40, 12
SECONDS_UNDER_WAY = 4
MAX_TEXT_LENGTH = 160

#: operation of the table -> what it is
OPERATIONS = {
    "none": "produce 2,000 records without compression, acks=all",
    "gzip": "the same with gzip",
    "snappy": "the same with snappy",
    "lz4": "the same with lz4",
    "acks=1": "produce 2,000 records with each codec, acks=1",
    "acks=0": "the same with acks=0",
    "own": "consume what this client has produced, each codec",
    "headers": "consume 1,600 records of today's client with headers, in none, gzip, snappy and lz4",
    "zstd": "consume 1,000 records of today's client in zstd",
    "transactions": "consume 1,000 records of today's client, partly in committed and aborted transactions",
    "group": "join a group, consume a part, commit, leave; join again, consume the rest",
    "offsets": "list the first offset and the end",
    "commit": "commit an offset without a group's membership, and fetch it",
    "PLAIN": "produce and consume 200 records, authenticated by PLAIN",
    "SCRAM-SHA-256": "the same by SCRAM-SHA-256",
    "admin": "create, list, describe and delete a topic, and describe its configuration",
}


class Outcome(NamedTuple):
    """Whether an operation did all that it should, and a few words on it."""

    is_ok: bool
    text: str


class Failed(Exception):
    """The operation did not do what it should; the text is that of its outcome."""


def run(client: Client, operation: str, route: str, rig: Rig) -> Outcome:
    """Run an operation of the table."""
    operations = {
        "own": _own,
        "group": _group,
        "offsets": _offsets,
        "commit": _commit,
        "admin": _admin,
    }
    try:
        if operation in CODECS:
            text = _produce(client, rig, route, [operation], "all", RECORDS)
        elif operation.startswith("acks="):
            text = _produce(
                client, rig, route, client.codecs, operation.removeprefix("acks="), RECORDS
            )
        elif operation in TOPICS:
            text = _consume(client, rig, route, operation, rig.topics[operation])
        elif operation in operations:
            text = operations[operation](client, rig, route)
        else:
            text = _authenticated(client, rig, route, operation)
    except Failed as failed:
        return Outcome(False, str(failed))
    return Outcome(True, text)


def _program(
    client: Client, rig: Rig, route: str, operation: str, **arguments: Any
) -> dict[str, Any]:
    """Run a client's program; return its report. Raises Failed without one."""
    plain, sasl = rig.routes[route]
    may_fail = route == "direct" or (route == "3.9" and arguments.get("topic") == "zstd")
    seconds = SECONDS_IF_IT_MAY_FAIL if may_fail else SECONDS
    known = {
        "bootstrap": sasl if "mechanism" in arguments else plain,
        "seconds": seconds,
    } | arguments
    command = [*client.command(operation), *(f"{name}={value}" for name, value in known.items())]
    try:
        done = subprocess.run(
            command,
            env=client.environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + 30,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"the program did not end after {seconds} s") from None
    try:
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise Failed(_short((done.stderr.splitlines() or ["no output"])[-1])) from None
    return report


def _short(text: str) -> str:
    one = " ".join(text.replace(str(ROOT), "").split())
    return one if len(one) <= MAX_TEXT_LENGTH else one[: MAX_TEXT_LENGTH - 1] + "…"


def _reason(report: dict[str, Any]) -> str:
    """Return a report's own error, or what its client noticed."""
    texts = [text for text in (report.get("error"), report.get("noticed")) if text]
    return _short("; ".join(dict.fromkeys(texts)) or "no error")


def _produce(client: Client, rig: Rig, route: str, codecs: list[str], acks: str, count: int) -> str:
    """Produce to a fresh topic for each codec and read them with a client of today."""
    run_id = uuid.uuid4().hex[:6]
    topics = {
        codec: f"{client.slug}-{route}-{codec}-{acks}-{run_id}".replace(".", "-")
        for codec in codecs
    }
    for topic in topics.values():
        make_topic(rig.broker.bootstrap, topic)
    names = {"topic": ",".join(topics.values()), "codec": ",".join(topics)}
    report = _program(client, rig, route, "produce", **names, acks=acks, count=count)
    acked, expected = int(report.get("acked", 0)), numbered(range(count))
    sent = acked // len(codecs)
    stored = {codec: _stored(rig, topic, sent) for codec, topic in topics.items()}
    if acked != count * len(codecs) or report["error"]:
        kept = sum(found.records for found in stored.values())
        more = f", {kept:,} stored" if kept != acked else ""
        raise Failed(f"{acked:,} of {count * len(codecs):,} acknowledged{more}: {_reason(report)}")
    for codec, found in stored.items():
        if found != _Read.of(expected):
            difference = found.difference(count)
            raise Failed(
                f"{acked:,} acknowledged, but {found.records:,} of {count:,} stored ({codec}){difference}"
            )
    if acks == "all":
        OWN.update({(client, codec, rig.broker.profile): topic for codec, topic in topics.items()})
    return f"{acked:,}"


#: (client, codec, profile of the broker) -> topic that it has written
OWN: dict[tuple[Client, str, str], str] = {}


class _Read(NamedTuple):
    """What a client has read."""

    records: int
    digest: str | None
    disordered: int

    @classmethod
    def of(cls, digest: Digest) -> _Read:
        return cls(digest.records, digest.text() if digest.records else None, digest.disordered)

    @classmethod
    def reported(cls, report: dict[str, Any]) -> _Read:
        return cls(report["records"], report.get("digest"), report["disordered"])

    def difference(self, expected: int) -> str:
        """Return the rest of a sentence on records that are as many as expected, but others."""
        if self.disordered:
            return f", {self.disordered:,} out of order"
        return ", not equal" if self.records == expected else ""


def _stored(rig: Rig, topic: str, acked: int) -> _Read:
    """Return what a client of today reads from the broker, from the first offset to the end.

    With acks=0 the last records may still be under way: the end has some seconds to come.
    """
    place = TopicPartition(topic, 0, 0)
    consumer = Consumer(
        {
            "bootstrap.servers": rig.broker.bootstrap,
            "group.id": "today",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    digest, limit = Digest(), time.monotonic() + SECONDS
    try:
        end, soon = 0, time.monotonic() + SECONDS_UNDER_WAY
        while end < acked and time.monotonic() < soon:
            _, end = consumer.get_watermark_offsets(place, SECONDS)
        consumer.assign([place])
        while digest.records < end and time.monotonic() < limit:
            for message in consumer.consume(end - digest.records, 0.5):
                if message.error():
                    raise Failed(f"today's client: {message.error()}")
                digest.add(message.offset(), message.key(), message.value())
    finally:
        consumer.close()
    return _Read.of(digest)


def _consume(
    client: Client, rig: Rig, route: str, topic: str, expected: Digest, **more: Any
) -> str:
    report = _program(client, rig, route, "consume", topic=topic, count=expected.records, **more)
    return _compared(report, expected)


def _compared(report: dict[str, Any], expected: Digest) -> str:
    found = _Read.reported(report)
    if found != _Read.of(expected):
        difference = found.difference(expected.records)
        raise Failed(
            f"{found.records:,} of {expected.records:,} read{difference}: {_reason(report)}"
        )
    return f"{found.records:,}"


def _own(client: Client, rig: Rig, route: str) -> str:
    known = [OWN.get((client, codec, rig.broker.profile)) for codec in client.codecs]
    topics = [topic for topic in known if topic is not None]
    if not topics:
        raise Failed("nothing was produced")
    expected = Digest()
    for _ in topics:
        expected.begin()
        for number in range(RECORDS):
            expected.add(number, key_of(number), value_of(number))
    report = _program(client, rig, route, "consume", topic=",".join(topics), count=RECORDS)
    return _compared(report, expected)


def _group(client: Client, rig: Rig, route: str) -> str:
    """Consume in two parts: none lost, none read twice."""
    name, first = f"group-{uuid.uuid4().hex[:8]}", GROUP_RECORDS * 2 // 5
    for numbers in (range(first), range(first, GROUP_RECORDS)):
        expected = numbered(numbers)
        report = _program(
            client, rig, route, "group", topic=GROUP_TOPIC, group=name, count=len(numbers)
        )
        found = _Read.reported(report)
        if found != _Read.of(expected) or report["error"]:
            when = "at first" if numbers.start == 0 else "after a restart"
            read = (
                f"{found.records:,} of {len(numbers):,} read {when}{found.difference(len(numbers))}"
            )
            raise Failed(f"{read}: {_reason(report)}")
    return f"{GROUP_RECORDS:,}"


def _offsets(client: Client, rig: Rig, route: str) -> str:
    report = _program(client, rig, route, "offsets", topic=GROUP_TOPIC)
    found = (report.get("earliest"), report.get("latest"))
    if report["error"] or found != (0, GROUP_RECORDS):
        raise Failed(f"{found[0]} and {found[1]}: {_reason(report)}")
    return f"{found[0]} and {found[1]:,}"


def _commit(client: Client, rig: Rig, route: str) -> str:
    group = f"commit-{uuid.uuid4().hex[:8]}"
    report = _program(
        client, rig, route, "commit", topic=GROUP_TOPIC, group=group, offset=COMMITTED
    )
    if report["error"] or report.get("committed") != COMMITTED:
        raise Failed(f"{report.get('committed')} committed: {_reason(report)}")
    return f"{COMMITTED}"


def _authenticated(client: Client, rig: Rig, route: str, mechanism: str) -> str:
    who = {"mechanism": mechanism, "user": USER, "password": PASSWORD}
    topic = f"sasl-{client.slug}-{route}-{uuid.uuid4().hex[:6]}"
    make_topic(rig.broker.bootstrap, topic)
    count = RECORDS_WITH_SASL
    sent = _program(
        client, rig, route, "produce", topic=topic, codec="gzip", acks="all", count=count, **who
    )
    if sent["error"] or sent["acked"] != count:
        raise Failed(f"{sent.get('acked', 0):,} of {count:,} acknowledged: {_reason(sent)}")
    return _consume(client, rig, route, topic, numbered(range(count)), **who)


def _admin(client: Client, rig: Rig, route: str) -> str:
    report = _program(client, rig, route, "admin", topic=f"admin-{uuid.uuid4().hex[:8]}")
    found = tuple(report.get(name) for name in ("created", "partitions", "retention", "deleted"))
    if report["error"] or found != (1, 2, 86_400_000, 1):
        raise Failed(f"created, partitions, retention, deleted: {found}; {_reason(report)}")
    return "all"
