"""The answers whose ``throttle_time_ms`` the client itself has to wait (KIP-219).

Since KIP-219 a broker answers at once and mutes the connection for that time; a client keeps still
as long, lest its requests lie unread. Older versions answer late instead, and waiting again would
count the time twice. The first version of each API that the client must heed is
``shouldClientThrottle`` in Kafka's response classes; APIs not named here were born later and are
always heeded.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["throttle_time_ms"]

_HEEDED_FROM: Final[dict[int, int]] = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 1,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    42: 1,  # DeleteGroups
}


def throttle_time_ms(api_key: int, api_version: int, response: Any) -> tuple[int, int]:
    """Return (the response's throttle time, how much of it the client has to wait itself).

    Both are in milliseconds and never below 0.
    """
    stated = getattr(response, "throttle_time_ms", 0)
    if not isinstance(stated, int) or stated <= 0:
        return 0, 0
    return stated, stated if api_version >= _HEEDED_FROM.get(api_key, 0) else 0
