"""--trust-claims: check and audits take batches by their claims, and say how far that can be
trusted.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from batchval.audit.audit_report import page
from batchval.audit.audit_run import audit, list_work
from batchval.audit.local import run_local
from batchval.audit.manifest import Manifest
from batchval.audit.reduce import Audit
from batchval.audit.totals import of_tables
from batchval.cli import cli
from batchval.core.claims import attach, compute
from batchval.errors import BatchvalError
from batchval.segment.findings import MAX_FINDINGS_PER_RULE
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult, check_range
from batchval.segment.ranges import Range
from batchval.segment.trust import TrustCounts
from tests.support.batches import GZIP, NOW, ZSTD, batch, record

NAME = f"{0:020}.log"
COLUMNS = (
    "default",
    "figures",
    "uncompressed_size",
    "max_record_bytes",
    "null_keys",
    "claims_honest",
)
COUNT = 200
RATE, SEED = 0.2, 11
EXPECTED = "expected a number above 0 and at most 1, for example 0.01"


@cache
def parts(count: int = COUNT, lies: range | tuple[int, ...] = ()) -> list[bytes]:
    """Return batches of two records: of zstd and gzip with claims in turns, each fifth one
    without.
    """
    made = []
    for n in range(count):
        records = [record(i, key=b"k%d" % i, value=b"value %d" % n) for i in range(2)]
        one = batch(
            records,
            codec=(ZSTD, GZIP)[n % 2],
            base_offset=2 * n,
            base_timestamp=NOW + n,
            max_timestamp=NOW + n,
        )
        if n % 5 != 4:
            true = compute(one)
            assert true is not None
            one = bytes(
                attach(one, true._replace(null_keys=1) if n in lies else true, carrier="payload")
            )
        made.append(struct.pack(">q", 2 * n) + one[8:])
    return made


def segment(folder: Path, *batches: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(b"".join(batches))
    return folder


def run(folder: Path, out: Path | None = None, since: Path | None = None, **options: Any) -> Audit:
    wanted = Options(
        **{"trust_claims": RATE, "seed": SEED, "columns": COLUMNS, "cleanup_policy": "delete"}
        | options
    )

    def engine(ranges: Sequence[Range], asked: Options, where: str | None) -> Iterator[RangeResult]:
        return run_local(ranges, asked, where, 1)

    manifest = Manifest.read(str(since), wanted) if since is not None else None
    return audit(
        list_work([str(folder)], wanted, manifest),
        wanted,
        engine,
        str(out) if out is not None else None,
    )


def rows(out: Path) -> list[dict[str, Any]]:
    table = pq.read_table(out / "batches")
    return sorted(table.to_pylist(), key=lambda row: row["position"])


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return segment(tmp_path_factory.mktemp("honest") / "orders-0", *parts())


def command(*words: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)), standalone_mode=False)


# ---- audits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("split_bytes", [1 << 30, 5000])
@pytest.mark.parametrize("deep", [False, True])
def test_tables_have_the_figures_of_an_audit_that_reads_every_record(
    tmp_path: Path, honest: Path, deep: bool, split_bytes: int
) -> None:
    found = run(honest, tmp_path / "trust", deep=deep, split_bytes=split_bytes)
    whole = run(honest, tmp_path / "whole", deep=True, trust_claims=None, seed=None)
    assert (
        (found.findings, found.records, found.batches)
        == ([], 2 * COUNT, COUNT)
        == (whole.findings, whole.records, COUNT)
    )
    counts = found.trust
    assert (counts.claimed + counts.verified, counts.lying) == (COUNT * 4 // 5, 0)
    assert 0 < counts.verified < counts.claimed
    for row, true in zip(rows(tmp_path / "trust"), rows(tmp_path / "whole"), strict=True):
        without = row["base_offset"] // 2 % 5 == 4
        assert true["figures"] == "records"
        assert row["figures"] in (
            {"records" if deep else "header"} if without else {"claims", "sample"}
        )
        if row["figures"] == "header":
            assert row["uncompressed_size"] is row["max_record_bytes"] is None
        else:
            assert (row["uncompressed_size"], row["max_record_bytes"]) == (
                true["uncompressed_size"],
                true["max_record_bytes"],
            )
        assert row["null_keys"] == (None if without else 2)
        assert row["claims_honest"] == {"claims": None, "sample": True}.get(row["figures"])
    ours, theirs = (one.tables["summary"].to_pylist() for one in (found, whole))
    assert sum(row["figures_by_claims"] for row in ours) == counts.claimed
    assert sum(row["claims_verified"] for row in ours) == counts.verified
    names = (
        "batches",
        "records",
        "bytes",
        "min_timestamp",
        *(("uncompressed_bytes",) if deep else ()),
    )
    assert [[row[name] for name in names] for row in ours] == [
        [row[name] for name in names] for row in theirs
    ]


def test_sums_are_known_without_deep_where_all_batches_have_claims(tmp_path: Path) -> None:
    claimed = segment(tmp_path / "orders-0", *(one for n, one in enumerate(parts()) if n % 5 != 4))
    ours, theirs = (
        run(claimed, cleanup_policy="compact", **options)
        for options in ({}, {"deep": True, "trust_claims": None, "seed": None})
    )
    names = ("codec", "records", "uncompressed_bytes")
    assert [[row[name] for name in names] for row in ours.tables["summary"].to_pylist()] == [
        [row[name] for name in names] for row in theirs.tables["summary"].to_pylist()
    ]
    assert of_tables(ours.tables).whole.ratio == of_tables(theirs.tables).whole.ratio is not None


@pytest.mark.parametrize("split_bytes", [1 << 30, 3000, 997])
def test_the_seed_draws_the_same_batches_however_segments_are_cut(
    tmp_path: Path, honest: Path, split_bytes: int
) -> None:
    def drawn(name: str, **options: Any) -> list[int]:
        run(honest, tmp_path / name, **options)
        return [row["position"] for row in rows(tmp_path / name) if row["figures"] == "sample"]

    assert drawn("a", split_bytes=split_bytes) == drawn("b") != drawn("c", seed=SEED + 1)


def test_a_lie_is_a_finding_where_the_sample_draws_it(tmp_path: Path) -> None:
    lies = tuple(n for n in range(COUNT) if n % 5 != 4)
    folder = segment(tmp_path / "orders-0", *parts(lies=lies))
    found = run(folder)
    assert found.trust.lying == found.trust.verified == len(found.findings) > 0
    assert {(one.rule.id, one.reason) for one in found.findings} == {
        ("L7", "null_keys is claimed to be 1, but the records say 2")
    }
    assert run(folder, trust_claims=None, seed=None, deep=True).findings == []
    every = run(folder, tmp_path / "out", trust_claims=1.0)
    assert every.trust == TrustCounts(0, len(lies), len(lies))
    assert every.trust.lies_at_most == 1
    assert {row["claims_honest"] for row in rows(tmp_path / "out")} == {False, None}
    facts = of_tables(every.tables)
    assert facts.whole.trust == every.trust
    assert "160 false: with 95 % confidence at most 100 % of the claims are false" in page(facts)


def test_a_flood_of_lies_takes_bounded_memory(tmp_path: Path) -> None:
    """Check that a range lists a limited number of findings of a rule, with three counts of
    claims.
    """
    sizes = {}
    for count in (300, 900):
        folder = segment(tmp_path / f"of{count}-0", *parts(count, range(count)))
        options = Options(trust_claims=1.0, seed=SEED, deep=False)
        (part,) = list_work([str(folder)], options).ranges
        result = check_range(part, options)
        assert result.trust == TrustCounts(0, count * 4 // 5, count * 4 // 5)
        assert len(list(result.findings)) <= MAX_FINDINGS_PER_RULE
        sizes[count] = len(pickle.dumps(result))
    assert sizes[900] < sizes[300] + 500


def test_an_audit_with_another_rate_cannot_go_on(tmp_path: Path, honest: Path) -> None:
    run(honest, tmp_path / "a")
    assert run(honest, tmp_path / "b", since=tmp_path / "a", seed=SEED + 1).skipped == 1
    for options, word in (
        ({"trust_claims": 0.3}, "0.2"),
        ({"trust_claims": None, "seed": None}, "0.2"),
    ):
        with pytest.raises(BatchvalError, match=rf"cannot resume: .*\(trust_claims={word}\)"):
            run(honest, since=tmp_path / "a", **options)
    run(honest, tmp_path / "c", trust_claims=None, seed=None)
    with pytest.raises(BatchvalError, match=r"other options \(trust_claims=null\)"):
        run(honest, since=tmp_path / "c")
    options = json.loads(pq.read_table(tmp_path / "b" / "runs")["options"][1].as_py())
    assert (options["trust_claims"], options["seed"]) == (RATE, SEED + 1)


def test_a_segment_that_grew_is_taken_by_its_claims_from_there_on(tmp_path: Path) -> None:
    made = parts()
    folder = segment(tmp_path / "orders-0", *made[:150])
    run(folder, tmp_path / "a")
    with open(folder / NAME, "ab") as file:
        file.write(b"".join(made[150:]))
    grown = run(folder, tmp_path / "b", since=tmp_path / "a")
    assert (grown.grown, grown.findings) == (1, [])
    assert grown.trust.claimed + grown.trust.verified == 40


# ---- commands ------------------------------------------------------------------------------------


def test_check_prints_where_figures_come_from(honest: Path) -> None:
    words = ("--trust-claims", RATE, "--seed", SEED, honest)
    done = command("check", *words)
    *_, sums, label = done.stdout.splitlines()
    counts = run(honest).trust
    assert (done.return_value, label) == (0, counts.words(SEED))
    assert (
        f"({counts.claimed} claims, {COUNT - counts.claimed} shallow), claims: {counts.verified} honest"
        in sums
    )
    assert command("check", *words).stdout == done.stdout
    summary = json.loads(command("check", "--json", *words).stdout)
    assert {name: summary[name] for name in counts.row(RATE, SEED)} == counts.row(RATE, SEED)
    assert "trust_claims" not in json.loads(command("check", "--json", honest).stdout)


def test_a_random_seed_is_printed_and_repeats_the_run(honest: Path) -> None:
    first = command("check", "--trust-claims", "0.5", honest)
    seed = first.stdout.rsplit("--seed ", 1)[1].rstrip(")\n")
    assert command("check", "--trust-claims", "0.5", "--seed", seed, honest).stdout == first.stdout


def test_check_finds_lies_and_exits_with_1(tmp_path: Path) -> None:
    folder = segment(tmp_path / "orders-0", *parts(20, (3,)))
    assert command("check", folder).return_value == 0
    done = command("check", "--trust-claims", 1, "--seed", 1, folder)
    assert done.return_value == 1
    assert "L7 lying-claims" in done.stdout
    assert done.stdout.splitlines()[-1] == TrustCounts(0, 16, 1).words(1)


def test_audit_prints_where_figures_come_from(honest: Path) -> None:
    words = ("--engine", "local", "--trust-claims", RATE, "--seed", SEED, honest)
    counts = run(honest).trust
    done = command("audit", *words)
    assert (done.return_value, done.stdout.splitlines()[-1]) == (0, counts.words(SEED))
    summary = json.loads(command("audit", "--json", *words).stdout.splitlines()[-1])
    assert {name: summary[name] for name in counts.row(RATE, SEED)} == counts.row(RATE, SEED)


@pytest.mark.parametrize("which", ["check", "audit"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--trust-claims", "0"),
            f"--trust-claims: invalid rate '0': {EXPECTED}",
        ),
        (
            ("--trust-claims", "1%"),
            f"--trust-claims: invalid rate '1%': {EXPECTED}",
        ),
        (("--seed", "1"), "--seed needs --trust-claims RATE: it draws the batches to verify"),
        (
            ("--trust-claims", "0.1", "--mode", "kafka"),
            "--trust-claims needs --mode strict: Kafka does not read claims",
        ),
        (("--trust-claims", "0.1", "--seed", "-1"), "-1 is not in the range"),
    ],
    ids=str,
)
def test_options_that_are_refused(
    which: str, honest: Path, words: tuple[str, ...], message: str
) -> None:
    done = command(which, *words, honest)
    assert message in str(done.exception)


def test_combinations_that_are_refused(tmp_path: Path, honest: Path) -> None:
    trust = ("--trust-claims", "0.1")
    salvage = command("check", *trust, "--salvage", tmp_path / "new", honest)
    assert str(salvage.exception).startswith("--salvage cannot be combined with --trust-claims")
    produce = command("check", *trust, "--as", "produce", honest)
    assert str(produce.exception).startswith(
        "--trust-claims cannot be combined with --as produce: use --claims"
    )
    dump = tmp_path / "dump.bin"
    dump.write_bytes(parts()[0])
    recorded = command("check", *trust, dump)
    assert (
        str(recorded.exception)
        == f"{dump}: --trust-claims is for segments: use --as log, or --claims audit:RATE"
    )
    assert command("check", *trust, "--as", "log", dump).return_value == 0
    plan = command("audit", *trust, "--plan", "1GB/s")
    assert str(plan.exception).startswith("--trust-claims needs PATH")


def test_standard_names_of_other_options_go_with_it(tmp_path: Path, honest: Path) -> None:
    """Check that --replicas reads the bytes again, and --transactions the headers."""
    other = segment(tmp_path / "b2" / "orders-0", *parts())
    words = ("--trust-claims", RATE, "--seed", SEED, "--transactions")
    done = command("check", *words, "--replicas", f"b1={honest}", f"b2={other}")
    assert (done.return_value, done.exception) == (0, None)
    twice = run(honest).trust
    twice.add(twice)
    assert done.stdout.splitlines()[-1] == twice.words(SEED)
