"""librdkafka in a process of its own, where names can be resolved as ``names.c`` does.

python -m tests.support.named_client BOOTSTRAP TOPIC COUNT CA

Produces to every partition over TLS and reads them back; prints the leaders' addresses, and then
"N of COUNT".
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def main() -> None:
    bootstrap, topic, count, ca = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    config = {"bootstrap.servers": bootstrap, "security.protocol": "SSL", "ssl.ca.location": ca}
    producer = Producer({**config, "enable.idempotence": True})
    known = producer.list_topics(topic, 20)
    partitions = known.topics[topic].partitions
    leaders = {known.brokers[one.leader] for one in partitions.values()}
    errors: list[object] = []
    for n in range(count):
        producer.produce(
            topic,
            b"librdkafka %d" % n,
            partition=n % len(partitions),
            on_delivery=lambda error, _: error and errors.append(error),
        )
    assert producer.flush(40) == 0
    assert errors == []
    consumer = Consumer({**config, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, n, 0) for n in partitions])
    read = 0
    until = time.monotonic() + 40
    while read < count and time.monotonic() < until:
        messages = consumer.consume(count, 0.2)
        read += sum(
            (message.value() or b"").startswith(b"librdkafka ")
            for message in messages
            if not message.error()
        )
    consumer.close()
    for leader in sorted(f"{one.host}:{one.port}" for one in leaders):
        print(leader)
    print(f"{read} of {count}")


if __name__ == "__main__":
    main()
