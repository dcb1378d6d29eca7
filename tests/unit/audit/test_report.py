"""The page of an audit: its sums are those of the outputs, and no name that it shows can do
anything.
"""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest

from batchval.audit import audit_report
from batchval.audit.hours import CODECS
from batchval.audit.stored_audit import OutputError, facts_of
from batchval.audit.terminal import terminal_summary
from batchval.audit.totals import hour_words, of_group
from batchval.report.charts import stacked
from batchval.rule_texts import RULE_TEXTS
from tests.unit.audit.outputs import HOUR, finding, hour, write

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = '</td><script>alert(1)</script><img src=x onerror="alert(2)">\x1b[31m'


def two_topics(out: Path) -> str:
    """Write two topics. orders: two partitions, three hours, zstd and gzip, findings; logs:
    uncompressed, one hour, none.
    """
    return write(
        out,
        [
            hour("orders", 0, HOUR, {"zstd": (10, 1000, 50_000, 150_000, 9, 45_000)}),
            hour("orders", 0, HOUR + 3600, {"gzip": (5, 50, 4_000, 12_000, 5, 4_000)}, refused=2),
            hour("orders", 1, HOUR + 7200, {"zstd": (1, 10, 500, 1_000, 1, 500)}),
            hour("logs", 0, HOUR, {"none": (7, 70, 7_000)}),
        ],
        [
            *[finding("orders", "14", "a wrong checksum", max_timestamp=(HOUR + 3600) * 1000 + 5)]
            * 2,
            finding(
                "orders", "L3", "a gap", partition=1, offset=17, max_timestamp=(HOUR + 3601) * 1000
            ),
            *[
                finding(
                    "orders", "L5", "a sequence", partition=1, max_timestamp=(HOUR + 9000) * 1000
                )
            ]
            * 4,
            finding("logs", "L3", "perhaps a gap", level="note"),
        ],
    )


class Reader(html.parser.HTMLParser):
    """Tags, attributes that fetch or run, cells by table; every tag must close."""

    VOID = frozenset({"meta", "line", "path", "rect", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "action"}
        ]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data


def test_sums_are_those_of_the_rows(tmp_path: Path) -> None:
    facts = facts_of(two_topics(tmp_path / "out"))
    whole = facts.whole
    assert (whole.batches, whole.records, whole.bytes, whole.partitions) == (23, 1130, 61_500, 3)
    assert whole.rules == {"14": 2, "L3": 1, "L5": 4}
    assert (whole.refused, whole.sequence_anomalies, facts.findings_count, facts.notes_count) == (
        2,
        4,
        7,
        1,
    )
    assert whole.codecs["zstd"] == (11, 1010, 50_500, 151_000, 10, 45_500)
    assert whole.ratio == pytest.approx(163_000 / 54_500)
    assert whole.claims_share == pytest.approx(49_500 / 61_500)
    orders, logs = facts.topics["orders"], facts.topics["logs"]
    assert (orders.batches, orders.partitions, orders.findings) == (16, 2, 7)
    assert (logs.ratio, logs.claims_share, logs.cpu_saved, list(logs.codecs)) == (
        None,
        0.0,
        0.0,
        ["none"],
    )
    assert 0 < orders.cpu_saved < orders.cpu_kafka
    assert whole.cpu_saved == pytest.approx(orders.cpu_saved)
    assert [facts.hours[HOUR + 3600 * i].batches for i in range(3)] == [17, 5, 1]
    assert {at: t.rules for at, t in facts.topic_hours("orders").items()} == {
        HOUR: {},
        HOUR + 3600: {"14": 2, "L3": 1},
        HOUR + 7200: {"L5": 4},
    }


def test_groups_add_up_to_the_whole(tmp_path: Path) -> None:
    facts = facts_of(two_topics(tmp_path / "out"))
    for by in (["topic"], ["hour"], ["topic", "hour"], ["topic", "partition", "hour"]):
        groups = list(of_group(facts.summary, facts.rules, by).values())
        for name in ("batches", "records", "bytes", "findings", "refused"):
            assert sum(getattr(t, name) for t in groups) == getattr(facts.whole, name), (by, name)


