"""What is done with requests of versions that Kafka 4 no longer knows, where ``bridge`` is set.

    client  old version  ->  gate  raised version  ->  broker
    client  old version  <-  gate  raised version  <-  broker

Produce 0 to 2 belong to ``handlers.produce``: their batches are judged, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from batchval.protocol.apis import ApiKey
from batchval.protocol.old_versions import CONSUMERS, PRODUCERS, Raised

__all__ = ["raised_by"]

_RAISED: Final[Mapping[str, Mapping[ApiKey, Raised]]] = {"producers": PRODUCERS, "consumers": CONSUMERS}


def raised_by(bridge: frozenset[str]) -> dict[int, Raised]:
    """Return the APIs whose old versions are raised, by API key."""
    return {int(key): raised for word in sorted(bridge) for key, raised in _RAISED[word].items()}
