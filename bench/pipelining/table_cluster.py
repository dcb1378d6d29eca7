"""Apache Kafka 4.4.0, one broker or several, with the topics of the table.

Prints one line of JSON when they are ready, ends with its input. Node 1 is the controller, too.
The processes' own compilers are on (the tests' brokers stop at the first); socket buffers are the
kernel's to choose.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker

ONE, MANY = "pipeline-1", "pipeline-128"
PARTITIONS = 128
#: above the port of a broker: its controller
CONTROLLER = 20
KEEP = {  # a table's runs write more than a disk wants to keep
    "log.segment.bytes": 32 << 20,
    "log.retention.bytes": 64 << 20,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}


def broker(number: int, options: argparse.Namespace, first: KafkaBroker | None) -> KafkaBroker:
    """Return a broker that is not started yet."""
    plain, controller = (options.port + above + number for above in (0, CONTROLLER))
    voter = f"1@{options.host}:{options.port + CONTROLLER + 1}"
    listeners = f"PLAINTEXT://{options.host}:{plain}"
    settings = {
        **KEEP,
        "node.id": number,
        "process.roles": "broker" if first else "broker,controller",
        "controller.quorum.voters": voter,
        "listeners": listeners + ("" if first else f",CONTROLLER://{options.host}:{controller}"),
        "advertised.listeners": listeners
        if options.advertise is None
        else listeners.replace(str(plain), options.advertise),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    return KafkaBroker(
        port=plain,
        config=settings,
        heap=options.heap,
        jvm=["-XX:TieredStopAtLevel=4"],
        cluster_id=first.cluster_id if first else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port",
        type=int,
        required=True,
        help=f"brokers listen on the next, the controller {CONTROLLER} above",
    )
    parser.add_argument("--brokers", type=int, default=5)
    parser.add_argument("--heap", default="256m")
    parser.add_argument("--advertise", metavar="PORT", help="of a relay, in place of the plain one")
    options = parser.parse_args()
    KafkaBroker.host = options.host
    brokers = [broker(1, options, None)]
    brokers += [broker(number, options, brokers[0]) for number in range(2, options.brokers + 1)]
    try:
        with ThreadPoolExecutor(len(brokers)) as pool:
            list(pool.map(KafkaBroker.start, brokers))
        through_relay = (
            brokers[0].bootstrap
            if options.advertise is None
            else f"{options.host}:{options.advertise}"
        )
        make_topic(through_relay, ONE)
        small = {"segment.bytes": "4194304", "retention.bytes": "4194304"}
        make_topic(through_relay, MANY, PARTITIONS, **small)
        plain = (
            ",".join(one.bootstrap for one in brokers)
            if options.advertise is None
            else through_relay
        )
        print(json.dumps({"plain": plain}), flush=True)
        sys.stdin.read()
    finally:
        for one in reversed(brokers):
            one._forget()


if __name__ == "__main__":
    main()
