"""kafka-python of an older release, with the ``api_version`` of an old broker.

    python -m tests.system.interop.old_clients.kafka_python_client OPERATION NAME=VALUE...

``version`` is 0.8.2, 0.9 and so on. The operations are those of java/OldProducer and
java/OldConsumer.
"""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from tests.system.interop.old_clients.records import Report, key_of, value_of

POLL_MS = 200
POLLS_AFTER = 5


def client(report: Report) -> dict[str, Any]:
    """Return the settings of every client."""
    known = report.arguments
    settings: dict[str, Any] = {
        "bootstrap_servers": known["bootstrap"],
        "api_version": tuple(map(int, known["version"].split("."))),
        "request_timeout_ms": 10_000,
    }
    if "mechanism" in known:
        settings["security_protocol"] = "SASL_PLAINTEXT"
        settings["sasl_mechanism"] = known["mechanism"]
        settings["sasl_plain_username"] = known["user"]
        settings["sasl_plain_password"] = known["password"]
    return settings


def produce(report: Report) -> None:
    """Send records 0 to count - 1 to each topic."""
    report.fields["acked"] = 0
    failures = [
        failure
        for topic, codec in report.topics_and_codecs
        for failure in sent_to(topic, codec, report)
    ]
    if failures:
        raise failures[-1]


def sent_to(topic: str, codec: str, report: Report) -> list[Exception]:
    """Send the records to a topic; return the errors."""
    acks = report.arguments["acks"]
    producer = KafkaProducer(
        acks="all" if acks == "all" else int(acks),
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
        retries=0,
        max_block_ms=6000,
        **client(report),
    )
    sent = [
        producer.send(topic, value_of(number), key_of(number)) for number in range(report.count)
    ]
    failures = []
    for one in sent:
        try:
            one.get(10)
            report.fields["acked"] += 1
        except Exception as error:
            failures.append(error)
    producer.close(5)
    return failures


def opened(report: Report, reset: str = "earliest") -> KafkaConsumer:
    """Return a consumer that commits only when asked to."""
    return KafkaConsumer(
        group_id=report.arguments.get("group"),
        auto_offset_reset=reset,
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=32_768,
        **client(report) | {"request_timeout_ms": 12_000, "session_timeout_ms": 10_000},
    )


def records_of(consumer: KafkaConsumer) -> list[Any]:
    """Return what one poll brings."""
    return [record for records in consumer.poll(POLL_MS).values() for record in records]


def consume(report: Report) -> None:
    """Read the records from offset 0 on: count of each topic, and what comes in the next second."""
    for topic in report.topics:
        consumer, partition = opened(report), TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        report.digest.begin()
        end, after = report.digest.records + report.count, 0
        while after < POLLS_AFTER:
            after += report.digest.records >= end
            for record in records_of(consumer):
                report.digest.add(record.offset, record.key, record.value)
        consumer.close()


def group(report: Report) -> None:
    """Read the next count records of a group, and commit."""
    consumer, partition = opened(report), TopicPartition(report.arguments["topic"], 0)
    consumer.subscribe([partition.topic])
    while report.digest.records < report.count:
        for record in records_of(consumer):
            if report.digest.records < report.count:
                report.digest.add(record.offset, record.key, record.value)
                report.fields["next"] = record.offset + 1
    consumer.commit({partition: OffsetAndMetadata(report.fields["next"], "")})
    consumer.close(autocommit=False)


def offsets(report: Report) -> None:
    """Report the first offset and the end."""
    consumer, partition = opened(report), TopicPartition(report.arguments["topic"], 0)
    report.fields["earliest"] = consumer.beginning_offsets([partition])[partition]
    report.fields["latest"] = consumer.end_offsets([partition])[partition]
    consumer.close()


def commit(report: Report) -> None:
    """Commit an offset for a group and ask for it."""
    partition = TopicPartition(report.arguments["topic"], 0)
    consumer = opened(report)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(int(report.arguments["offset"]), "")})
    consumer.close(autocommit=False)
    later = opened(report)
    later.assign([partition])
    found = later.committed(partition)
    report.fields["committed"] = -1 if found is None else found
    later.close(autocommit=False)


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
