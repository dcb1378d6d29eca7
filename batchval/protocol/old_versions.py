"""Versions of APIs that Kafka 4 no longer knows (KIP-896), and the version that each is raised to.

    request   body of the old version  ->  body of the version that it is raised to
    answer    body of that version     ->  body of the old version

The version that a request is raised to is one that every broker since Kafka 2.1 knows, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from batchval.protocol.apis import ApiKey

__all__ = ["CONSUMERS", "PRODUCERS", "Raised"]


class Raised(NamedTuple):
    """The versions of an API from ``oldest`` to below ``to`` are raised to ``to``."""

    oldest: int
    to: int


#: What producers need.
PRODUCERS: Final[Mapping[ApiKey, Raised]] = {ApiKey.PRODUCE: Raised(0, 3)}

#: What consumers and admin clients need. Fetch 10 is the first version whose answers may hold zstd:
#: below it Kafka answers UNSUPPORTED_COMPRESSION_TYPE for topics with compression.type=zstd.
CONSUMERS: Final[Mapping[ApiKey, Raised]] = {}