def test_what_one_hour_does_not_know_is_not_known_of_all(tmp_path: Path) -> None:
    rows = [
        hour("a", 0, HOUR, {"lz4": (1, 1, 100, 200, 0, 0)}),
        hour("a", 0, HOUR + 3600, {"lz4": (1, 1, 100)}),
    ]
    facts = facts_of(write(tmp_path / "out", rows))
    assert facts.whole.ratio is None
    assert facts.topic_hours("a")[HOUR].ratio == 2.0
    assert "payloads were not decompressed" in audit_report.page(facts)


def test_the_page_shows_the_figures(tmp_path: Path) -> None:
    text = audit_report.page(facts_of(two_topics(tmp_path / "out")))
    topics, rules, findings, notes, orders, logs, cpu = Reader(text).tables
    assert [row[:5] for row in topics[1:]] == [
        ["orders", "2", "16", "1,060", "53.2 KiB"],
        ["logs", "1", "7", "70", "6.8 KiB"],
    ]
    assert [row[:4] for row in rules[1:]] == [
        ["L5", "sequence-gap", "4", "1"],
        ["14", "crc-mismatch", "2", "1"],
        ["L3", "offset-gap", "1", "1"],
    ]
    file = f"orders-0/{0:020}.log"
    assert findings[1] == ["orders", "0", file, "0", "", "14 crc-mismatch", "a wrong checksum"]
    assert findings[3][4:] == ["17", "L3 offset-gap", "a gap"]
    assert rules[2][5] == RULE_TEXTS["14"].advice
    assert [row[6] for row in notes[1:]] == ["perhaps a gap"]
    assert [row[0] for row in orders[1:]] == [
        "2026-11-20 22:00",
        "2026-11-20 23:00",
        "2026-11-21 00:00",
    ]
    assert [row[1] for row in orders[1:]] == ["10", "5", "1"]
    assert len(logs) == 2
    assert [row[0] for row in cpu[1:]] == ["none", "gzip", "zstd"]
    assert "broker or gate that honours claims" in re.sub(r"\s+", " ", text)
    assert text.count("<svg") == 3
    assert len(re.findall(r"<title>2026-11-20 22:00: zstd 50 k</title>", text)) == 1


def test_findings_of_two_replicas_name_their_brokers_and_files(tmp_path: Path) -> None:
    errors = [
        finding("orders", "14", "bad", broker=name, file=f"/{name}/orders-0/0.log")
        for name in ("b1", "b2")
    ]
    errors[1]["follows"] = 3
    out = write(tmp_path / "out", [hour("orders", 0, HOUR, {"none": (1, 1, 100)})], errors)
    _, _, findings, _, _ = Reader(audit_report.page(facts_of(out))).tables
    assert [row[:4] for row in findings[1:]] == [
        ["orders", "0", "b1", "/b1/orders-0/0.log"],
        ["orders", "0", "b2", "/b2/orders-0/0.log"],
    ]
    assert [row[7] for row in findings[1:]] == ["bad", "bad (and 3 places after it)"]


def test_a_single_hour_has_a_column_for_each_codec(tmp_path: Path) -> None:
    rows = [hour("a", 0, HOUR, {"none": (1, 1, 100), "zstd": (1, 1, 300)})]
    text = audit_report.page(facts_of(write(tmp_path / "out", rows)))
    assert re.findall(r"<title>([a-z]+: [^<]+)</title>", text)[:2] == [
        "none: none 100",
        "zstd: zstd 300",
    ]
    assert "codec, 2026-11-20 22:00 UTC" in text


def test_the_cpu_that_is_saved_in_cores_and_by_day(tmp_path: Path) -> None:
    stamps = {"min_timestamp": HOUR * 1000, "max_timestamp": (HOUR + 3600) * 1000}
    batches = (10**9, 10**10, 10**13, None, 10**9, 10**13)
    facts = facts_of(write(tmp_path / "out", [hour("a", 0, HOUR, {"zstd": batches}, **stamps)]))
    assert facts.span == (HOUR * 1000, (HOUR + 3600) * 1000)
    text = re.sub(r"\s+", " ", audit_report.page(facts))
    cores = float(f"{facts.whole.cpu_saved / 3600:.2g}")
    assert f"/ 3,600 s = {cores:,.12g} cores" in text
    assert "from 2026-11-20 22:00:00 to 2026-11-20 23:00:00 UTC: 3,600 s" in text
    short = hour("a", 0, HOUR, {"zstd": batches}, min_timestamp=0, max_timestamp=59_999)
    assert "less than a minute" in audit_report.page(facts_of(write(tmp_path / "short", [short])))


