"""A gate in a process of its own, as ``batchval proxy`` runs one: uvloop, one listener, no metrics asked for.

Prints "listening PORT". The way "off" judges nothing and passes every Produce request on untouched: what is left is
the frames, the walk over the request, the queue of answers and the sockets. It is no setting of the product.

    python bench/proxy/gate.py BROKER_PORT off|validating|trust|audit
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import uvloop

from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.proxy.gate import Gate
from batchval.proxy.options import ProxyOptions, TopicPolicies
from batchval.proxy.server import Proxy

CLAIMS = {"off": "ignore", "validating": "ignore", "trust": "trust", "audit": "audit:0.001"}
TOPICS = TopicPolicies(TopicPolicy(max_message_bytes=2**31 - 1))  # as where nothing is known of a topic


class Open(Gate):
    """Judges nothing."""

    judges = False


async def main(broker_port: int, way: str) -> None:
    broker = ("127.0.0.1", broker_port)
    claims = ClaimsPolicy.parse(CLAIMS[way])
    proxy = Proxy(ProxyOptions(("127.0.0.1", 0), (broker,), first_broker_port=0, topics=TOPICS, claims_in=claims))
    if way == "off":
        proxy.gate = Open(proxy.options, proxy.counters)
    await proxy.start()
    print(f"listening {proxy.bootstrap[1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
