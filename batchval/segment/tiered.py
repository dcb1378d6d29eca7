"""Layouts of tiered storage (KIP-405): a segment is a file, and its name has the segment's id.

    LocalTieredStorage, which comes with Kafka's tests
        <topic>-<partition>-<topic id>/<base offset>-<segment id>.log .index .timeindex .txnindex
                                       .snapshot .leader_epoch_checkpoint
    Aiven's plugin
        <topic>-<topic id>/<partition>/<base offset>-<segment id>.log .indexes .rsm-manifest

Ids are those of Kafka: 22 characters. A broker copies only segments that it has closed, and two
leaders may copy the same offsets.
"""

from __future__ import annotations

import json
import os
import re
from typing import Final

__all__ = ["MANIFEST", "OVERLAP", "is_tiered", "partition_of", "transformation"]

#: the suffix of Aiven's description of a segment
MANIFEST: Final = ".rsm-manifest"
#: why a segment need not follow the one before
OVERLAP: Final = "legal in tiered storage after a change of the leader (KIP-405)"

_ID = r"[A-Za-z0-9_-]{22}"
_NAME = re.compile(rf"[0-9]{{20}}-{_ID}\.log")
_LOCAL = re.compile(rf"(?s)(.+)-(\d{{1,10}})-{_ID}")
_AIVEN = re.compile(rf"(?s)(?:.*/)?([^/]+)-{_ID}/(\d{{1,10}})")


def is_tiered(name: str) -> bool:
    """Return whether a file has the name of a segment in tiered storage."""
    return _NAME.fullmatch(name) is not None


def partition_of(folder: str) -> tuple[str, int] | None:
    """Return the topic and partition of a folder with such segments; None where it names none."""
    found = _LOCAL.fullmatch(os.path.basename(folder)) or _AIVEN.fullmatch(folder)
    return (found[1], int(found[2])) if found and int(found[2]) < 1 << 31 else None


def transformation(manifest: bytes) -> str | None:
    """Return how Aiven's plugin changed the bytes of a segment; None where they are the broker's.

    Chunks that are neither compressed nor encrypted lie next to each other, as in the segment.
    Raises ValueError for other files.
    """
    entries = json.loads(manifest)
    if not isinstance(entries, dict) or not isinstance(entries.get("chunkIndex"), dict):
        raise ValueError("chunkIndex is missing")
    done = [
        word
        for word, there in (
            ("compressed", entries.get("compression")),
            ("encrypted", entries.get("encryption")),
        )
        if there
    ]
    return " and ".join(done) or None
