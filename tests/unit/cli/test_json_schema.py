"""Compare each table of docs/reference/cli/json*.md with the JSON that a command prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from batchval.core import claims
from batchval.perf.histogram import Histogram
from batchval.perf.results import Result
from tests.support.batches import NOW, ZSTD, batch, record, records

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "reference" / "cli").glob("json*.md"))
SEGMENTS = ROOT / "fixtures" / "segments"
Document = dict[str, Any]

_TYPES: dict[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
    "any": lambda value: True,
}


class Field(NamedTuple):
    """One row of a table."""

    types: tuple[str, ...]
    optional: bool


@cache
def tables() -> dict[tuple[str, str], dict[str, Field]]:
    """Return (command, type of document) -> its fields, as the page describes them."""
    found: dict[tuple[str, str], dict[str, Field]] = {}
    parts = re.split(
        r"^#{2,3} (.+): (.+)$",
        "\n".join(page.read_text("utf-8") for page in PAGES),
        flags=re.MULTILINE,
    )
    for command, types, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        rows = re.findall(
            r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|(?: <!--.*)?$",
            text.partition("\n#")[0],
            re.MULTILINE,
        )
        fields = {
            name: Field(tuple(kind.partition(",")[0].split(" or ")), "optional" in kind)
            for name, kind in rows
        }
        assert len(fields) == len(rows) > 0
        for type_ in types.split(", "):
            found[command, type_] = fields
    return found


def differences(document: Document, fields: dict[str, Field]) -> Iterator[str]:
    """Return the fields that a document has and its table does not describe, and the reverse."""
    for name in document.keys() - fields.keys():
        yield f"{name} is not described"
    for name, field in fields.items():
        if name not in document:
            if not field.optional:
                yield f"{name} is missing"
        elif not any(_TYPES[kind](document[name]) for kind in field.types):
            yield f"{name} is {document[name]!r}, not {' or '.join(field.types)}"


def lines(out: str) -> list[Document]:
    """Return the documents of an output, each with a version and a type."""
    found = [json.loads(line) for line in out.splitlines()]
    for document in found:
        assert document.pop("schema_version") == 1
    return found


def compared(command: str, documents: list[Document], *types: str) -> None:
    """Check that every document fits its table, and that the types are the expected ones."""
    assert {document["type"] for document in documents} == set(types)
    for document in documents:
        fields = tables()[command, document.pop("type")]
        assert list(differences(document, fields)) == []


def test_the_page_describes_these_documents() -> None:
    assert set(tables()) == {
        ("check", "finding"), ("check", "report"), ("check", "note"), ("check", "summary"), ("check", "lost"),
        ("check", "partition_transactions"), ("check", "transaction"),
        ("audit", "partition_transactions"), ("audit", "transaction"),
        ("dump", "batch"), ("dump", "record"), ("dump", "damage"),
        ("rule", "rule"), ("rule --versions", "row"),
        ("audit", "finding"), ("audit", "note"), ("audit", "summary"),
        ("audit --compare", "difference"), ("audit --compare", "topic"), ("audit --compare", "summary"),
        ("audit --plan", "plan"),
        ("claims show", "batch"), ("claims verify", "finding"), ("claims verify", "summary"),
        ("claims attach", "summary"),
        ("conformance", "disagreement"), ("conformance", "summary"),
        ("conformance --exec", "verdict"), ("conformance --exec", "rule"), ("conformance --exec", "score"),
        ("perf produce", "result"), ("perf compare", "comparison"),
        ("proxy", "listening"), ("proxy --report", "refusal"), ("proxy --report", "summary"),
        ("proxy --clients", "client"), ("proxy --clients", "summary"),
    }  # fmt: skip
    for fields in tables().values():
        assert {kind for field in fields.values() for kind in field.types} <= _TYPES.keys()


def test_a_field_that_differs_would_be_seen() -> None:
    fields = {"a": Field(("integer",), False), "b": Field(("string", "null"), True)}
    assert list(differences({"a": 1, "b": None}, fields)) == []
    assert list(differences({"a": 1}, fields)) == []
    assert list(differences({"a": True, "b": 1}, fields)) == [
        "a is True, not integer",
        "b is 1, not string or null",
    ]
    assert list(differences({"c": 1}, fields)) == ["c is not described", "a is missing"]


def test_check(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(batch(records(2), crc=1) + batch([record(0, attributes=1)]) + b"\xff" * 40)
    _, out, _ = run(
        "check", "--json", "--now", NOW, "--extra", "S5=report", path, tmp_path / "none"
    )
    compared("check", lines(out), "finding", "report", "summary")
    folder = tmp_path / "orders-0"
    folder.mkdir()
    parts = (
        batch(records(1), base_offset=offset, crc=crc)
        for offset, crc in ((0, None), (1, 1), (2, None))
    )
    (folder / f"{0:020}.log").write_bytes(b"".join(parts))
    _, out, _ = run("check", "--json", "--salvage", tmp_path / "out", folder)
    compared("check", lines(out), "finding", "lost", "summary")


@pytest.mark.parametrize("words", [("check",), ("audit", "--engine", "local")], ids=" ".join)
def test_trust_claims(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    path = folder / f"{0:020}.log"
    plain = batch(records(3), codec=ZSTD)
    for data, bound in ((plain, None), (claims.attach(plain, carrier="payload"), 0.95)):
        path.write_bytes(data)
        documents = lines(run(*words, "--json", "--trust-claims", "1", folder)[1])
        assert documents[0]["lies_at_most"] == pytest.approx(bound)
        compared(words[0], documents, "summary")


@pytest.mark.parametrize("words", [("check",), ("audit", "--engine", "local")], ids=" ".join)
def test_transactions(run: Run, words: tuple[str, ...]) -> None:
    _, out, _ = run(*words, "--json", "--transactions", SEGMENTS / "transactional-open-0")
    compared(words[0], lines(out), "note", "partition_transactions", "transaction", "summary")


def test_dump(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    marker = batch(
        [record(0, key=b"\0\0\0\1", value=b"\0\0\0\0\0\1")], attributes=0x30, producer_id=1
    )
    bytes_ = batch([record(0, key=b"\xff", value=None, headers=[(b"h", b"\xff")])])
    claimed = claims.attach(batch(records(3), codec=ZSTD), claims.BatchClaims(NOW, 3, 1))
    path.write_bytes(marker + bytes_ + batch(records(2), attributes=1) + claimed + b"\xff" * 40)
    for words in ((), ("--records",), ("--bad",)):
        documents = lines(run("dump", "--json", "--accept-claims-header", *words, path)[1])
        for document in documents:
            for row in document.get("records") or []:
                assert list(differences(row, tables()["dump", "record"])) == []
        compared("dump", documents, "batch", "damage")


def test_rule(run: Run) -> None:
    compared("rule", lines(run("rule", "--json")[1]), "rule")
    compared("rule --versions", lines(run("rule", "--versions", "--json")[1]), "row")


@pytest.fixture(scope="module")
def bad_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a partition with a gap, to audit."""
    folder = tmp_path_factory.mktemp("logs") / "a-0"
    folder.mkdir()
    parts = (
        batch(records(2)),
        batch(records(2), base_offset=5),
        batch(records(1), base_offset=7, crc=1),
    )
    (folder / "00000000000000000000.log").write_bytes(b"".join(parts))
    return folder


