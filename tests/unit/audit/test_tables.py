"""Tables of an audit: two replicas in one run, rows by codec, and other readers of Parquet."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema, convert_to_deltalake
from deltalake.schema import PrimitiveType

from batchval.audit.audit_run import audit, list_work
from batchval.audit.local import run_local
from batchval.audit.outputs import SUMMARY
from batchval.audit.reduce import Audit
from batchval.audit.stored_audit import OutputError, facts_of, read
from batchval.audit.terminal import terminal_summary
from batchval.audit.totals import of_tables
from batchval.segment.options import Options
from tests.support.batches import GZIP, NOW, batch, records

NAME = f"{0:020}.log"
HOUR = datetime.datetime.fromtimestamp(NOW // 3_600_000 * 3600, datetime.UTC)


def replica(folder: Path, broker: int | None, data: bytes) -> None:
    """Write orders-0 of a broker; without a meta.properties where broker is None."""
    (folder / "orders-0").mkdir(parents=True)
    (folder / "orders-0" / NAME).write_bytes(data)
    if broker is not None:
        (folder / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={broker}\n")


def run(*folders: Path, out: Path | None = None, **options: Any) -> Audit:
    asked = Options(**options)
    todo = list_work([str(folder) for folder in folders], asked)
    return audit(
        todo,
        asked,
        lambda ranges, options, out: run_local(ranges, options, out, 1),
        out and str(out),
    )


def two_replicas(folder: Path) -> list[Path]:
    """Return two brokers with the same partition; one byte of the second broker's copy differs."""
    sound = [batch(records(2), base_offset=0), batch(records(2), codec=GZIP, base_offset=2)]
    damaged = bytearray(b"".join(sound))
    damaged[70] ^= 1
    replica(folder / "b1", 1, b"".join(sound))
    replica(folder / "b2", 2, bytes(damaged) + bytes(100) + batch(base_offset=9))
    return [folder / "b1", folder / "b2"]


def test_every_table_names_the_replica(tmp_path: Path) -> None:
    found = run(*two_replicas(tmp_path), out=tmp_path / "out")
    summary = found.tables["summary"].to_pylist()
    names = ("cluster", "broker", "topic", "partition", "hour", "codec", "batches", "damaged_bytes")
    assert [tuple(row[name] for name in names) for row in summary] == [
        ("abc", "1", "orders", 0, HOUR, "none", 1, 0),
        ("abc", "1", "orders", 0, HOUR, "gzip", 1, 0),
        ("abc", "2", "orders", 0, HOUR, "none", 1, 0),
        ("abc", "2", "orders", 0, HOUR, "gzip", 1, 0),
        ("abc", "2", "orders", 0, None, None, 1, 100),
    ]
    assert {row["broker"] for row in found.tables["errors"].to_pylist()} == {"2"}
    rows = pq.read_table(tmp_path / "out" / "batches").to_pylist()
    assert sorted(row["broker"] for row in rows) == ["1"] * 2 + ["2"] * 4
    facts = of_tables(found.tables)
    assert (facts.whole.batches, facts.whole.partitions, facts.whole.damaged_bytes) == (5, 1, 100)


def test_replicas_without_a_name_add_up(tmp_path: Path) -> None:
    for name in ("a", "b"):
        replica(tmp_path / name, None, batch(records(2)))
    found = run(tmp_path / "a", tmp_path / "b")
    (row,) = found.tables["summary"].to_pylist()
    assert (row["broker"], row["batches"], row["records"]) == (None, 2, 4)


@pytest.mark.parametrize(("deep", "sizes"), [(False, [None]), (True, [len(batch(records(3)))])])
def test_uncompressed_bytes_are_known_where_payloads_were_opened(
    tmp_path: Path, deep: bool, sizes: list[Any]
) -> None:
    replica(tmp_path / "b", 1, batch(records(3), codec=GZIP) + batch(records(1), base_offset=3))
    summary = run(tmp_path / "b", deep=deep).tables["summary"].to_pylist()
    none, gzip = summary
    assert none["uncompressed_bytes"] == none["bytes"]
    assert [gzip["uncompressed_bytes"]] == sizes


