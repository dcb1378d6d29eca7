"""Test where segments are found, and the errors of a store."""

from __future__ import annotations

import os
import pickle
import random
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from batchval.audit.arrow_rows import ROW_SCHEMA, UNREADABLE, read_range
from batchval.audit.outputs import place_of
from batchval.errors import BatchvalError
from batchval.segment import remote as remote_module
from batchval.segment.options import Options
from batchval.segment.ranges import Range, cut
from batchval.segment.store import SegmentInfo, Store, Unreadable, one_line
from tests.support.batches import batch
from tests.support.segments import segment

SEGMENTS = Path(__file__).parents[3] / "fixtures" / "segments"
UUID = "0123456789abcdef0123456789abcdef"


def listed(uri: str, topics: tuple[str, ...] | None = None) -> list[SegmentInfo | Unreadable]:
    store, path = Store.of(uri)
    return list(store.list_segments(path, topics))


def put(folder: Path, name: str = "00000000000000000000.log", data: bytes = b"") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that stands for everything in the bucket ``kept``."""
    bucket = tmp_path / "kept"
    bucket.mkdir()
    monkeypatch.setattr(
        remote_module,
        "_connected",
        lambda _: fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()),
    )
    return bucket


def test_the_fixtures() -> None:
    found = listed(str(SEGMENTS))
    assert all(isinstance(one, SegmentInfo) for one in found)
    assert len(found) == len(list(SEGMENTS.rglob("*.log")))
    assert [one.uri for one in found] == sorted(one.uri for one in found)
    rolled = [one for one in found if isinstance(one, SegmentInfo) and one.topic == "rolled"]
    assert [(one.partition, one.base_offset, one.index_uri is not None) for one in rolled] == [
        (0, 0, True),
        (0, 30, True),
        (0, 60, True),
    ]
    assert {one.cleaned for one in found if isinstance(one, SegmentInfo)} == {True, False}
    assert listed(str(SEGMENTS / "rolled-0")) == rolled
    assert listed(rolled[1].uri) == [rolled[1]]
    assert listed(f"file://{SEGMENTS}") == found
    assert listed(os.path.relpath(SEGMENTS)) == found


@pytest.mark.parametrize(
    ("uri", "plain", "path"),
    [
        ("s3a://bucket/a%20b/c", "s3://bucket/a%20b/c", "bucket/a b/c"),
        ("S3N://bucket/a?region=eu", "s3://bucket/a?region=eu", "bucket/a"),
        *(
            (
                f"{scheme}://logs@acc.{kind}.core.windows.net/a/b",
                f"{kept}://logs@acc.dfs.core.windows.net/a/b",
                "logs/a/b",
            )
            for scheme, kept in (
                ("wasb", "abfs"),
                ("wasbs", "abfss"),
                ("abfs", "abfs"),
                ("abfss", "abfss"),
            )
            for kind in ("blob", "dfs")
        ),
        (
            "abfss://acc.blob.core.windows.net/logs/a",
            "abfss://acc.blob.core.windows.net/logs/a",
            "logs/a",
        ),
        (
            "abfs://acc:key@127.0.0.1:10000/logs/a",
            "abfs://acc:key@127.0.0.1:10000/logs/a",
            "logs/a",
        ),
        ("abfs://acc:key@logs/a", "abfs://acc:key@logs/a", "logs/a"),
    ],
)
def test_uris_as_hadoop_and_spark_spell_them(uri: str, plain: str, path: str) -> None:
    """Check that pyarrow makes the same path of the plain form."""
    store, found = Store.of(uri)
    assert (store.uri(found), found) == (plain, path)
    assert Store.of(plain) == (store, found)
    if "://acc:key@127" not in uri and not uri.lower().startswith("s3"):
        assert fs.FileSystem.from_uri(plain)[1] == path


def test_local_uris_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path / "mount" / "t-0")
    for uri in (f"file:{tmp_path}", f"file://{tmp_path}"):
        assert [one.uri for one in listed(uri)] == [str(file)]
    monkeypatch.setattr("batchval.segment.uris.DBFS", str(tmp_path / "mount"))
    for uri in ("dbfs:/t-0", "dbfs:///t-0"):
        assert [one.uri for one in listed(uri)] == [str(file)]


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        (
            "dbfs:/logs",
            "dbfs:/logs: Databricks mounts dbfs:/ at /dbfs, and this machine has no such folder",
        ),
        (
            "oss://me:secret@bucket/a",
            "oss://bucket/a: unknown scheme; known are paths and file://, s3://",
        ),
        ("oss://bucket/a", "write s3://bucket/path?endpoint_override=HOST"),
        ("hdfs:/logs", "hdfs:/logs: not a URI; write hdfs://namenode:port/path"),
        ("s3:/bucket/a", "s3:/bucket/a: not a URI; write s3://"),
        ("nfs:/logs", "nfs:/logs: unknown scheme; known are paths"),
    ],
)
def test_schemes_that_are_refused(uri: str, reason: str) -> None:
    with pytest.raises(BatchvalError, match=re.escape(reason)):
        Store.of(uri)
    with pytest.raises(BatchvalError, match=re.escape(reason)):
        place_of(uri)


def test_schemes() -> None:
    with pytest.raises(BatchvalError, match=r"^ftp://host/a: unknown scheme; known are"):
        Store.of("ftp://me:secret@host/a")
    assert Store.of("s3://bucket/a%20b/c?region=eu")[1] == "bucket/a b/c"
    assert Store.of("s3://key:secret@bucket/a/")[1] == "bucket/a"
    assert Store.of("hdfs://name:8020/logs/a")[1] == "/logs/a"
    for uri in (
        "s3://bucket/a%20b/c?region=eu",
        "hdfs://name:8020/logs/a",
        "s3://key:secret@bucket/a",
    ):
        store, path = Store.of(uri)
        assert store.uri(path) == uri
        assert pickle.loads(pickle.dumps(store)) == store
        assert len(pickle.dumps(store)) < 300
        assert not store.grows
    assert (
        one_line(OSError("put s3://key:secret@bucket/x:\n  denied")) == "put s3://bucket/x: denied"
    )


def test_odd_names(tmp_path: Path) -> None:
    for name in (
        "a-b-7",
        "ünï-0",
        "no number",
        "x-99999999999",
        "-3",
        "new\nline-1",
        "__consumer_offsets-49",
    ):
        put(tmp_path / name)
    for name in (f"a-0.{UUID}-delete", f"a-0.{UUID}-future", f"a-0.{UUID}-stray"):
        put(tmp_path / name)
    put(tmp_path / "a-b-7", "00000000000000000000.log.deleted")
    put(tmp_path / "a-b-7", "17.log")
    put(tmp_path / "a-b-7", "00000000000000000000.index")
    names = {
        (one.topic, one.partition) for one in listed(str(tmp_path)) if isinstance(one, SegmentInfo)
    }
    assert names == {
        ("a-b", 7),
        ("ünï", 0),
        ("no number", -1),
        ("x-99999999999", -1),
        ("-3", -1),
        ("new\nline", 1),
        ("__consumer_offsets", 49),
    }
    assert len(listed(str(tmp_path))) == 7
    assert [
        one.topic for one in listed(str(tmp_path), ("a-b", "__*")) if isinstance(one, SegmentInfo)
    ] == [
        "__consumer_offsets",
        "a-b",
    ]
    assert listed(str(tmp_path), ("nobody",)) == []


def test_a_folder_that_cannot_be_listed_is_reported(tmp_path: Path) -> None:
    assert listed(str(tmp_path)) == [Unreadable(str(tmp_path), "no segments in this folder")]
    missing = str(tmp_path / "missing")
    assert listed(missing) == [Unreadable(missing, "No such file or directory")]
    text = put(tmp_path / "a-0", "notes.txt")
    (one,) = listed(str(text))
    assert isinstance(one, Unreadable)
    assert one.reason.startswith("not a segment")
    gone = tmp_path / "a-0" / f"{1:020}.log"
    gone.symlink_to(tmp_path / "nowhere")
    assert listed(str(tmp_path)) == [Unreadable(str(gone), "No such file or directory")]


def test_cleaner_checkpoints(tmp_path: Path) -> None:
    put(tmp_path / "a-0")
    put(tmp_path / "a-1")
    assert [one.cleaned for one in listed(str(tmp_path)) if isinstance(one, SegmentInfo)] == [
        None,
        None,
    ]
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\na 1 17\n")
    assert [one.cleaned for one in listed(str(tmp_path)) if isinstance(one, SegmentInfo)] == [
        False,
        True,
    ]
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"\xff\xfe")
    assert [one.cleaned for one in listed(str(tmp_path)) if isinstance(one, SegmentInfo)] == [
        None,
        None,
    ]


def rows_of(uri: str, options: Options) -> pa.Table:
    store, path = Store.of(uri)
    found = []
    for one in store.list_segments(path):
        assert isinstance(one, SegmentInfo), one
        for part in cut(one, options.split_bytes, store):
            assert len(pickle.dumps(part)) < 600
            found += list(read_range(part, options))
    return pa.Table.from_batches(found, ROW_SCHEMA).drop_columns("file")


def test_a_store_gives_the_rows_of_the_disk(remote: Path) -> None:
    shutil.copytree(SEGMENTS, remote / "logs")
    put(remote / "logs" / "odd name-0", data=segment(random.Random(3), 200))
    local = rows_of(str(remote / "logs"), Options(columns=("all",)))
    assert local.num_rows > 300
    for split_bytes in (1 << 20, 1000):
        assert rows_of(
            "s3://kept/logs?region=x", Options(columns=("all",), split_bytes=split_bytes)
        ).equals(local)
    near, far = listed(str(remote / "logs")), listed("s3://kept/logs?region=x")
    assert [one[1:5] for one in near] == [one[1:5] for one in far]
    assert [one.cleaned for one in near if isinstance(one, SegmentInfo)] == [
        one.cleaned for one in far if isinstance(one, SegmentInfo)
    ]
    (one,) = listed(far[0].uri)
    assert one[:7] == far[0][:7]
    store, path = Store.of(far[0].uri)
    assert store.size(path) == near[0][4]
    with store.open(path) as file:
        assert bytes(file.read(0, 17)) == Path(near[0].uri).read_bytes()[:17]


def test_a_store_that_fails(remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = listed("s3://kept/nothing")
    assert isinstance(one, Unreadable)
    path = put(remote / "a-0", data=batch() * 3)
    (info,) = listed("s3://kept")
    assert isinstance(info, SegmentInfo)
    store, inside = Store.of(info.uri)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        store.size(inside)
    (block,) = read_range(Range(info, 0, info.size), Options())
    (row,) = block.to_pylist()
    assert (row["rule"], row["topic"]) == (UNREADABLE, "a")
    assert cut(info, 100, store) == [Range(info, 0, info.size)]

    def refusing(_: str) -> None:
        raise pa.ArrowInvalid("no such\nregion")

    monkeypatch.undo()
    monkeypatch.setattr(
        fs, "FileSystem", type("Refusing", (), {"from_uri": staticmethod(refusing)})
    )
    remote_module._connected.cache_clear()
    assert listed("s3://key:secret@other/x") == [Unreadable("s3://other/x", "no such region")]
    remote_module._connected.cache_clear()


# ---- folders as hostile users have them ----------------------------------------------------------


def test_links_are_followed_and_no_folder_is_walked_twice(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "b-0")
    put(tmp_path / "logs" / "a-0")
    (tmp_path / "logs" / "b-0").symlink_to(tmp_path / "elsewhere" / "b-0")
    (tmp_path / "logs" / "again").symlink_to(tmp_path / "logs" / "a-0")
    (tmp_path / "logs" / "loop").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "itself").symlink_to("itself")
    found = listed(str(tmp_path / "logs"))
    assert [(one.topic, one.partition) for one in found if isinstance(one, SegmentInfo)] == [
        ("a", 0),
        ("b", 0),
    ]
    assert len(found) == 2


def test_folders_by_the_names_of_files(tmp_path: Path) -> None:
    """Check that unreadable folders do not look as if they were missing."""
    log = tmp_path / "a-0" / "00000000000000000000.log"
    log.mkdir(parents=True)
    put(tmp_path / "b-0")
    index = tmp_path / "b-0" / "00000000000000000000.index"
    index.mkdir()
    one, other = listed(str(tmp_path))
    assert isinstance(one, SegmentInfo)
    assert isinstance(other, SegmentInfo)
    assert (one.uri, other.index_uri) == (str(log), str(index))
    for path in (one.uri, other.index_uri):
        with pytest.raises(IsADirectoryError):
            Store.of(str(path))[0].read_bytes(str(path))


def test_a_name_buys_no_memory(tmp_path: Path) -> None:
    put(tmp_path / "a-0")
    index = put(tmp_path / "a-0", "00000000000000000000.index")
    checkpoint = put(tmp_path, "cleaner-offset-checkpoint")
    for path in (index, checkpoint):
        os.truncate(path, 1 << 40)
    (found,) = listed(str(tmp_path))
    assert isinstance(found, SegmentInfo)
    assert found.cleaned is None
    with pytest.raises(OSError, match="1,099,511,627,776 bytes are too many"):
        Store.of(str(index))[0].read_bytes(str(index))


def test_the_checkpoint_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        put(tmp_path / f"a-{n}")
    put(tmp_path, "cleaner-offset-checkpoint", b"0\n2\na 1 7\na 3 9\n")
    read: list[str] = []
    monkeypatch.setattr(
        Store, "read_bytes", lambda self, path: read.append(path) or Path(path).read_bytes()
    )
    found = listed(str(tmp_path))
    assert [one.cleaned for one in found if isinstance(one, SegmentInfo)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert sum(path.endswith("cleaner-offset-checkpoint") for path in read) == 1


def test_absurd_splits_are_few(tmp_path: Path) -> None:
    file = put(tmp_path / "a-0")
    os.truncate(file, 2 << 30)
    (found,) = listed(str(tmp_path))
    assert isinstance(found, SegmentInfo)
    parts = cut(found, 1, Store.of(found.uri)[0])
    assert len(parts) == 4096
    assert [parts[0].start, parts[-1].end] == [0, 2 << 30]
    assert all(a.end == b.start for a, b in pairwise(parts))
