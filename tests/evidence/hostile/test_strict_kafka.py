"""Compare strict mode with Kafka itself, and both modes with the reference on streams that halt."""

import json
import struct

import pytest

from batchval.cli import cases
from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.validator import LogValidator
from batchval.rules import Rule
from tests.evidence.hostile import strict_kafka
from tests.evidence.hostile.differential import Setup, compare, compare_strict
from tests.evidence.hostile.odd_streams import gzip_tails, odd_streams
from tests.evidence.hostile.seeds import NOW, batch, record
from tests.evidence.hostile.strict_kafka import Answered, oracle

ACCEPTED = Answered(0, 0, "none", 0, 0)
REFUSED = Answered(0, 0, "none", 87, 0)
GOOD = batch(record(0, b"k", b"v"), 1)
#: three stored blocks, and after the first one a block that decompresses to nothing
EMPTY_BLOCK = bytes.fromhex(
    "000000000000000000000061ffffffff02ec4aadeb0003000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff"
    "0000000104224d186040820500008026000000060100000000020000806b650d00008079146162636465666768696a0000000000"
)


def test_a_block_that_decompresses_to_nothing_is_refused(provider):
    for mode in ("strict", "kafka"):
        result = LogValidator(mode=mode).check(EMPTY_BLOCK, now_ms=NOW)
        assert (result.ok, result.rule) == (False, Rule.RECORD_MALFORMED)


def test_strict_refuses_streams_that_halt_also_where_kafka_reads_them(provider):
    halting = [
        stream.batch for stream in odd_streams(3000) if stream.what == "lz4 empty block, magic 2"
    ]
    # what it reads there may also be odd in itself
    others = {f"S{n}": "report" for n in (1, 2, 3, 4, 5, 10)}
    kafka, strict = LogValidator(mode="kafka"), LogValidator(extras=others)
    read = [data for data in halting if kafka.check(data, now_ms=NOW).ok]
    assert 0 < len(read) < len(halting)
    assert {strict.check(data, now_ms=NOW).rule for data in read} == {Rule.S7}


@pytest.mark.parametrize(
    "cfg", [{}, {"target": "gzip"}, {"to_magic": 1}, {"max_record_body": 12}], ids=str
)
def test_odd_streams_against_the_reference(cfg, provider):
    setup = Setup.of({"now": NOW, **cfg})
    streams = odd_streams(250)
    found = {stream.what: what for stream in streams if (what := compare(setup, stream.batch))}
    found |= {
        stream.what: what for stream in streams if (what := compare_strict(setup, stream.batch))
    }
    assert found == {}


def test_gzip_tails_against_the_reference(provider):
    setup = Setup.of({"now": NOW})
    assert [what for stream in gzip_tails() if (what := compare(setup, stream.batch))] == []


@pytest.mark.jvm
def test_odd_and_mutated_batches_against_kafka(kafka):
    settings = strict_kafka._plain_setups()
    judge = strict_kafka.compare(settings, strict_kafka.odd(0, settings, 2400))
    assert judge.counts["compared"] > 2000
    assert (judge.findings, judge.kafka_mode) == ([], [])
    assert 0 < judge.counts["accepted by strict"] < judge.counts["accepted by Kafka"]
    settings = strict_kafka.setups(77)
    judge = strict_kafka.compare(settings, strict_kafka.mutated(77, settings, 3000))
    assert judge.counts["compared"] > 2900
    assert judge.findings == []


@pytest.fixture(scope="module")
def markers_answered(kafka, tmp_path_factory):
    """Return cases of markers with the answers of Kafka's log."""
    markers = [stream.batch for stream in odd_streams() if stream.what.endswith("a marker")][::50]
    asked = [
        {"id": f"{i} {origin}", "cfg": {"now": NOW, "origin": origin}, "batch_hex": data.hex()}
        for i, data in enumerate(markers)
        for origin in ("COORDINATOR", "REPLICATION", "RAFT_LEADER")
    ]
    path = tmp_path_factory.mktemp("markers") / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in oracle.answer(asked)), "utf-8")
    return list(cases.read_cases([path]))


@pytest.mark.jvm
def test_markers_in_odd_streams_against_kafka_s_log(markers_answered, provider):
    """Append as follower, Raft leader and coordinator: the log reads the first record."""
    accepted = set()
    for case in markers_answered:
        assert cases.compare(case) == [], case["id"]
        strict = LogValidator().check(case["batch"], now_ms=NOW, origin=case["cfg"]["origin"])
        assert not (strict.ok and case["expect"]["append"].get("code")), case["id"]
        accepted.add((case["cfg"]["origin"], strict.ok))
    assert {("COORDINATOR", True), ("REPLICATION", True), ("REPLICATION", False)} <= accepted


