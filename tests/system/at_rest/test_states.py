"""An audit that goes on from another has the findings of one that reads everything, with their
states."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from batchval.audit.audit_run import audit, list_work
from batchval.audit.local import run_local
from batchval.audit.manifest import Manifest
from batchval.audit.reduce import Audit
from batchval.rules import Rule
from batchval.segment.findings import Finding, State
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range
from tests.support.batches import batch, records
from tests.system.at_rest.test_damage import DAMAGES, SEGMENTS, TRANSACTIONS, batches, copied

DAY = 86_400_000
T0 = 1_795_212_000_000


@dataclass
class Chain:
    """Audits of one folder that go on from each other, a day apart."""

    folder: Path
    out: Path
    count: int = 0
    cleanup_policy: str = "delete"

    def run(
        self, *, resume: bool = True, reread_ms: int | None = None, now_ms: int | None = None
    ) -> Audit:
        """Audit; with ``resume`` from the run before on."""
        now_ms = T0 + self.count * DAY if now_ms is None else now_ms
        options = Options(
            deep=True, cleanup_policy=self.cleanup_policy, split_bytes=700, now_ms=now_ms
        )
        since = (
            Manifest.read(str(self.out / str(self.count - 1)), options)
            if resume and self.count
            else None
        )
        todo = list_work([str(self.folder)], options, since, reread_ms)
        out = str(self.out / str(self.count)) if resume else None
        self.count += resume
        return audit(todo, options, _engine, out)


def _engine(ranges: Sequence[Range], options: Options, out: str | None) -> Iterator[RangeResult]:
    return run_local(ranges, options, out, 1)


def plain(found: Sequence[Finding]) -> list[Finding]:
    """Return findings without what depends on the runs before."""
    return [one._replace(state=State.NEW, first_seen=None) for one in found]


def same_as_a_full_audit(chain: Chain, found: Audit) -> None:
    full = chain.run(resume=False)
    assert plain([*found.findings, *found.notes]) == plain([*full.findings, *full.notes])


def states(found: Audit) -> list[State]:
    return [one.state for one in found.findings]


def keep(folder: Path) -> Path:
    """Copy a partition and the checkpoints next to it."""
    kept = folder.parent.with_name("kept")
    shutil.copytree(folder.parent, kept)
    return kept


def repair(folder: Path, kept: Path) -> None:
    """Put back what was there, as it was written then."""
    shutil.rmtree(folder.parent)
    shutil.copytree(kept, folder.parent)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    (tmp_path / "logs").mkdir()
    return Chain(copied(tmp_path / "logs"), tmp_path / "out")


def transactional(tmp_path: Path) -> Chain:
    folder = tmp_path / "logs" / "transactional-0"
    shutil.copytree(SEGMENTS / folder.name, folder)
    return Chain(folder, tmp_path / "out")


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damage_is_new_then_open_then_gone(chain: Chain, what: str) -> None:
    kept = keep(chain.folder)
    assert chain.run().findings == []
    DAMAGES[what].act(chain.folder)
    first = chain.run()
    assert states(first) == [State.NEW]
    same_as_a_full_audit(chain, first)
    second = chain.run()
    assert states(second) == [State.OPEN]
    assert second.batches == 0
    assert second.findings[0].first_seen == T0 + DAY
    same_as_a_full_audit(chain, second)
    repair(chain.folder, kept)
    third = chain.run()
    assert (third.findings, states_of_gone(third)) == ([], [(DAMAGES[what].rule, T0 + DAY)])
    same_as_a_full_audit(chain, third)
    assert chain.run().gone == []


def states_of_gone(found: Audit) -> list[tuple[Rule, int | None]]:
    assert {one.state for one in found.gone} <= {State.GONE}
    return [(one.rule, one.first_seen) for one in found.gone]


@pytest.mark.parametrize("what", TRANSACTIONS)
def test_a_transaction_index_is_judged_without_its_log(tmp_path: Path, what: str) -> None:
    chain = transactional(tmp_path)
    kept = keep(chain.folder)
    assert chain.run().findings == []
    TRANSACTIONS[what](chain.folder)
    first = chain.run()
    assert [(one.rule, one.state) for one in first.findings] == [(Rule.L10, State.NEW)]
    assert first.batches == 0
    same_as_a_full_audit(chain, first)
    assert states(chain.run()) == [State.OPEN]
    repair(chain.folder, kept)
    assert states_of_gone(chain.run()) == [(Rule.L10, T0 + DAY)]


# ---- segments that come, grow, go, and cannot be read --------------------------------------------

LOGS = [f"{base:020}.log" for base in (0, 30, 60)]


def test_a_segment_that_is_deleted_takes_its_findings(chain: Chain) -> None:
    DAMAGES["payload"].act(chain.folder)
    DAMAGES["lost batch"].act(chain.folder)
    chain.run()
    for name in LOGS[:2]:
        for path in chain.folder.glob(f"{name[:20]}.*"):
            path.unlink()
    found = chain.run()
    assert {one.state for one in found.gone} == {State.GONE}
    same_as_a_full_audit(chain, found)


def test_small_files_are_read_without_finding_the_rest_twice(chain: Chain) -> None:
    """Make the second segment the first, to which the partition's own files belong."""
    DAMAGES["times cut"].act(chain.folder)
    chain.run()
    for path in chain.folder.glob(f"{LOGS[0][:20]}.*"):
        path.unlink()
    found = chain.run()
    assert (states(found), found.batches) == ([State.OPEN], 0)
    same_as_a_full_audit(chain, found)