def test_audit(run: Run, bad_folder: Path, tmp_path: Path) -> None:
    local = ("audit", "--engine", "local", "--processes", 1)
    _, out, _ = run(*local, "--json", "--out", tmp_path / "a", bad_folder)
    compared("audit", lines(out), "finding", "note", "summary")
    run(*local, "--out", tmp_path / "b", SEGMENTS / "codec-none-0")
    _, out, _ = run("audit", "--json", "--compare", tmp_path / "a", tmp_path / "b")
    compared("audit --compare", lines(out), "difference", "topic", "summary")


def test_audit_plan(run: Run) -> None:
    compared("audit --plan", lines(run("audit", "--json", "--plan", "1GB/s")[1]), "plan")


def test_claims(run: Run, tmp_path: Path) -> None:
    plain, claimed, lie = tmp_path / "plain.bin", tmp_path / "claimed.bin", tmp_path / "lie.bin"
    plain.write_bytes(batch(records(3), codec=ZSTD))
    for verb, source, target in (
        ("attach", plain, claimed),
        ("strip", claimed, tmp_path / "stripped.bin"),
    ):
        compared(
            "claims attach",
            lines(run("claims", verb, "--json", source, "--out", target)[1]),
            "summary",
        )
    assert (tmp_path / "stripped.bin").read_bytes() == plain.read_bytes()
    lie.write_bytes(claims.attach(plain.read_bytes(), claims.BatchClaims(NOW, 7, 1)))
    for file, code in ((plain, 0), (claimed, 0), (lie, 1)):
        found, out, _ = run("claims", "show", "--json", file)
        assert found == code
        compared("claims show", lines(out), "batch")
    compared("claims verify", lines(run("claims", "verify", "--json", claimed)[1]), "summary")
    compared(
        "claims verify", lines(run("claims", "verify", "--json", lie)[1]), "finding", "summary"
    )