@pytest.mark.parametrize(
    ("answer", "data", "found"),
    [
        (ACCEPTED, GOOD, set()),
        (REFUSED, GOOD, {"check", "validate", "in place", "LogValidator"}),
        (Answered(0, 2, "", 10_000, 0), GOOD, {"check", "validate", "in place"}),
        (Answered(87, 0, "none", 0, 0), GOOD, {"check", "validate", "in place"}),
        (Answered(0, 0, "none", 0, 10), GOOD, {"validate", "in place"}),
        (REFUSED, b"", set()),
    ],
)
def test_a_broken_promise_is_found(answer, data, found):
    judge = strict_kafka.Judge([Setup.of({"now": NOW})])
    judge.group(0, [data], [answer])
    assert {finding.what.partition(" accepts")[0] for finding in judge.findings} == found


def test_header_keys_become_what_java_makes_of_them():
    """Expect one U+FFFD for an encoded surrogate, also a cut one; else Python's replacement."""
    keys = {
        b"\xed\xa0": "\ufffd",
        b"\xed\xbfx": "\ufffdx",
        b"\xed\xa0\x80\xed\xb0": "\ufffd\ufffd",
        b"\xed\xa0\xed\xa0\x80": "\ufffd\ufffd",
        b"\xe0\xa0x": "\ufffdx",
        b"\xf0\x90\x80": "\ufffd",
        b"\xed\x9f\xbf": "\ud7ff",
    }
    data = batch(record(0, b"k", b"v", 0, [(key, None) for key in keys]), 1)
    (decoded,) = RecordBatch(data).records()
    assert [key for key, _ in decoded.headers] == list(keys.values())


@pytest.mark.jvm
def test_header_keys_against_java(kafka):
    some = bytes(
        [
            0x00,
            0x41,
            0x80,
            0x8F,
            0x90,
            0x9F,
            0xA0,
            0xBF,
            0xC1,
            0xC2,
            0xDF,
            0xE0,
            0xE1,
            0xED,
            0xEF,
            0xF0,
            0xF1,
        ]
    )
    some += bytes([0xF4, 0xF5, 0xFF])
    keys = [bytes([a]) for a in some] + [bytes([a, b]) for a in some for b in some]
    keys += [bytes([a, b, c]) for a in some for b in some for c in some]
    keys += [
        bytes([a, b, c, d]) for a in b"\xe0\xed\xf0\xf4" for b in some for c in some for d in some
    ]
    expected = oracle.run(
        "utf8", stdin=b"".join(key.hex().encode() + b"\n" for key in keys)
    ).split()
    data = batch(record(0, b"k", b"v", 0, [(key, None) for key in keys]), 1)
    (decoded,) = RecordBatch(data).records()
    got = [key.encode() for key, _ in decoded.headers]
    wrong = [
        key.hex()
        for key, a, b in zip(keys, expected, got, strict=True)
        if bytes.fromhex(a.decode()) != b
    ]
    assert wrong == []


@pytest.mark.parametrize("codec", range(5))
def test_a_missing_key_is_counted_once_kafka_has_the_record(codec, provider):
    """Count no missing key before extra bytes: Kafka looks for those before it returns the
    record.
    """
    keyless = record(0, None, b"v") + record(1, None, b"w")
    setup = Setup.of({"now": NOW, "compact": True})
    whole = setup.kafka.check(batch(keyless, 2, codec), now_ms=NOW)
    assert (whole.rule, whole.meters["nokey"]) == (Rule.KEY_MISSING, 2)
    trailing = setup.kafka.check(batch(keyless + b"\0", 2, codec), now_ms=NOW)
    assert (trailing.rule, trailing.meters.get("nokey", 0)) == (Rule.RECORD_MALFORMED, 1)


@pytest.mark.parametrize(
    ("window", "content_size", "rule"), [(0x88, 0, None), (0x89, 0, Rule.RECORD_MALFORMED)]
)
def test_zstd_windows_are_judged_alike_by_both_providers(window, content_size, rule, provider):
    records = record(0, b"k", b"v" * 100)
    block = struct.pack("<I", len(records) << 3 | 1)[:3] + records
    small = b"\x28\xb5\x2f\xfd\x80" + bytes([window]) + struct.pack("<I", len(records)) + block
    unsized = b"\x28\xb5\x2f\xfd\0" + bytes([window]) + block
    kafka = LogValidator(mode="kafka")
    # one pass, which asks no window
    assert kafka.check(batch(records, 1, 4, payload=small), now_ms=NOW).ok
    assert kafka.check(batch(records, 1, 4, payload=unsized), now_ms=NOW).rule is rule