def test_what_cannot_be_read_is_open(chain: Chain) -> None:
    """Check that a disk that is not mounted repairs nothing."""
    DAMAGES["payload"].act(chain.folder)
    DAMAGES["epoch lost"].act(chain.folder)
    chain.run()
    away = chain.folder.with_name("away")
    chain.folder.rename(away)
    found = chain.run()
    assert (len(found.unreadable), set(states(found)), found.gone) == (1, {State.OPEN}, [])
    away.rename(chain.folder)
    (again,) = [one for one in chain.run().findings if one.rule is Rule.CRC_MISMATCH]
    assert (again.state, again.first_seen) == (State.OPEN, T0)


def test_a_file_that_cannot_be_read_is_tried_again(chain: Chain) -> None:
    """Check that its partition's findings stay open; those of others do not."""
    log = chain.folder / LOGS[2]
    DAMAGES["payload"].act(chain.folder)
    DAMAGES["recovery-point-offset-checkpoint beyond the end"].act(chain.folder)
    chain.run()
    data, stamp = log.read_bytes(), log.stat().st_mtime_ns
    log.unlink()
    log.symlink_to(chain.folder / "nowhere")
    lost = chain.run()
    assert (len(lost.unreadable), set(states(lost)), lost.gone) == (1, {State.OPEN}, [])
    row = [one for one in lost.tables["errors"].to_pylist() if one["rule"] == "UNREADABLE"]
    assert [one["state"] for one in row] == ["new"]
    row = [one for one in chain.run().tables["errors"].to_pylist() if one["rule"] == "UNREADABLE"]
    assert [one["state"] for one in row] == ["open"]
    log.unlink()
    log.write_bytes(data)
    os.utime(log, ns=(stamp, stamp))
    found = chain.run()
    assert (found.unreadable, set(states(found))) == ([], {State.OPEN})
    same_as_a_full_audit(chain, found)


def test_other_paths_and_topics_say_nothing_of_the_rest(chain: Chain, tmp_path: Path) -> None:
    DAMAGES["payload"].act(chain.folder)
    chain.run()
    healthy = shutil.copytree(SEGMENTS / "codec-none-0", tmp_path / "logs" / "codec-none-0")
    found = Chain(healthy, chain.out, 1).run()
    assert (found.findings, found.gone) == ([], [])


def test_a_segment_grows(chain: Chain) -> None:
    """Check that findings of its first part stay, new ones are found, and notes at its end move."""
    log = chain.folder / LOGS[2]
    whole, index = log.read_bytes(), log.with_suffix(".index").read_bytes()
    first = batches(whole)
    half = len(b"".join(first[:5]))
    log.write_bytes(whole[:half] + bytes(500))
    log.with_suffix(".index").write_bytes(bytes(80))
    note = chain.run()
    assert [one.rule for one in note.notes] == [Rule.L1]
    log.write_bytes(whole)
    log.with_suffix(".index").write_bytes(index)
    found = chain.run()
    assert 0 < found.batches < len(first)
    assert found.grown == 1
    same_as_a_full_audit(chain, found)


def test_bit_rot_that_leaves_the_time_is_found_in_time(chain: Chain) -> None:
    chain.run()
    log = chain.folder / LOGS[1]
    stamp = log.stat().st_mtime_ns
    DAMAGES["payload"].act(chain.folder)
    os.utime(log, ns=(stamp, stamp))
    assert chain.run().findings == []
    assert chain.run(reread_ms=400 * DAY).reread == 0
    found = chain.run(reread_ms=3 * DAY)
    assert (found.reread, states(found)) == (3, [State.NEW])
    same_as_a_full_audit(chain, found)


