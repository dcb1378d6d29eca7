"""Spellings of URIs: those of Hadoop and Spark, and the ones that batchval.segment.store reads.

s3a://bucket/path s3n://bucket/path     s3://bucket/path
wasb://container@account.blob.…/path    abfs://container@account.dfs.…/path
wasbs://container@account.blob.…/path   abfss://container@account.dfs.…/path
file:/path                              /path
dbfs:/path dbfs:///path                 /dbfs/path, Databricks' mount, where there is one
"""

from __future__ import annotations

import os
import re
from urllib.parse import SplitResult

__all__ = ["DBFS", "REMOTE", "plain_uri", "refusal", "root_of"]

#: what pyarrow.fs reads
REMOTE = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
#: where Databricks mounts dbfs:/ on its machines
DBFS = "/dbfs"

_SAME = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
_AZURE = ("abfs", "abfss")
#: a scheme has two letters at least: C:/ is a folder of Windows
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//?)")
_ACCOUNT = ".dfs.core.windows.net"
_BLOB = re.compile(r"(abfss?://[^/?#]*@[^/?#.]+)\.blob\.core\.")
_INSTEAD = {
    "oss": "where the service has S3's protocol, write s3://bucket/path?endpoint_override=HOST",
    "hdfs": "write hdfs://namenode:port/path, or hdfs:///path for the default of the configuration",
    "viewfs": "write viewfs://cluster/path",
}


def plain_uri(uri: str) -> str:
    """Return the same place as batchval.segment.store names it."""
    found = _SCHEME.match(uri)
    if found is None:
        return uri
    scheme, rest = found[1].lower(), uri[found.end() :]
    if scheme == "dbfs" and os.path.isdir(DBFS):
        return f"{DBFS}/{rest.lstrip('/')}"
    if scheme == "file" and found[2] == "/":
        return f"file:///{rest}"
    if found[2] == "/":
        return uri
    return _BLOB.sub(r"\1.dfs.core.", f"{_SAME.get(scheme, scheme)}://{rest}", count=1)


def refusal(uri: str) -> str | None:
    """Return why a plain URI cannot be read; None for one that a store reads, and for paths."""
    found = _SCHEME.match(uri)
    if found is None:
        return None
    scheme, slashes = found[1].lower(), found[2]
    if scheme == "dbfs":
        return f"Databricks mounts dbfs:/ at {DBFS}, and this machine has no such folder"
    if slashes == "//" and scheme in ("file", *REMOTE):
        return None
    known = ", ".join(f"{name}://" for name in ("file", *REMOTE))
    reason = f"unknown scheme; known are paths and {known}" if scheme not in REMOTE else "not a URI"
    instead = _INSTEAD.get(scheme)
    if instead is None and slashes == "/":
        instead = f"write {scheme}://" if scheme in REMOTE else "write ./ in front of a local path"
    return f"{reason}; {instead}" if instead else reason


def root_of(parts: SplitResult) -> str:
    """Return the bucket or container that paths of pyarrow begin with; empty for other schemes."""
    user, at, host = parts.netloc.rpartition("@")
    if parts.scheme in _AZURE and at and host.endswith(_ACCOUNT):
        return user.partition(":")[0]
    if parts.scheme in _AZURE and ("." in host or ":" in host):
        return ""  # the URI's path begins with the container
    return host if parts.scheme in ("s3", "gs", "gcs", *_AZURE) else ""
