"""Names of the files that Kafka writes next to segments.

<log folder>/<topic>-<partition>/<base offset in 20 digits>.log
<log folder>/<topic>-<partition>/leader-epoch-checkpoint, partition.metadata
<log folder>/*-offset-checkpoint, meta.properties
"""

from __future__ import annotations

import re

__all__ = [
    "CHECKPOINTS",
    "CLEANER_CHECKPOINT",
    "LEADER_EPOCHS",
    "LOG_START_CHECKPOINT",
    "META_PROPERTIES",
    "PARTITION_FILES",
    "PARTITION_METADATA",
    "RECOVERY_POINT_CHECKPOINT",
    "REPLICATION_CHECKPOINT",
    "SEGMENT_NAME",
]

#: the first group is the base offset; in tiered storage (tiered.py) the segment's id follows
SEGMENT_NAME = re.compile(r"([0-9]{20})(?:-[A-Za-z0-9_-]{22})?\.log")
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
#: high watermarks
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
#: files of a log folder that have a line for each partition
CHECKPOINTS = (
    *(RECOVERY_POINT_CHECKPOINT, REPLICATION_CHECKPOINT),
    *(LOG_START_CHECKPOINT, CLEANER_CHECKPOINT),
)
META_PROPERTIES = "meta.properties"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
#: files of a partition's folder that describe all its segments
PARTITION_FILES = (LEADER_EPOCHS, PARTITION_METADATA)
