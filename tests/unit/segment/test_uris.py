"""Nothing that may be a credential is printed, whatever a URI or an error looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from batchval.errors import BatchvalError
from batchval.segment.store import Store, one_line
from batchval.segment.uris import shown, split, without_secrets
from batchval.spark.failures import of_error
from tests.unit.cli.conftest import ROOT, Ran, run

__all__ = ["run"]

SECRET = "wJalr"
URIS = [
    f"s3://KEY:{SECRET}/x@bucket/logs",
    f"s3://KEY:{SECRET}@x@bucket/logs",
    f"s3://KEY:12/{SECRET}@bucket/logs",
    f"s3://KEY:12/{SECRET}/@/bucket",
    f"s3://KEY:{SECRET}?x@bucket/logs",
    f"s3://KEY:{SECRET}#x@bucket/logs",
    f"s3://KEY:12#{SECRET}@bucket/logs",
    f"s3://KEY:{SECRET} x@bucket/logs",
    f"s3://KEY:{SECRET}[x@bucket/logs",
    f"s3://KEY:{SECRET}/bucket",
    f"s3://KEY:{SECRET}\u2100@bucket/logs",
    f"s3://KEY:{SECRET}%2Fx@bucket/logs",
    f"s3://bucket/logs?access_key=KEY&secret_key={SECRET}",
    f"s3://bucket/logs?secret_key=a&{SECRET}=1&region=eu",
    f"s3://bucket/logs?region={SECRET}@h",
    f"s3://bucket/logs?endpoint_override=http%3A%2F%2FKEY%3A{SECRET}%40host",
    f"gs://bucket/logs?access_token={SECRET}",
    f"hdfs://user:{SECRET}@name:8020/logs",
    f"ftp://me:{SECRET}/x@host/logs",
]


@pytest.mark.parametrize("uri", URIS)
def test_no_secret_is_shown(uri: str) -> None:
    assert SECRET not in shown(uri)
    for text in (
        uri,
        f"cannot open '{uri}': denied",
        f"Cannot parse URI: '{uri}'",
        f"GET {uri} failed; see x@y",
    ):
        assert SECRET not in without_secrets(text), text
        assert SECRET not in one_line(OSError(text))
    if shown(uri).endswith("://…"):
        for parse in (split, Store.of):
            with pytest.raises(BatchvalError, match=r"not a URI|unknown scheme") as refused:
                parse(uri)
            assert SECRET not in str(refused.value)


def test_what_parses_is_shown_without_credentials() -> None:
    for uri, seen in (
        ("s3://bucket/a%20b/c?region=eu", "s3://bucket/a%20b/c?region=eu"),
        ("s3://KEY:SECRET@bucket/a?secret_key=x&region=eu-1", "s3://bucket/a?region=eu-1"),
        ("hdfs://name:8020/logs/a", "hdfs://name:8020/logs/a"),
        ("hdfs://[::1]:8020/logs", "hdfs://[::1]:8020/logs"),
        ("file:///a@b/c", "file:///a@b/c"),
        ("/var/lib/a@b", "/var/lib/a@b"),
        ("s3://KEY:SEC/RET@bucket", "s3://…"),
    ):
        assert shown(uri) == seen
    assert without_secrets("put s3://bucket/x: denied") == "put s3://bucket/x: denied"


def test_a_long_text_takes_time_in_proportion_to_its_length() -> None:
    for unit in ("x", "secret", "s3:", "s3://", "a.b-"):
        text = unit * (1_000_000 // len(unit))
        assert len(without_secrets(text)) <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        f"secret_key={SECRET}",
        f"spark.hadoop.fs.s3a.secret.key={SECRET}",
        f'{{"access_key": "{SECRET}"}}',
        f"SharedAccessSignature = {SECRET}",
        f"session_token='{SECRET} {SECRET}'",
        f"fs.s3a.access.key={SECRET}, fs.s3a.endpoint=h",
    ],
)
def test_settings_that_are_secrets(text: str) -> None:
    assert SECRET not in without_secrets(f"refused: {text}")


@pytest.mark.parametrize(
    "uri", [uri for uri in URIS if shown(uri).endswith("://…") or uri.startswith("ftp")]
)
def test_no_command_prints_a_secret(run: Callable[..., Ran], tmp_path: Path, uri: str) -> None:
    folder = ROOT / "fixtures/segments/rolled-0"
    for words in (
        ["audit", "--engine", "local", uri],
        ["audit", "--engine", "local", "--json", uri],
        ["audit", "--engine", "local", folder, "--since", uri],
        ["audit", "--engine", "local", folder, "--out", uri],
        ["audit", "--compare", uri, uri],
        ["check", uri],
        ["check", "--json", uri],
        ["dump", uri],
    ):
        code, out, err = run(*words)
        assert code not in (0, 1)
        assert SECRET not in out + err, words


@pytest.mark.parametrize("uri", [uri for uri in URIS if shown(uri).endswith("://…")])
def test_an_error_of_spark_holds_no_secret(uri: str) -> None:
    trace = f"Job aborted\nTraceback (most recent call last):\n  File x\nOSError: cannot open {uri}: denied\n\tat java"
    assert SECRET not in of_error(RuntimeError(trace))
    assert SECRET not in of_error(RuntimeError(f"java.io.IOException: cannot open {uri}"))
