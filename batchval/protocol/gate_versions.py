"""The answer to ApiVersions on its way through a gate: no API and no version that the gate could
not carry.

What is not in the answer no client asks for. So a version that would name a broker's address where
the gate cannot rewrite it, and an API that a newer Kafka may add, stay unknown to clients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Chunks
from batchval.protocol.messages.api_versions import ApiVersionsResponse
from batchval.protocol.old_versions import Raised
from batchval.protocol.walkers.addresses import WITH_ADDRESSES

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "CLIENTS_OWN_HOSTS",
    "CONTROLLERS_HOSTS",
    "carried_versions",
    "intersect_api_versions",
]

_UNSUPPORTED_VERSION = (35).to_bytes(2, "big")

#: StreamsGroupHeartbeat, StreamsGroupDescribe: the hosts in their answers are what clients
#: reported of themselves.
CLIENTS_OWN_HOSTS = frozenset({88, 89})
#: DescribeQuorum: the hosts in its answer (from version 2 on) are the controllers' listeners
#: (KIP-853). No client of a broker connects to these, and the gate has no port for them.
CONTROLLERS_HOSTS = frozenset({55})
_PASSED_HOSTS = CLIENTS_OWN_HOSTS | CONTROLLERS_HOSTS


def carried_versions() -> dict[int, tuple[int, int]]:
    """Return API key -> lowest and highest version that a gate can carry: this Kafka's, from 0 on.

    An API of a newer Kafka whose answers hold addresses that nobody rewrites here ends below that;
    Kafka 4.4 has none. Lowest versions are the broker's matter: Kafka announces Produce from 0 though
    it carries 3 (KAFKA-18659), since a client stumbles over anything else.
    """
    carried = {}
    for api in APIS.values():
        last = api.max_version
        if "broker" not in api.listeners:
            continue
        if api.addresses_from is not None and api.key not in WITH_ADDRESSES | _PASSED_HOSTS:
            last = min(last, api.addresses_from - 1)
        if last >= api.min_version:
            carried[api.key] = (0, last)
    return carried


def intersect_api_versions(
    frame: Buffer,
    api_version: int,
    carried: Mapping[int, tuple[int, int]],
    *,
    correlation_id: int | None = None,
    raised: Mapping[int, Raised] | None = None,
) -> Chunks:
    """Return the frame, length and all, with what is both the broker's and in ``carried``; all else
    of it stays.

    ``api_version`` is the request's; a broker that does not know it answers in version 0 (KIP-511),
    and so does this; where it says so in bytes that no version has, this says it for it. Old
    versions that are in ``raised`` are added where the broker knows the version that they are
    raised to. Raises ProtocolError for malformed bytes.
    """
    answer, api_version = _read(frame, api_version)
    kept = []
    for api in answer.api_keys:
        if api.api_key in carried:
            first, last = carried[api.api_key]
            api.min_version, api.max_version = (
                max(api.min_version, first),
                min(api.max_version, last),
            )
            above = None if raised is None else raised.get(api.api_key)
            if (
                above is not None
                and api.min_version <= above.first_kept
                and above.to <= api.max_version
            ):
                api.min_version = min(api.min_version, above.oldest)
            if api.min_version <= api.max_version or api.api_key == ApiKey.API_VERSIONS:
                kept.append(api)
    answer.api_keys = kept
    if correlation_id is None:
        correlation_id = int.from_bytes(memoryview(frame)[:4], "big", signed=True)
    return answer.encode(correlation_id, api_version)


def _read(frame: Buffer, api_version: int) -> tuple[ApiVersionsResponse, int]:
    """Return the answer and the version it is in. ProtocolError."""
    if api_version > 0:
        # the answer to a version that the broker does not know is in version 0 (KIP-511)
        if bytes(memoryview(frame)[4:6]) == _UNSUPPORTED_VERSION:
            try:
                return ApiVersionsResponse.decode(frame, 0), 0
            except ProtocolError:  # librdkafka's mock broker; a client then asks in version 0
                return ApiVersionsResponse(error_code=35), 0
        with contextlib.suppress(ProtocolError):
            return ApiVersionsResponse.decode(frame, api_version), api_version
    return ApiVersionsResponse.decode(frame, 0), 0