@pytest.mark.parametrize("verb", ["attach", "strip"])
def test_json_of_claims_needs_a_file(run: Run, tmp_path: Path, verb: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(batch())
    code, out, err = run("claims", verb, "--json", path)
    assert (code, out) == (2, "")
    assert "--json needs --out FILE" in err


def test_conformance(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    case = json.loads(
        next(iter(sorted((ROOT / "fixtures" / "golden").rglob("*.jsonl"))))
        .read_text()
        .splitlines()[0]
    )
    expect = next(iter(case["expect"].values()))
    expect["ok"] = not expect.get("ok")
    path.write_text(json.dumps(case))
    compared("conformance", lines(run("conformance", "--json", path)[1]), "disagreement", "summary")


def test_conformance_of_a_runner(run: Run) -> None:
    cases = ROOT / "fixtures" / "batchval_fixtures" / "cases" / "reader.jsonl"
    _, out, _ = run("conformance", "--json", "--profile", "reader", "--exec", "true", cases)
    compared("conformance --exec", lines(out), "verdict", "rule", "score")


def result(kind: str) -> Result:
    """Return a result as a run makes it, without a broker."""
    histogram = None
    totals: Document = {"records": 3, "bytes": 300, "elapsed_ns": 10**9}
    if kind == "produce":
        histogram = Histogram()
        histogram.record(1001)
        totals |= {
            "failed": 0,
            "wire_bytes": 400,
            "highest_in_flight_total": 1,
            "highest_in_flight": {"1": 1},
        }
        totals |= {"errors": {}, "steady_state": None}
    else:
        totals |= {"rebalance_ms": 1, "fetch_ms": 2, "start_ms": 3, "end_ms": 4}
    return Result(kind, "batchval", {}, totals, [], histogram)


@pytest.mark.parametrize("kind", ["produce", "consume"])
def test_perf(run: Run, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Print a result with merge, which needs no broker, as produce and consume do."""
    from batchval.cli.perf_options import Kept

    Kept(output=tmp_path / "a.json", as_json=True, report=None).keep(result(kind))
    compared("perf produce", lines(capsys.readouterr().out), "result")
    result(kind).write(tmp_path / "b.json")
    files = (tmp_path / "a.json", tmp_path / "b.json")
    compared("perf produce", lines(run("perf", "merge", "--json", *files)[1]), "result")
    compared("perf compare", lines(run("perf", "compare", "--json", *files)[1]), "comparison")
    written = json.loads((tmp_path / "a.json").read_text())
    assert written.pop("schema_version") == 1
    assert list(differences(written, tables()["perf produce", "result"])) == []


@pytest.mark.parametrize("metrics", ["127.0.0.1:9464", None])
def test_proxy(capsys: pytest.CaptureFixture[str], metrics: str | None) -> None:
    from batchval.cli.proxy import _announce

    gate: Any = SimpleNamespace(addresses={"default": "127.0.0.1:9092"}, metrics_at=metrics)
    settings: Any = SimpleNamespace(
        upstream=SimpleNamespace(bootstrap=("kafka:9092",)),
        log=SimpleNamespace(format="json"),
        mode="enforce",
    )
    _announce(gate, settings)
    compared("proxy", lines(capsys.readouterr().out), "listening")


def test_proxy_report(run: Run) -> None:
    out = run("proxy", "--report", "--json", "--state-directory", ROOT / "fixtures" / "gate")[1]
    compared("proxy --report", lines(out), "refusal", "summary")


def test_proxy_clients(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from batchval.cli import proxy_report
    from batchval.proxy.watch.clients import (
        Asked,
        ClientKey,
        ClientTable,
        Served,
        Software,
        page_of,
    )

    table = ClientTable()
    for client_id, software in (("c", Software("franz", "1")), (None, Software())):
        served = Served(answers=1 if client_id else 0)
        table.add(
            ClientKey(client_id, software, "10.0.0.7", "User:alice", "default"),
            {1 << 16 | 2: 1},
            served,
        )
    monkeypatch.setattr(proxy_report, "_answer", lambda *_: page_of(table, {}, Asked())()[1])
    proxy_report.show_clients("127.0.0.1:9464", as_json=True)
    compared("proxy --clients", lines(capsys.readouterr().out), "client", "summary")
