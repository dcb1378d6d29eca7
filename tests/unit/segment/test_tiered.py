"""Segments in tiered storage are listed, judged and joined (fixtures/tiered)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

from batchval.rules import Rule
from batchval.segment import remote as remote_module
from batchval.segment.findings import Finding, Level
from batchval.segment.store import SegmentInfo, Store, Unreadable
from batchval.segment.tiered import is_tiered, partition_of
from tests.system.at_rest.test_damage import by_audit, by_check, edit, flip

TIERED = Path(__file__).resolve().parents[3] / "fixtures" / "tiered"
TOPIC = "tiered-orders"
ID = "-Zz_9KeZwStOEOwRzT3L5oQ"[:22]

Find = Callable[[Path], list[Finding]]


def listed(uri: str) -> list[SegmentInfo | Unreadable]:
    store, path = Store.of(uri)
    return list(store.list_segments(path))


@pytest.fixture(params=["local", "aiven"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return the folder of the partition, in either layout."""
    shutil.copytree(TIERED / request.param, tmp_path / request.param)
    return next((tmp_path / request.param).rglob("*.log")).parent


@pytest.fixture(params=[0, 700, 100])
def find(request: pytest.FixtureRequest) -> Find:
    """Run ``check``, or an audit with this split."""
    size = request.param
    return (lambda folder: by_audit(folder, size)) if size else by_check


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


@pytest.mark.parametrize("layout", ["local", "aiven"])
def test_segments_have_topic_partition_and_base_offset(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = listed(str(TIERED / layout))
    kept = [one for one in found if isinstance(one, SegmentInfo)]
    assert len(kept) == len(found) == 3
    assert [(one.topic, one.partition, one.base_offset) for one in kept] == [
        (TOPIC, 0, n) for n in (0, 10, 20)
    ]
    assert not any(one.is_last for one in kept)
    assert all(one.is_tiered for one in kept)
    assert listed(kept[1].uri) == [kept[1]]
    suffixes = [side.name.rpartition(".")[2] for side in kept[0].sides]
    assert suffixes == (["index", "timeindex", "txnindex", "snapshot"] if layout == "local" else [])
    root = fs.SubTreeFileSystem(str(TIERED), fs.LocalFileSystem())
    monkeypatch.setattr(remote_module, "_connected", lambda _: root)
    there = [one for one in listed(f"s3://{layout}") if isinstance(one, SegmentInfo)]
    assert [one[1:5] for one in there] == [one[1:5] for one in kept]
    assert [one.is_last for one in there] == [False] * 3


@pytest.mark.parametrize("layout", ["local", "aiven"])
def test_what_a_broker_copied_has_no_findings(find: Find, layout: str) -> None:
    assert find(TIERED / layout) == []


def test_a_wrong_checksum_is_found(find: Find, folder: Path) -> None:
    edit(logs(folder)[1].name, flip(90))(folder)
    assert [(one.level, one.rule, one.segment) for one in find(folder)] == [
        (Level.FINDING, Rule.CRC_MISMATCH, 10)
    ]


def test_a_transaction_index_is_compared(find: Find, tmp_path: Path) -> None:
    shutil.copytree(TIERED / "local", tmp_path / "local")
    folder = next((tmp_path / "local").iterdir())
    index = logs(folder)[1].with_suffix(".txnindex")
    edit(index.name, flip(17))(folder)
    assert [(one.rule, Path(one.file)) for one in find(folder)] == [(Rule.L10, index)]


def test_the_same_offsets_twice_are_a_note(find: Find, folder: Path) -> None:
    """Repeat offsets: a new leader copies again what it does not find in the metadata (KIP-405)."""
    for path in folder.glob(f"{10:020}*"):
        shutil.copy(path, folder / f"{path.name[:20]}-{ID}{path.suffix}")
    (note,) = find(folder)
    assert (note.level, note.rule, note.position, note.segment) == (Level.NOTE, Rule.L2, 0, 10)
    assert note.reason.endswith("legal in tiered storage after a change of the leader (KIP-405)")


def test_a_gap_between_segments_is_a_note(find: Find, folder: Path) -> None:
    for path in folder.glob(f"{10:020}*"):
        path.unlink()
    (note,) = find(folder)
    assert (note.level, note.rule, note.segment) == (Level.NOTE, Rule.L3, 20)


def test_a_name_above_the_first_batch_is_found(find: Find, folder: Path) -> None:
    for path in folder.glob(f"{10:020}*"):
        path.rename(folder / path.name.replace(f"{10:020}", f"{12:020}"))
    (finding,) = find(folder)
    assert (finding.level, finding.rule, finding.segment) == (Level.FINDING, Rule.L8, 12)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (
            {"compression": True},
            "compressed by a plugin for tiered storage, as stated by its .rsm-manifest",
        ),
        (
            {"encryption": {"dataKey": "k:AA==", "aad": "AA=="}},
            "encrypted by a plugin for tiered storage",
        ),
        ({"compression": True, "encryption": {"aad": ""}}, "compressed and encrypted by a plugin"),
        ({"chunkIndex": None}, "its .rsm-manifest cannot be read: chunkIndex is missing"),
        (None, "its .rsm-manifest cannot be read: Expecting value"),
    ],
)
def test_transformed_segments_are_named_and_not_called_damaged(
    tmp_path: Path, entries: dict[str, object] | None, reason: str
) -> None:
    shutil.copytree(TIERED / "aiven", tmp_path / "aiven")
    log = sorted((tmp_path / "aiven").rglob("*.log"))[1]
    manifest = log.with_suffix(".rsm-manifest")
    changed = json.loads(manifest.read_text()) | entries if entries is not None else None
    manifest.write_text(json.dumps(changed) if changed else "")
    found = listed(str(tmp_path / "aiven"))
    (lost,) = (one for one in found if isinstance(one, Unreadable))
    assert lost.uri == str(log)
    assert reason in lost.reason
    assert [one.base_offset for one in found if isinstance(one, SegmentInfo)] == [0, 20]


@pytest.mark.parametrize(
    ("folder", "partition"),
    [
        (f"/tier/orders-3-{ID}", ("orders", 3)),
        (f"/tier/or-7-ders-12-{'9' * 22}", ("or-7-ders", 12)),
        (f"bucket/prefix/orders-{ID}/3", ("orders", 3)),
        (f"orders-{'-' * 22}/0", ("orders", 0)),
        (f"/tier/orders-99999999999-{ID}", None),
        (f"/tier/orders-{ID}/99999999999", None),
        ("/tier/orders-3", None),
        (f"/tier/orders-{ID}", None),
    ],
)
def test_names_of_folders(folder: str, partition: tuple[str, int] | None) -> None:
    assert partition_of(folder) == partition


def test_names_of_files() -> None:
    assert is_tiered(f"{7:020}-{ID}.log")
    assert not is_tiered(f"{7:020}.log")
    assert not is_tiered(f"{7:020}-{ID}x.log")


def test_topics_are_chosen_by_their_names() -> None:
    store, path = Store.of(str(TIERED))
    assert len(list(store.list_segments(path, (TOPIC,)))) == 6
    assert [
        one for one in store.list_segments(path, ("other",)) if isinstance(one, SegmentInfo)
    ] == []
