"""A gate in a process of its own, as ``batchval proxy`` runs one: uvloop, one listener, no metrics
asked for.

Prints "listening PORT". The way "off" validates nothing and passes every Produce request on
untouched: what is left is the frames, the walk over the request, the queue of answers and the sockets. It is
no setting of the product.

The way "tag" makes claims for what is compressed. With two more words the listener speaks TLS.

    python -m bench.proxy.gate BROKER_PORT off|validating|trust|audit|tag [CERTIFICATE KEY]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from batchval.policy import TopicPolicy
from batchval.proxy.life.listener_server import ListenerServer
from batchval.proxy.produce.produce_validator import ProduceValidator
from batchval.proxy.settings.config import ListenerTls, Settings
from batchval.proxy.settings.options import ProxyOptions, TopicPolicies
from batchval.proxy.tls.tls import listener_context

CLAIMS = {
    "off": "ignore",
    "validating": "ignore",
    "trust": "trust",
    "audit": "audit:0.001",
    "tag": "ignore",
}
TOPICS = TopicPolicies(
    TopicPolicy(max_message_bytes=2**31 - 1)
)  # as where nothing is known of a topic


class Open(ProduceValidator):
    """Validate nothing."""

    validates = False


async def main(broker_port: int, way: str, certificate: str = "", key: str = "") -> None:
    tls = (
        listener_context(ListenerTls(certificate=Path(certificate), key=Path(key)))
        if certificate
        else None
    )
    settings = Settings.model_validate(
        {
            "mode": "enforce",
            "listeners": [{"address": "127.0.0.1:0", "first_broker_port": 0}],
            "upstream": {"bootstrap": f"127.0.0.1:{broker_port}"},
            "claims_in": CLAIMS[way],
            "claims_out": "tag" if way == "tag" else "none",
        }
    )
    proxy = ListenerServer(
        ProxyOptions(
            settings,
            settings.listeners[0],
            topics=TOPICS,
            claims_in=settings.claims_in,
            listen_tls=tls,
        )
    )
    if way == "off":
        proxy.gate = Open(proxy.options, proxy.counters)
    await proxy.start()
    print(f"listening {proxy.bootstrap[1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), *sys.argv[2:]))
