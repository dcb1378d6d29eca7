"""Segments in S3 (versitygw): the same rows as from a disk, by ranged reads; a service that breaks
off half-way.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from batchval.audit.arrow_rows import UNREADABLE, read_range
from batchval.audit.audit_run import Work, audit, list_work
from batchval.audit.manifest import Manifest
from batchval.audit.reduce import Audit
from batchval.audit.stored_audit import facts_of
from batchval.audit.task import work
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range, cut
from batchval.segment.reader import LOOKBACK
from batchval.segment.store import SegmentInfo, Store, Unreadable, shown
from tests.support.go import GoMissing
from tests.support.s3_gateway import ACCESS, CREDENTIALS, SECRET, Wire, s3_gateway, uri, wire

SEGMENTS = Path(__file__).resolve().parents[3] / "fixtures" / "segments"
ROLLED = "kafka/logs/rolled-0"
LARGE = f"{0:020}.log"
SIZE = 2 * LOOKBACK


def one_by_one(ranges: Sequence[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
    """Read each range in this process, as a task of its own."""
    for part in ranges:
        yield from work((part,), options, out)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run a bucket ``kafka``: logs/ are the fixtures; large/big-0 is one large segment."""
    root = tmp_path_factory.mktemp("s3")
    shutil.copytree(SEGMENTS, root / "kafka" / "logs")
    big = root / "kafka" / "large" / "big-0"
    big.mkdir(parents=True)
    (big / LARGE).write_bytes(in_order((SEGMENTS / "codec-none-0" / LARGE).read_bytes(), SIZE))
    (root / "empty").mkdir()
    patch = pytest.MonkeyPatch()
    for name, value in CREDENTIALS.items():
        patch.setenv(name, value)
    try:
        with s3_gateway(root) as port:
            yield port
    except GoMissing as missing:
        pytest.skip(str(missing))
    finally:
        patch.undo()


@pytest.fixture
def line(service: int) -> Iterator[Wire]:
    with wire(service) as made:
        yield made


