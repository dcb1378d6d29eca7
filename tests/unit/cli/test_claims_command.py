"""``batchval claims``, and ``batchval check`` of batches that carry some."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from batchval.core import claims
from tests.support.batches import (
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    message,
    of_wrong_length,
    record,
    records,
    with_crc,
)

Run = Callable[..., tuple[int, str, str]]
FIXTURES = Path(__file__).parents[3] / "fixtures" / "segments"
SEGMENTS = [
    path for path in sorted(FIXTURES.rglob("*.log")) if "preallocated" not in str(path)
]  # zeros are not a batch
PARTS = [
    batch(records(5), codec=codec, base_offset=5 * i)
    for i, codec in enumerate((0, GZIP, SNAPPY, LZ4, ZSTD))
]
OLD = message(1, value=b"an old message")
TRUE = claims.compute(PARTS[3])
assert TRUE is not None
LIE = claims.attach(PARTS[3], TRUE._replace(records_number=6))


def write(folder: Path, *parts: bytes, name: str = "a.bin") -> Path:
    path = folder / name
    path.write_bytes(b"".join(parts))
    return path


def test_attach_then_strip_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, *PARTS, OLD)
    code, out, err = run("claims", "attach", path, "--out", tmp_path / "b.bin")
    assert (code, out, err) == (0, "", "5 batches with claims, 1 batch left as they are\n")
    assert (tmp_path / "b.bin").read_bytes() == b"".join(map(claims.attach, PARTS)) + OLD
    code, out, err = run("claims", "strip", tmp_path / "b.bin", "--out", tmp_path / "c.bin")
    assert (code, out, err) == (0, "", "5 batches stripped, 1 batch had no claims\n")
    assert (tmp_path / "c.bin").read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.bin", "b.bin", "c.bin"]


@pytest.mark.parametrize(
    "segment", SEGMENTS, ids=lambda path: f"{path.parent.name}/{path.stem[-3:]}"
)
def test_real_segments_survive_attach_and_strip(run: Run, tmp_path: Path, segment: Path) -> None:
    assert run("claims", "attach", segment, "--out", tmp_path / "b.bin")[0] == 0
    assert run("claims", "verify", tmp_path / "b.bin")[0] == 0
    assert run("claims", "strip", tmp_path / "b.bin", "--out", tmp_path / "c.bin")[0] == 0
    assert (tmp_path / "c.bin").read_bytes() == segment.read_bytes()


def test_the_output_may_be_the_input(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, *PARTS)
    path.chmod(0o640)
    assert run("claims", "attach", path, "--out", path)[0] == 0
    assert path.read_bytes() == b"".join(map(claims.attach, PARTS))
    assert path.stat().st_mode & 0o777 == 0o640


def test_to_standard_output(
    run_apart: Callable[..., tuple[int, bytes, bytes]], tmp_path: Path
) -> None:
    with (tmp_path / "b.bin").open("wb") as out:
        words = ("claims", "attach", write(tmp_path, PARTS[1]))
        code, _, err = run_apart(*words, capture_output=False, stdout=out, stderr=subprocess.PIPE)
    assert (code, err) == (0, "1 batch with claims\n")
    assert (tmp_path / "b.bin").read_bytes() == claims.attach(PARTS[1])


@pytest.mark.parametrize("verb", ["attach", "strip"])
def test_bytes_that_are_not_a_batch_write_nothing(run: Run, tmp_path: Path, verb: str) -> None:
    path = write(tmp_path, PARTS[1], b"no batch at all, and more of it than a header has")
    code, out, err = run("claims", verb, path, "--out", tmp_path / "b.bin")
    assert (code, out) == (3, "")
    place = f"batchval claims {verb}: {path}: no batch at position {len(PARTS[1])}"
    assert err.startswith(f"{place}: magic is 32: expected 0, 1 or 2; no batch follows in the 49 ")
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("verb", ["show", "attach", "strip", "verify"])
def test_a_file_that_is_not_there(run: Run, tmp_path: Path, verb: str) -> None:
    code, _, err = run("claims", verb, tmp_path / "none")
    assert code == 3
    assert err == f"batchval claims {verb}: {tmp_path / 'none'}: No such file or directory\n"


def test_an_output_that_cannot_be(run: Run, tmp_path: Path) -> None:
    code, _, err = run(
        "claims", "strip", write(tmp_path, PARTS[0]), "--out", tmp_path / "no" / "b.bin"
    )
    assert code == 3
    assert "No such file or directory" in err


def test_show(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(
        "claims", "show", "--json", write(tmp_path, PARTS[3], claims.attach(PARTS[3]), OLD, LIE)
    )
    assert code == 1
    rows = [json.loads(line) for line in out.splitlines()]
    three = {"batch.min.timestamp": NOW, "records.number": 5, "all.key.is.null": 1}
    in_header = {**three, "uncompressed.bytes": None, "max.record.bytes": None}
    true = {
        **three,
        "uncompressed.bytes": TRUE.uncompressed_bytes,
        "max.record.bytes": TRUE.max_record_bytes,
    }
    assert [row["carried"] for row in rows] == [
        None,
        in_header,
        None,
        {**in_header, "records.number": 6},
    ]
    assert [row["true"] for row in rows] == [true, true, None, true]
    assert [row["carrier"] for row in rows] == [None, "header", None, "header"]
    assert [row["honest"] for row in rows] == [True, True, True, False]
    assert [row["magic"] for row in rows] == [2, 3, 1, 3]
    code, out, _ = run("claims", "show", write(tmp_path, PARTS[3], LIE))
    lines = out.splitlines()
    sizes = [str(TRUE.uncompressed_bytes), str(TRUE.max_record_bytes)]
    assert lines[1].split() == ["0", "15", "2", "none", str(NOW), "5", "1", *sizes, "-"]
    assert lines[2].endswith(f"no: true are ({NOW}, 5, 1)")


PAYLOADS = [
    claims.attach(PARTS[1], carrier="payload"),
    PARTS[2],
    claims.attach(PARTS[4], carrier="payload"),
]
IN_PAYLOAD = claims.compute(PARTS[4])
assert IN_PAYLOAD is not None
PAYLOAD_LIE = claims.attach(PARTS[4], IN_PAYLOAD._replace(max_record_bytes=1), carrier="payload")


def test_claims_in_payloads(run: Run, tmp_path: Path) -> None:
    plain = write(tmp_path, PARTS[1], PARTS[2], PARTS[4])
    code, _, err = run(
        "claims", "attach", "--carrier", "payload", plain, "--out", tmp_path / "b.bin"
    )
    assert (code, err) == (0, "2 batches with claims, 1 batch left as they are\n")
    assert (tmp_path / "b.bin").read_bytes() == b"".join(PAYLOADS)
    assert run("claims", "verify", tmp_path / "b.bin")[0] == 0
    code, out, _ = run("claims", "show", "--json", tmp_path / "b.bin")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, [row["carrier"] for row in rows]) == (0, ["payload", None, "payload"])
    assert rows[2]["carried"] == rows[2]["true"]
    assert run("claims", "strip", tmp_path / "b.bin", "--out", tmp_path / "c.bin")[0] == 0
    assert (tmp_path / "c.bin").read_bytes() == plain.read_bytes()


def test_batches_that_would_become_too_large_stay_as_they_are(run: Run, tmp_path: Path) -> None:
    plain = write(tmp_path, PARTS[1], PARTS[4])
    small, large = sorted(len(PAYLOADS[i]) for i in (0, 2))
    for limit, changed in ((small - 1, 0), (small, 1), (large - 1, 1), (large, 2)):
        words = (
            "--carrier",
            "payload",
            "--max-message-bytes",
            limit,
            "--json",
            "--out",
            tmp_path / "b.bin",
        )
        code, out, _ = run("claims", "attach", *words, plain)
        assert (code, json.loads(out)["changed"]) == (0, changed)


def test_lies_in_payloads(run: Run, tmp_path: Path) -> None:
    unreadable = bytearray(PAYLOADS[2])
    unreadable[61 + 10] = 3  # the version
    path = write(tmp_path, PAYLOADS[0], PAYLOAD_LIE, with_crc(unreadable))
    code, out, err = run("claims", "verify", path)
    assert (code, err) == (1, "1 honest, 2 not\n")
    reasons = [line.split("lying-claims  ")[1] for line in out.splitlines()]
    assert reasons == [
        "the claims in the payload are not what the records say",
        "the claims in the payload cannot be read",
    ]
    code, out, _ = run("claims", "show", path)
    assert code == 1
    assert out.splitlines()[2].endswith(f"no: true are {IN_PAYLOAD[:5]}")
    assert out.splitlines()[3].endswith("no: the claims cannot be read")
    segment = write(tmp_path, PAYLOAD_LIE, name="00000000000000000020.log")
    code, summary, rules = check(run, segment)
    # every reader passes over them
    assert (code, rules, summary["claims"]) == (0, [], {"lying": 1})


def test_a_weaker_key_byte_is_not_a_lie(run: Run, tmp_path: Path) -> None:
    keyed = batch([record(0, key=b"k")], codec=LZ4)
    stored = claims.BatchClaims(NOW, 1, 0)
    assert run("claims", "show", write(tmp_path, claims.attach(keyed, stored)))[0] == 0
    assert run("claims", "verify", write(tmp_path, claims.attach(keyed, stored)))[0] == 0
    assert (
        run("claims", "show", write(tmp_path, claims.attach(keyed, stored._replace(null_keys=1))))[
            0
        ]
        == 1
    )
    assert (
        run(
            "claims", "verify", write(tmp_path, claims.attach(keyed, stored._replace(null_keys=1)))
        )[0]
        == 1
    )


def test_verify_exits_1_on_a_lie(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, claims.attach(PARTS[1]), PARTS[2], LIE)
    code, out, err = run("claims", "verify", path)
    assert code == 1
    assert out.startswith(f"{path}  {len(PARTS[1]) + 13 + len(PARTS[2])}  L7 lying-claims  ")
    assert err == "1 honest, 1 not, 1 batch without claims\n"
    code, out, _ = run("claims", "verify", "--json", path)
    row, summary = map(json.loads, out.splitlines())
    assert summary == {
        "schema_version": 1, "type": "summary", "file": str(path), "kafka_version": "4.4.0",
        "honest": 1, "false": 1, "without": 1,
    }  # fmt: skip
    assert (code, row["rule"], row["carried"]["records.number"], row["true"]["records.number"]) == (
        1,
        "L7",
        6,
        5,
    )


@pytest.mark.parametrize(("version", "rule"), [("3.9", "S4"), ("4.4", "29")])
def test_verify_answers_as_the_version_of_kafka(
    run: Run, tmp_path: Path, version: str, rule: str
) -> None:
    path = write(tmp_path, claims.attach(of_wrong_length(ZSTD), TRUE))
    code, out, _ = run("claims", "verify", "--json", "--kafka-version", version, path)
    assert (code, json.loads(out.splitlines()[0])["rule"]) == (1, rule)


# ---- batchval check ------------------------------------------------------------------------------


def check(run: Run, path: Path, *words: str) -> tuple[int, dict[str, object], list[str]]:
    code, out, _ = run("check", "--json", "--now", NOW, *words, path)
    rows = [json.loads(line) for line in out.splitlines()]
    return code, rows[-1], [row["rule"] for row in rows[:-1]]


def test_claims_in_headers_are_strange_unless_asked_for(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, claims.attach(batch(records(5), codec=LZ4)))
    assert check(run, path)[::2] == (1, ["4"])
    code, summary, rules = check(run, path, "--accept-claims-header")
    assert (code, summary["paths"], summary["claims"], rules) == (0, {"shallow": 1}, {}, [])


def test_trusted_claims_decompress_nothing(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, *map(claims.attach, (batch(records(5), codec=c) for c in range(5))))
    code, summary, _ = check(run, path, "--accept-claims-header", "--claims", "trust")
    assert (code, summary["paths"]) == (0, {"claims": 4, "full": 1})
    assert summary["claims"] == {"trusted": 4, "honest": 1}


@pytest.mark.parametrize("policy", ["verify", "audit:0.5", "audit:1"])
def test_checked_claims(run: Run, tmp_path: Path, policy: str) -> None:
    good = claims.attach(batch(records(5), codec=LZ4))
    lie = claims.attach(batch(records(5), codec=LZ4), TRUE._replace(batch_min_timestamp=1))
    code, summary, rules = check(
        run, write(tmp_path, good, lie), "--accept-claims-header", "--claims", policy
    )
    assert (code, rules, summary["claims"]) == (1, ["L7"], {"honest": 1, "lying": 1})


def test_claims_in_payloads_are_judged_as_the_policy_says(run: Run, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        *(
            claims.attach(batch(records(5), codec=codec), carrier="payload")
            for codec in (GZIP, ZSTD)
        ),
    )
    for policy, found in (
        ("trust", {"trusted": 2}),
        ("verify", {"honest": 2}),
        ("audit:1", {"honest": 2}),
    ):
        code, summary, rules = check(run, path, "--claims", policy)
        assert (code, summary["claims"], rules) == (0, found, [])


def test_at_rest_claims_are_always_verified(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, claims.attach(PARTS[2]), LIE, name="00000000000000000010.log")
    assert check(run, path, "--accept-claims-header")[::2] == (1, ["L7"])


def test_a_file_damaged_between_claims_is_read_on(run: Run, tmp_path: Path) -> None:
    first, last = (
        claims.attach(batch(records(5), codec=LZ4)),
        claims.attach(batch(records(5), codec=ZSTD)),
    )
    code, summary, _ = check(run, write(tmp_path, first, b"x" * 99, last), "--accept-claims-header")
    assert (code, summary["batches"], summary["findings"]) == (1, 2, 1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--claims", "believe"), "one of ignore, verify, audit, trust"),
        (("--claims", "audit:2"), "at most 1"),
        (("--claims", "trust", "--mode", "kafka"), "Kafka does not read claims"),
    ],
)
def test_wrong_words(run: Run, tmp_path: Path, words: tuple[str, ...], complaint: str) -> None:
    code, _, err = run("check", *words, write(tmp_path, PARTS[0]))
    assert code == 2
    assert complaint in err
    assert err.count("\n") == 1


def test_dump_shows_them(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, claims.attach(PARTS[3]), PARTS[1])
    code, out, _ = run("dump", "--json", "--accept-claims-header", "--records", path)
    first, second = (json.loads(line) for line in out.splitlines())
    assert code == 0
    assert (
        first["magic"],
        first["batch_min_timestamp"],
        first["records_number"],
        first["null_keys"],
    ) == (3, NOW, 5, 1)
    assert len(first["records"]) == 5
    assert "records_number" not in second
    assert run("dump", path)[0] == 1
