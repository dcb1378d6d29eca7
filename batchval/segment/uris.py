"""URIs of stores: spellings, and the parts that may be printed.

A URI may hold credentials, and one with an unescaped ``/`` or ``@`` in a secret is split at the
wrong place. So only a URI of this form is printed, without its user information:

    scheme://[user information@]host[:port]/path[?query]

Its path has no ``@``; of the query, settings that cannot be secrets are printed. Of any other URI
nothing is printed but the scheme.

Spellings are those of Hadoop and Spark, and the ones that batchval.segment.store reads:

    s3a://bucket/path s3n://bucket/path     s3://bucket/path
    wasb://container@account.blob.…/path    abfs://container@account.dfs.…/path
    wasbs://container@account.blob.…/path   abfss://container@account.dfs.…/path
    file:/path                              /path
    dbfs:/path dbfs:///path                 /dbfs/path, Databricks' mount, where there is one
"""

from __future__ import annotations

import os
import re
from urllib.parse import SplitResult, unquote, urlsplit

from batchval.errors import BatchvalError

__all__ = [
    "DBFS",
    "HIDDEN",
    "REMOTE",
    "one_line",
    "plain_uri",
    "refusal",
    "root_of",
    "shown",
    "split",
    "without_secrets",
]

#: how pyarrow begins an error of the system
_ARROW = re.compile(r".*\. Detail: \[errno \d+\] ")

#: replaces the parts that are not printed
HIDDEN = "…"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")

_CLEAN = re.compile(
    r"(?:[^/?#]*@)?(?P<host>[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?P<port>:\d{1,5})?"
    r"(?P<path>/[^?#@]*)?(?:\?(?P<query>[^?#]*))?(?:#[^@]*)?"
)

#: settings of pyarrow's file systems that cannot be secrets
_SETTINGS = frozenset(
    (
        "region",
        "scheme",
        "endpoint_override",
        "allow_bucket_creation",
        "allow_bucket_deletion",
        "check_directory_existence_before_creation",
        "force_virtual_addressing",
        "retry_limit_seconds",
        "request_timeout",
        "connect_timeout",
        "tls_ca_file_path",
        "tls_ca_dir_path",
        "tls_verify_certificates",
        "replication",
        "buffer_size",
        "default_block_size",
        "anonymous",
        "enable_tls",
    )
)

_VALUE = re.compile(r"[A-Za-z0-9._:/\[\]-]*")

#: each word is tried once: a long one must not take the square of its length
_TOKEN = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*+://[^\s'\"<>`]*")

#: secret.key=…, access_key=…, "password": "…"
_PAIR = re.compile(
    r"(?<![\w.-])([\w.-]++)(['\"]?\s*+(?:=|(?<=['\"]):|(?<=['\"] ):)\s*+)"
    r"(?:'[^']*'|\"[^\"]*\"|[^\s,;&]+)"
)

_SECRET = re.compile(
    r"(?i)secret|token|passw|access[_.-]?key|account[_.-]?key|signature|credential"
)


def split(uri: str) -> SplitResult:
    """Return the parts of a URI. Raises BatchvalError, which does not show it, if it has none."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or shown(uri).endswith(f"://{HIDDEN}"):
        how = "expected SCHEME://HOST/PATH; escape / and @ elsewhere as %2F and %40"
        raise BatchvalError(f"{shown(uri)}: not a URI: {how}")
    return parts


def shown(uri: str) -> str:
    """Return the printable parts of a URI; a path of this machine is returned as it is."""
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return uri
    name, rest = scheme[0], uri[scheme.end() + 3 :]
    if name == "file":
        return uri
    clean = _CLEAN.fullmatch(rest)
    if clean is None or any(
        not one.isprintable() or one.isspace() for one in clean["host"] + (clean["port"] or "")
    ):
        return f"{name}://{HIDDEN}"
    settings = [word for word in (clean["query"] or "").split("&") if _is_setting(word)]
    query = "?" + "&".join(settings) if settings else ""
    return f"{name}://{clean['host']}{clean['port'] or ''}{clean['path'] or ''}{query}"


def _is_setting(word: str) -> bool:
    key, equals, value = word.partition("=")
    return bool(equals) and key in _SETTINGS and _VALUE.fullmatch(unquote(value)) is not None


def without_secrets(text: str) -> str:
    """Return a text, such as an error's, without possible credentials."""
    start = text.find("://")
    if start >= 0:
        text = _TOKEN.sub(lambda found: shown(found[0]), text)
        start = text.find("://") + 3
        if "@" in text[start:]:  # a secret with a space or a quotation mark
            text = text[:start] + HIDDEN + text[text.rindex("@") + 1 :]
    return _PAIR.sub(
        lambda found: found[1] + found[2] + HIDDEN if _SECRET.search(found[1]) else found[0], text
    )


def one_line(error: BaseException) -> str:
    """Return an error as one line, without the line breaks and the credentials that storage
    services send.
    """
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = _ARROW.sub("", " ".join(text.split()))
    return without_secrets(text) or type(error).__name__


#: what pyarrow.fs reads
REMOTE = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")

#: where Databricks mounts dbfs:/ on its machines
DBFS = "/dbfs"

_SAME = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}

_AZURE = ("abfs", "abfss")

#: a scheme has two letters at least: C:/ is a folder of Windows
_SPELLING = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//?)")

_ACCOUNT = ".dfs.core.windows.net"

_BLOB = re.compile(r"(abfss?://[^/?#]*@[^/?#.]+)\.blob\.core\.")

_INSTEAD = {
    "oss": "where the service has S3's protocol, write s3://bucket/path?endpoint_override=HOST",
    "hdfs": "write hdfs://namenode:port/path, or hdfs:///path for the default of the configuration",
    "viewfs": "write viewfs://cluster/path",
}


def plain_uri(uri: str) -> str:
    """Return the same place as batchval.segment.store names it."""
    found = _SPELLING.match(uri)
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
    found = _SPELLING.match(uri)
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