def in_order(batches: bytes, size: int) -> bytes:
    """Return the same batches repeated up to a number of bytes, with ascending offsets."""
    data = bytearray(batches * (size // len(batches)))
    at = offset = 0
    while at < len(data):
        struct.pack_into(">q", data, at, offset)
        offset += struct.unpack_from(">i", data, at + 23)[0] + 1
        at += 12 + int(struct.unpack_from(">i", data, at + 8)[0])
    return bytes(data)


def listed(path: str) -> list[SegmentInfo | Unreadable]:
    store, at = Store.of(path)
    return list(store.list_segments(at))


def rows_of(segment: SegmentInfo, split_bytes: int) -> list[dict[str, object]]:
    store, _ = Store.of(segment.uri)
    options = Options(split_bytes=split_bytes)
    blocks = (
        block for part in cut(segment, split_bytes, store) for block in read_range(part, options)
    )
    return [row for block in blocks for row in block.to_pylist()]


def test_what_is_listed_is_what_lies_on_the_disk(line: Wire) -> None:
    remote = listed(uri(line.port, "kafka/logs"))
    local = listed(str(SEGMENTS))
    assert len(remote) == len(local) > 15
    for there, here in zip(remote, local, strict=True):
        assert isinstance(there, SegmentInfo)
        assert isinstance(here, SegmentInfo)
        assert there.uri.startswith("s3://kafka/logs/")
        assert (there.topic, there.partition, there.base_offset, there.size) == here[1:5]
        assert (there.index_uri is None, there.cleaned) == (here.index_uri is None, here.cleaned)


@pytest.mark.parametrize("split_bytes", [1_000, 1 << 20])
def test_rows_are_those_of_the_disk(line: Wire, split_bytes: int) -> None:
    remote = listed(uri(line.port, "kafka/logs"))
    for there, here in zip(remote, listed(str(SEGMENTS)), strict=True):
        assert isinstance(there, SegmentInfo)
        assert isinstance(here, SegmentInfo)
        assert rows_of(there, split_bytes) == rows_of(here, split_bytes)


def test_a_range_reads_about_its_own_bytes(line: Wire) -> None:
    (segment,) = listed(uri(line.port, "kafka/large"))
    assert isinstance(segment, SegmentInfo)
    store, _ = Store.of(segment.uri)
    parts = cut(segment, 1 << 20, store)
    part = parts[-2]
    before = line.answered
    there = [row for block in read_range(part, Options()) for row in block.to_pylist()]
    # to know where a batch starts it looks back, and a request asks for some MiB
    assert line.answered - before < (1 << 20) + LOOKBACK + (9 << 20) < segment.size
    assert any(
        re.search(r"^GET /kafka/large/.* bytes=\d+-\d+$", request) for request in line.requests
    )
    here = [
        row
        for block in read_range(parts[0]._replace(end=SIZE), Options())
        for row in block.to_pylist()
    ]
    assert there == [row for row in here if part.start <= row["position"] < part.end]
    assert len(there) > 100


def test_an_audit_of_a_bucket_is_that_of_the_disk(line: Wire, tmp_path: Path) -> None:
    options = Options(rows="none", split_bytes=4_000)
    sums = []
    for name, path in (("there", uri(line.port, "kafka/logs")), ("here", str(SEGMENTS))):
        out = str(tmp_path / name)
        audit(list_work([path], options), options, one_by_one, out)
        facts = facts_of(out)
        sums.append(
            (facts.topics, facts.hours, facts.whole, facts.findings_count, facts.unreadable)
        )
    assert sums[0] == sums[1]
    assert sums[0][2].batches > 300


def test_a_uri_as_spark_s_users_write_it(line: Wire) -> None:
    plain = uri(line.port, ROLLED)
    assert listed(plain.replace("s3://", "s3a://")) == listed(plain)
    assert len(listed(plain)) == 3


def test_outputs_may_lie_there_too(line: Wire) -> None:
    options = Options(rows="all")
    out = uri(line.port, "empty/audit")
    found = audit(
        list_work([uri(line.port, ROLLED)], options),
        options,
        one_by_one,
        out,
    )
    facts = facts_of(out)
    assert (facts.whole.batches, facts.segments, facts.findings_count) == (36, 3, 0)
    assert len(found.files) >= 3


@pytest.mark.parametrize(
    "after", [300, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 20_000))]
)
def test_a_service_that_breaks_off_loses_one_segment(
    line: Wire, tmp_path: Path, after: int
) -> None:
    line.cut, line.after = re.compile(r"GET /kafka/logs/codec-none-0/\S+\.log"), after
    options = Options(rows="bad")
    todo = list_work([uri(line.port, "kafka/logs")], options)
    out = str(tmp_path / "out")
    audit(todo, options, one_by_one, out)
    assert line.broken > 0
    facts = facts_of(out)
    ((file, reason),) = facts.unreadable
    assert "/codec-none-0/" in file
    assert "\n" not in reason
    assert SECRET not in file + reason
    whole = facts_of(_local(tmp_path, options))
    assert facts.whole.batches <= whole.whole.batches - 1
    assert {name: t for name, t in facts.topics.items() if name != "codec-none"} == {
        name: t for name, t in whole.topics.items() if name != "codec-none"
    }


def _local(tmp_path: Path, options: Options) -> str:
    out = str(tmp_path / "local")
    todo = list_work([str(SEGMENTS)], options)
    audit(todo, options, one_by_one, out)
    return out