def test_transactions_have_a_row_for_each_partition(tmp_path: Path) -> None:
    segments = Path(__file__).resolve().parents[3] / "fixtures" / "segments"
    names = ("transactional-0", "transactional-open-0", "rolled-0")
    found = run(*(segments / name for name in names), out=tmp_path / "out")
    ended, open_one = pq.read_table(tmp_path / "out" / "transactions").to_pylist()
    assert ended == found.tables["transactions"].to_pylist()[0]
    assert (ended["topic"], ended["last_stable_offset"], ended["log_end_offset"]) == (
        "transactional",
        34,
        34,
    )
    assert (ended["committed"], ended["aborted"], ended["open_transactions"]) == (3, 3, [])
    assert (open_one["last_stable_offset"], open_one["log_end_offset"], open_one["open"]) == (
        3,
        8,
        1,
    )
    (one,) = open_one["open_transactions"]
    assert (one["producer_id"], one["first_offset"], one["is_hanging"]) == (2005, 3, True)
    assert one["first_timestamp"].year == 2026


def _duckdb(path: Path) -> list[dict[str, Any]]:
    import duckdb

    duckdb.sql("set timezone to 'UTC'")
    table = duckdb.sql(
        f"from read_parquet('{path}/**/*.parquet', hive_partitioning = false)"
    ).to_arrow_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _pandas(path: Path) -> list[dict[str, Any]]:
    frame = pd.concat(
        [pd.read_parquet(file, dtype_backend="pyarrow") for file in sorted(path.rglob("*.parquet"))]
    )
    return [
        {key: None if pd.isna(value) else value for key, value in row.items()}
        for row in frame.to_dict("records")
    ]


def _polars(path: Path) -> list[dict[str, Any]]:
    return pl.read_parquet(path / "**/*.parquet", hive_partitioning=False).to_dicts()


def _delta(path: Path) -> list[dict[str, Any]]:
    """Make the Parquet files a Delta table in their place."""
    folders = ("topic", "hour") if path.name == "batches" else ()
    schema = Schema([Field(name, PrimitiveType("string")) for name in folders])
    convert_to_deltalake(path, partition_by=schema if folders else None, partition_strategy="hive")
    rows: list[dict[str, Any]] = (
        DeltaTable(path).to_pyarrow_table().drop_columns(list(folders)).to_pylist()
    )
    return rows


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "delta": _delta,
    "duckdb": _duckdb,
    "pandas": _pandas,
    "polars": _polars,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("table", ["batches", "errors", "summary"])
def test_other_readers_have_the_same_rows(tmp_path: Path, reader: str, table: str) -> None:
    late = batch(records(1), base_offset=20, base_timestamp=2**62)
    replica(tmp_path / "b3", 3, late + batch(records(1), base_offset=10))
    run(*two_replicas(tmp_path), tmp_path / "b3", out=tmp_path / "out", columns=("all",))
    folder = tmp_path / "out" / table
    expected = [
        row
        for file in sorted(folder.rglob("*.parquet"))
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert len(expected) > 2
    assert sorted(map(_words, READERS[reader](folder))) == sorted(map(_words, expected))


def _words(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a row in words: readers have their own classes for times."""
    times = {
        k: v.isoformat(timespec="milliseconds")
        for k, v in row.items()
        if isinstance(v, datetime.datetime)
    }
    return sorted((name, str(value)) for name, value in (row | times).items())


def test_tables_of_an_older_release_are_refused(tmp_path: Path) -> None:
    run(*two_replicas(tmp_path), out=tmp_path / "out")
    file = tmp_path / "out" / "summary" / "part-0.parquet"
    assert facts_of(str(tmp_path / "out")).whole.batches == 5
    pq.write_table(pq.ParquetFile(file).read().replace_schema_metadata(None), file)
    with pytest.raises(OutputError, match="schema_version 1, but this release reads 3"):
        read(str(tmp_path / "out"), "summary")


def test_a_partition_that_has_findings_alone_is_counted(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / NAME).write_bytes(b"junk" * 30)
    found = run(tmp_path)
    (row,) = found.tables["summary"].to_pylist()
    assert (row["codec"], row["batches"], row["damaged_bytes"]) == (None, 0, 120)
    assert found.tables["summary"].schema.equals(SUMMARY)
    facts = of_tables(found.tables)
    assert (facts.whole.partitions, facts.topics["t"].findings, facts.hours[None].findings) == (
        1,
        1,
        1,
    )
    assert "1 finding" in terminal_summary(facts)