@pytest.mark.parametrize(("others", "columns"), [({}, 6), ({"damaged_bytes": 5}, 4)])
def test_no_card_stands_alone(tmp_path: Path, others: dict[str, int], columns: int) -> None:
    rows = [hour("a", 0, HOUR, {"none": (1, 1, 100)}, **others)]
    text = audit_report.page(facts_of(write(tmp_path / "out", rows)))
    cards = text.count("<div><b")
    assert f".cards {{ display: grid; grid-template-columns: repeat({columns}, 1fr)" in text
    assert cards % columns != 1


def test_no_name_can_do_anything(tmp_path: Path) -> None:
    rows = [hour(HOSTILE, 0, HOUR, {"none": (1, 1, 100)})]
    errors = [
        finding(HOSTILE, HOSTILE, HOSTILE, file=HOSTILE),
        finding(HOSTILE, "UNREADABLE", HOSTILE, file=HOSTILE),
    ]
    out = write(tmp_path / "out", rows, errors)
    text = audit_report.page(facts_of(out))
    reader = Reader(text)
    assert (reader.links, reader.handlers, reader.seen.count("script")) == ([], [], 1)
    assert "img" not in reader.seen
    assert "\x1b" not in text
    assert "url(" not in text
    assert "@import" not in text
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    assert text.index("Content-Security-Policy") < text.index("alert")
    assert "\x1b" not in terminal_summary(facts_of(out))