def test_the_command_says_what_broke_off_and_ends_with_3(line: Wire) -> None:
    line.cut, line.after = re.compile(r"GET /kafka/logs/rolled-0/\S+30\.log"), 500
    command = [
        sys.executable,
        "-m",
        "batchval",
        "audit",
        uri(line.port, ROLLED),
        "--engine",
        "local",
        "--json",
    ]
    done = subprocess.run(
        [*command, "--processes", "1"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("batchval audit: s3://kafka/logs/rolled-0/00000000000000000030.log")
    assert SECRET not in line
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["segments"], summary["batches"], summary["findings"]) == (3, 24, 0)
    assert len(summary["unreadable"]) == 1


def test_a_listing_that_breaks_off_is_reported(line: Wire) -> None:
    line.cut, line.after = re.compile(r"GET /kafka\S*list-type"), 200
    (lost,) = listed(uri(line.port, "kafka/logs"))
    assert isinstance(lost, Unreadable)
    assert "\n" not in lost.reason


@pytest.mark.parametrize("bucket", ["nothing-here/logs", "empty"])
def test_no_such_bucket_and_an_empty_one(line: Wire, bucket: str) -> None:
    (lost,) = listed(uri(line.port, bucket))
    assert isinstance(lost, Unreadable)
    assert "\n" not in lost.reason
    assert len(lost.reason) < 400


def test_wrong_credentials_are_reported_without_their_text(line: Wire) -> None:
    path = uri(line.port, "kafka/logs").replace("s3://", "s3://batchval:wrong-secret@")
    (lost,) = listed(path)
    assert isinstance(lost, Unreadable)
    assert "\n" not in lost.reason
    assert "wrong-secret" not in lost.reason


def _mapped(todo: Work, options: Options, out: str) -> Audit:
    return audit(todo, options, one_by_one, out)


def test_credentials_stay_in_the_command(line: Wire, tmp_path: Path) -> None:
    """Check that tables hold no credentials, and --since finds the same segments with and without
    them.
    """
    options = Options(rows="bad")
    path = uri(line.port, "kafka/logs").replace("s3://", f"s3://{ACCESS}:{SECRET}@")
    line.cut, line.after = re.compile(r"GET /kafka/logs/codec-zstd-0/\S+log .*bytes="), 300
    out = tmp_path / "out"
    todo = list_work([path], options)
    flipped = [part for part in todo.ranges if part.segment.topic == "rolled"]
    todo.ranges.remove(flipped[1])  # as if it had not been read
    found = _mapped(todo, options, str(out))
    assert found.unreadable
    assert len(found.findings)
    for name in ("errors", "summary", "segments"):
        rows = found.tables[name].to_pylist()
        assert rows
        assert SECRET not in repr(rows)
    assert SECRET not in repr((found.unreadable, list(found.findings)))
    line.cut = None
    lost = {entry["file"] for entry in found.tables["segments"].to_pylist() if entry["unreadable"]}
    manifest = Manifest.read(str(out), options)
    for again in (path, uri(line.port, "kafka/logs")):
        assert {
            shown(part.segment.uri) for part in list_work([again], options, manifest).ranges
        } == lost


def test_segments_of_a_partition_belong_together_whatever_the_query_says(
    line: Wire, tmp_path: Path
) -> None:
    path = uri(line.port, ROLLED).replace("endpoint_override=", "endpoint_override=http://")
    todo = list_work([path], Options(rows="none"))
    todo.ranges = [part for part in todo.ranges if part.segment.base_offset != 30]
    todo.listed = [
        one for one in todo.listed if isinstance(one, SegmentInfo) and one.base_offset != 30
    ]
    found = _mapped(todo, Options(rows="none", cleanup_policy="delete"), str(tmp_path / "out"))
    assert found.rules() == {"L3": 1}


@pytest.mark.slow  # it is tried again and again
def test_nobody_there_is_one_row(service: int) -> None:
    with wire(service) as made:
        (segment, *_) = listed(uri(made.port, ROLLED))
        port = made.port
    assert isinstance(segment, SegmentInfo)
    (row,) = rows_of(segment._replace(uri=uri(port, f"{ROLLED}/{LARGE}")), 1 << 20)
    assert (row["rule"], row["position"]) == (UNREADABLE, None)
