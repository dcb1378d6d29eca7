"""librdkafka that takes its broker for an old one (broker.version.fallback).

    python -m tests.system.interop.old_clients.librdkafka_client OPERATION NAME=VALUE...

``version`` is the fallback: 0.8.2, 0.9.0, 0.10.0. From 0.10.0 on librdkafka asks for ApiVersions
nevertheless, and takes the versions that the broker offers. The operations are those of
java/OldProducer and java/OldConsumer.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.system.interop.old_clients.records import Report, key_of, value_of

SECONDS_AFTER, MAX_RECORDS_AFTER = 1.0, 100
TIMEOUT = 6.0


def client(report: Report) -> dict[str, Any]:
    """Return the settings of every client."""
    known = report.arguments
    settings: dict[str, Any] = {"bootstrap.servers": known["bootstrap"], "log_level": 0}
    settings |= {"api.version.request": False, "broker.version.fallback": known["version"]}
    if "mechanism" in known:
        settings |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": known["mechanism"]}
        settings |= {"sasl.username": known["user"], "sasl.password": known["password"]}
    return settings


def produce(report: Report) -> None:
    """Send records 0 to count - 1 to each topic."""
    failures: list[KafkaError] = []
    report.fields["acked"] = 0

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is None:
            report.fields["acked"] += 1
        else:
            failures.append(error)

    for topic, codec in report.topics_and_codecs:
        producer = Producer(
            {
                **client(report),
                "acks": report.arguments["acks"],
                "compression.type": codec,
                "batch.num.messages": 200,
                "message.timeout.ms": 6000,
                "message.send.max.retries": 0,
            }
        )
        for number in range(report.count):
            producer.produce(topic, value_of(number), key_of(number), 0, on_delivery=delivered)
        producer.flush(15)
    if failures:
        raise KafkaException(failures[-1])


def opened(report: Report) -> tuple[Consumer, list[KafkaError]]:
    """Return a consumer that commits only when asked to, and the errors of its connections."""
    errors: list[KafkaError] = []
    consumer = Consumer(
        {
            **client(report),
            "group.id": report.arguments.get("group", "unused"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": 100,
            "max.partition.fetch.bytes": 32_768,
            "session.timeout.ms": 10_000,
            "error_cb": errors.append,
        }
    )
    return consumer, errors


def read(
    consumer: Consumer, report: Report, errors: list[KafkaError], most: int, seconds: float
) -> None:
    """Take in what comes, at most so many records."""
    messages = consumer.consume(most, seconds)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
        report.digest.add(message.offset(), message.key(), message.value())
        report.fields["next"] = message.offset() + 1
    if errors:
        # shown where nothing was read until the end
        report.fields["noticed"] = errors[-1].str()


def consume(report: Report) -> None:
    """Read the records from offset 0 on: count of each topic, and what comes in the next second."""
    for topic in report.topics:
        consumer, errors = opened(report)
        consumer.assign([TopicPartition(topic, 0, 0)])
        report.digest.begin()
        end = report.digest.records + report.count
        while report.digest.records < end:
            read(consumer, report, errors, end - report.digest.records, 0.2)
        read(consumer, report, errors, MAX_RECORDS_AFTER, SECONDS_AFTER)
        consumer.close()


def group(report: Report) -> None:
    """Read the next count records of a group, and commit."""
    consumer, errors = opened(report)
    consumer.subscribe([report.arguments["topic"]])
    while report.digest.records < report.count:
        read(consumer, report, errors, report.count - report.digest.records, 0.2)
    committed = TopicPartition(report.arguments["topic"], 0, report.fields["next"])
    consumer.commit(offsets=[committed], asynchronous=False)
    consumer.close()


def offsets(report: Report) -> None:
    """Report the first offset and the end."""
    consumer, _ = opened(report)
    place = TopicPartition(report.arguments["topic"], 0)
    report.fields["earliest"], report.fields["latest"] = consumer.get_watermark_offsets(
        place, TIMEOUT
    )
    consumer.close()


def commit(report: Report) -> None:
    """Commit an offset for a group and ask for it."""
    topic = report.arguments["topic"]
    consumer, _ = opened(report)
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.commit(
        offsets=[TopicPartition(topic, 0, int(report.arguments["offset"]))], asynchronous=False
    )
    consumer.close()
    later, _ = opened(report)
    (found,) = later.committed([TopicPartition(topic, 0)], TIMEOUT)
    if found.error:
        raise KafkaException(found.error)
    report.fields["committed"] = found.offset
    later.close()


if __name__ == "__main__":
    Report.run(
        {
            "produce": produce,
            "consume": consume,
            "group": group,
            "offsets": offsets,
            "commit": commit,
        }
    )