@pytest.mark.parametrize("at", [-(2**61) // 1000, 253_402_300_800, 2**53, 0, None])
def test_any_timestamp_has_its_hour(tmp_path: Path, at: int | None) -> None:
    at = None if at is None else at // 3600 * 3600
    rows = [hour("a", 0, at, {"none": (1, 1, 100)}), hour("a", 0, HOUR, {"none": (1, 1, 100)})]
    facts = facts_of(write(tmp_path / "out", rows))
    assert set(facts.hours) == {at, HOUR}
    words = hour_words(at)
    assert words.endswith(":00") or at is None
    text = audit_report.page(facts)
    assert text.count(f">{words}</td>") == 1
    assert len(text) < 40_000  # no column for each hour between


def test_skipped_parts_are_not_findings(tmp_path: Path) -> None:
    lost = finding("a", "UNREADABLE", "Permission denied", file="/logs/a-0/0.log", position=None)
    listed = lost | {
        "topic": None,
        "partition": None,
        "segment": None,
        "file": "/other",
        "reason": "No such file",
    }
    rows = [hour("a", 0, HOUR, {"none": (1, 1, 100)})]
    facts = facts_of(write(tmp_path / "out", rows, [lost, listed, finding("a", "14", "bad")]))
    assert (facts.findings_count, facts.findings.num_rows) == (1, 1)
    assert facts.unreadable == [
        ("/logs/a-0/0.log", "Permission denied"),
        ("/other", "No such file"),
    ]
    assert '<td class="name">/other</td><td class="words">No such file</td>' in audit_report.page(
        facts
    )
    assert ": 1 finding, 2 not read" in terminal_summary(facts)


def test_an_empty_audit_has_a_page(tmp_path: Path) -> None:
    facts = facts_of(write(tmp_path / "out", []))
    text = audit_report.page(facts)
    assert "0 topics, 0 partitions, 0 segments, 0 B" in text
    assert "<svg" not in text
    assert terminal_summary(facts) == "0 segments, 0 batches, 0 records, 0 B: 0 findings\n"


def test_a_page_does_not_grow_with_the_cluster(tmp_path: Path) -> None:
    rows = [
        hour(f"topic-{i:04}", 0, HOUR + 3600 * (i % 5), {"none": (1, 1, i + 1)})
        for i in range(1_200)
    ]
    rows += [hour("long", 0, HOUR + 3600 * i, {"none": (1, 1, 10**6)}) for i in range(500)]
    errors = [finding("long", "14", f"finding {i}", position=i) for i in range(300)]
    out = write(tmp_path / "out", rows, errors)
    audit_report.write(out, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "1,000 of 1,201" in text
    assert "the first 200 of 300" in text
    assert text.count("<details") == audit_report.TOPICS_BY_HOUR
    assert "the last 168 hours" in text
    assert len(re.findall("<rect", text)) <= 250


def test_the_terminal_says_it_too(tmp_path: Path) -> None:
    lines = terminal_summary(facts_of(two_topics(tmp_path / "out"))).splitlines()
    assert re.split(r" {2,}", lines[1])[:4] == ["orders", "2", "16", "1,060"]
    assert lines[3:6] == [
        "L5 sequence-gap: 4 findings",
        "14 crc-mismatch: 2 findings",
        "L3 offset-gap: 1 finding",
    ]
    assert lines[-1].startswith("3 segments, 23 batches, 1,130 records, 60.1 KiB: 7 findings; ")
    assert lines[-1].endswith("would be saved by a broker or gate that honours claims")


@pytest.mark.parametrize("broken", ["nothing", "no errors", "not parquet"])
def test_a_file_that_is_not_an_audit_is_an_error(tmp_path: Path, broken: str) -> None:
    out = tmp_path / "out"
    if broken != "nothing":
        write(out, [hour("a", 0, HOUR, {"none": (1, 1, 1)})])
        for file in (out / "errors").iterdir():
            file.unlink() if broken == "no errors" else file.write_bytes(b"PAR1, but not really")
        if broken == "no errors":
            (out / "errors").rmdir()
    with pytest.raises(OutputError, match="errors") as caught:
        facts_of(str(out))
    assert "\n" not in str(caught.value)


def test_columns_are_stacked_to_their_sum() -> None:
    parts = list(enumerate(CODECS))
    chart = stacked("t", "x", "y", [("a", [1, 0, 2, 0, 0]), ("b", [0, 0, 0, 0, 4])], parts)
    assert chart is not None
    assert chart.legend == [(0, "none"), (2, "snappy"), (4, "zstd")]
    heights: dict[str, Any] = {}
    for bar in chart.bars:
        heights[bar.words[0]] = heights.get(bar.words[0], 0) + bar.height
        assert chart.top <= bar.y <= chart.bottom
    assert heights["a"] / heights["b"] == pytest.approx(3 / 4)
    assert stacked("t", "x", "y", [("a", [0, 0, 0, 0, 0])], parts) is None


def test_the_costs_are_those_of_the_kept_benches() -> None:
    from bench.pages import audit_costs

    kept = json.loads((ROOT / "batchval" / "audit" / "costs.json").read_text("utf-8"))
    made = audit_costs.costs()
    assert kept["sources"] == made["sources"], "python -m bench.pages.audit_costs makes it again"
    for way, by_codec in made["ways"].items():
        for codec, costs in by_codec.items():
            # another release of a codec's library compresses a little otherwise
            assert kept["ways"][way][codec]["cpu_s_a_gb"] == pytest.approx(
                costs["cpu_s_a_gb"], rel=0.03
            ), (way, codec)
            assert kept["ways"][way][codec]["within"] == pytest.approx(costs["within"], rel=0.1), (
                way,
                codec,
            )


def test_a_bench_cell_costs_about_what_was_measured() -> None:
    from batchval.audit.costs import cpu_seconds, known, measured

    found = json.loads((ROOT / "bench" / "results" / "validation.json").read_text("utf-8"))["times"]
    for codec in CODECS:
        costs, within = measured("kafka", codec) or (0.0, 0.0)
        ns = found[f"v2-{codec}-100-1000"]["kafka"]["best_us"] * 1000
        size = ns / costs  # CPU-s/GB is ns a byte
        assert 1 / within <= cpu_seconds("kafka", codec, 1, 100, size) * 1e9 / ns <= within, codec
        assert cpu_seconds("kafka", codec, 2, 200, 2 * size) == pytest.approx(
            2 * cpu_seconds("kafka", codec, 1, 100, size)
        )
        if codec != "none":
            assert (
                cpu_seconds("claims", codec, 1, 100, size)
                < cpu_seconds("kafka", codec, 1, 100, size) / 4
            )
    assert "none" not in known()["ways"]["claims"]