def sequences(folder: Path, *numbers: int | None) -> None:
    """Write a segment for each number: one producer's batch with that sequence, or nobody's."""
    for i, number in enumerate(numbers):
        fields = {"base_offset": 3 * i, "partition_leader_epoch": 4}
        if number is not None:
            fields |= {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        data = batch(records(3), **fields)
        path = folder / f"{3 * i:020}.log"
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


def test_a_sequence_is_held_against_a_replaced_segment_far_before(tmp_path: Path) -> None:
    """Put the next batch into a segment that has not changed, and whose neighbours have not."""
    chain = Chain(tmp_path / "logs" / "t-0", tmp_path / "out")
    chain.folder.mkdir(parents=True)
    sequences(chain.folder, 0, 3, None, None, 6, None)
    assert chain.run().findings == []
    assert chain.run().batches == 0
    sequences(chain.folder, 0, 30, None, None, 6, None)
    found = chain.run()
    assert [(one.rule, one.offset, one.state) for one in found.findings] == [
        (Rule.L5, 3, State.NEW),
        (Rule.L5, 12, State.NEW),
    ]
    same_as_a_full_audit(chain, found)
    assert chain.run().batches == 0


def test_the_cleaner_replaces_a_segment_and_the_others_are_not_read(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "logs" / "t-0", tmp_path / "out")
    chain.folder.mkdir(parents=True)
    (tmp_path / "logs" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    chain.cleanup_policy = "auto"
    sequences(chain.folder, 0, 3, None, None, 6, None)
    chain.run()
    sequences(chain.folder, 0, 30, None, None, 6, None)
    assert chain.run().batches == 2


def test_rereading_is_spread_over_the_interval(chain: Chain) -> None:
    """Check that all is read once in nine days, and no run reads all of it."""
    chain.run()
    counts = [chain.run(reread_ms=9 * DAY).reread for _ in range(18)]
    assert max(counts) == 1
    assert sum(counts) in (5, 6)
    table = pq.read_table(chain.out / str(chain.count - 1) / "segments")
    last = T0 + (chain.count - 1) * DAY
    assert min(table["read_at"].cast("int64").to_pylist()) >= last - 9 * DAY


# ---- any chain of audits -------------------------------------------------------------------------


def take_away(folder: Path, name: str) -> None:
    for path in folder.glob(f"{name[:20]}.*"):
        path.unlink()


def damage_anything(chance: Random, folder: Path, kept: Path) -> None:
    with suppress(OSError, IndexError, ValueError):  # what it would damage is not there any more
        DAMAGES[chance.choice(list(DAMAGES))].act(folder)


def repair_all(chance: Random, folder: Path, kept: Path) -> None:
    repair(folder, kept)


def repair_one(chance: Random, folder: Path, kept: Path) -> None:
    for path in (kept / folder.name).glob(f"{chance.choice(LOGS)[:20]}.*"):
        shutil.copy2(path, folder)


def delete_one(chance: Random, folder: Path, kept: Path) -> None:
    logs = sorted(folder.glob("*.log"))
    if len(logs) > 1:
        take_away(folder, chance.choice(logs).name)


def touch_one(chance: Random, folder: Path, kept: Path) -> None:
    os.utime(chance.choice([*folder.iterdir(), *folder.parent.glob("*-checkpoint")]))


def cut_or_grow_the_last(chance: Random, folder: Path, kept: Path) -> None:
    log = max(folder.glob("*.log"))
    parts = batches((kept / folder.name / log.name).read_bytes()) if log.name in LOGS else []
    data = log.read_bytes()
    if parts and b"".join(parts).startswith(data):
        whole = len(data) == sum(map(len, parts))
        count = (
            chance.randrange(1, len(parts))
            if whole
            else chance.randrange(len(batches(data)), len(parts) + 1)
        )
        log.write_bytes(b"".join(parts[:count]))


OPERATIONS = (damage_anything, repair_all, repair_one, delete_one, touch_one, cut_or_grow_the_last)


@pytest.mark.parametrize("seed", range(12))
def test_any_chain_has_the_findings_of_full_audits(chain: Chain, seed: int) -> None:
    """Check that no finding vanishes: it is open, a note, or gone."""
    chance = Random(seed)
    kept = keep(chain.folder)
    earlier: list[Finding] = []
    for _ in range(6):
        found = chain.run(
            reread_ms=chance.choice([None, 3 * DAY, 40 * DAY]) if chain.count else None
        )
        same_as_a_full_audit(chain, found)
        there = {one.identity for one in [*found.findings, *found.gone, *found.notes]}
        assert {one.identity for one in earlier} <= there
        earlier = found.findings
        for _ in range(chance.randrange(1, 3)):
            chance.choice(OPERATIONS)(chance, chain.folder, kept)
