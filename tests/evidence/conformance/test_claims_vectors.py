"""fixtures/claims: make.py makes the committed files, and they cover what they are there for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures.claims import make
from tests.support.go import GoMissing, built

ROOT = Path(__file__).resolve().parents[3]
HERE = ROOT / "fixtures" / "claims"
#: The answer of a line of each file, as the reader in Go writes it.
ANSWERS = {
    "blocks": lambda line: {"claims": line["claims"]},
    "schema_ids": lambda line: {key: line[key] for key in ("schema_ids", "no_value_null")},
    "readings": lambda line: {"reads": line["reads"]},
    "ledger": lambda line: {"decisions": [step["decision"] for step in line["steps"]]},
}


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text("ascii").splitlines()]


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return make.make()


@pytest.mark.parametrize("name", make.FILES)
def test_make_reproduces_the_committed_bytes(made: dict[str, str], name: str) -> None:
    assert (HERE / f"{name}.jsonl").read_bytes().decode("ascii") == made[f"{name}.jsonl"]


def test_make_does_not_import_batchval() -> None:
    source = (HERE / "make.py").read_text("utf-8")
    assert "import batchval" not in source
    assert "from batchval" not in source


def test_a_tag_is_its_block_and_the_stored_crc() -> None:
    blocks = {
        json.dumps(line["claims"]): line["block"] for line in lines("blocks") if line["claims"]
    }
    for line in lines("carriers"):
        block = blocks.get(json.dumps(line["claims"]))
        assert block is not None, line["name"]
        assert line["tag"] == block + line["batch"][34:42], line["name"]


def test_a_payload_carrier_adds_its_bytes_and_keeps_the_others() -> None:
    added = {"zstd": 10, "gzip": 6}
    for line in lines("carriers"):
        before, after = bytes.fromhex(line["batch"]), line["payload_batch"]
        if after is None:
            assert line["codec"] in {"snappy", "lz4"} or before[61 + 3] & 6, line["name"]
            continue
        block = bytes.fromhex(line["tag"])[:-4]
        data = bytes.fromhex(after)
        assert len(data) == len(before) + added[line["codec"]] + len(block), line["name"]
        assert b"BV" in data[61:73] or data[73:75] == b"BV", line["name"]
        assert data[12:17] + data[21:61] == before[12:17] + before[21:61], line["name"]
        kept = 0 if line["codec"] == "zstd" else 10
        assert data.endswith(before[61 + kept :]), line["name"]


def test_each_answer_occurs() -> None:
    found = [
        line["reads"] if isinstance(line["reads"], str) else "claims" for line in lines("readings")
    ]
    assert set(found) == {"claims", "none", "unbound"}
    steps = [step for line in lines("ledger") for step in line["steps"]]
    assert {step["decision"] for step in steps} == {"verify", "trust"}
    assert {step["answer"] for step in steps} == {
        "honest",
        "lying",
        "unjudged",
        "unbound",
        "trusted",
        None,
    }


@pytest.fixture(scope="module")
def reader() -> Path:
    """Return the reader in Go, which was written from the pages alone."""
    try:
        return built(ROOT / "conformance" / "runners" / "claims_reader")
    except GoMissing as missing:
        pytest.skip(str(missing))


def run(reader: Path, kind: str, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [reader, kind], input=text, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("kind", list(ANSWERS))
def test_a_reader_of_the_pages_gives_the_same_answers(reader: Path, kind: str) -> None:
    done = run(reader, kind, (HERE / f"{kind}.jsonl").read_text("ascii"))
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [{"name": line["name"], **ANSWERS[kind](line)} for line in lines(kind)]


def test_the_reader_reads_what_carriers_hold(reader: Path) -> None:
    """A tag, and the payload, of the batches that ``carriers.jsonl`` makes."""
    asked, expected = [], []
    for line in lines("carriers"):
        cases = [("none", line["batch"], None), (line["claims"], line["batch"], line["tag"])]
        if (carrying := line["payload_batch"]) is not None:
            tag = line["tag"][:-8] + carrying[34:42]  # attaching has changed the crc
            cases += [(line["claims"], carrying, None), (line["claims"], carrying, tag)]
        for answer, batch, tag_of_batch in cases:
            asked.append(json.dumps({"name": line["name"], "batch": batch, "tag": tag_of_batch}))
            expected.append(answer)
    done = run(reader, "readings", "\n".join(asked))
    assert [json.loads(line)["reads"] for line in done.stdout.splitlines()] == expected


@pytest.mark.parametrize(
    ("kind", "text"), [("claims", ""), ("blocks", "no json"), ("blocks", '{"block": "xyz"}')]
)
def test_the_reader_refuses_what_is_no_line(reader: Path, kind: str, text: str) -> None:
    done = run(reader, kind, text)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
