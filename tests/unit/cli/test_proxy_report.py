"""``batchval proxy --report``: counts of the gate as text and as JSON, and what cannot be read."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.cluster.state_file import replace_file
from batchval.proxy.watch.observed_batches import NAME, ObservedCounts, _pieces, read_observed
from tests.support.proxy import (
    BAD,
    GOOD,
    ScriptedBroker,
    codes,
    eventually,
    produce_frame,
    read_frame,
)
from tests.unit.proxy_settings.refused import Refused
from tests.unit.proxy_settings.test_command import gate

Run = Callable[..., Any]
EXAMPLE = Path(__file__).parents[3] / "fixtures" / "gate"


def written(
    folder: Path, *refusals: Refused, judged: int = 1_204_330, at_s: float | None = None
) -> Path:
    """Write a state directory with these refusals."""
    at = int((time.time() if at_s is None else at_s) * 1e9)
    counts = ObservedCounts("observe", judged=lambda: judged, clock_ns=lambda: at)
    for refusal in refusals:
        counts(refusal)
    replace_file(folder / NAME, _pieces(counts.snapshot()))
    return folder


def test_text(run: Run, tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        Refused(principal="User:alice", enforced=False, reason="stored 1, computed 2"),
        Refused(
            topic="audit",
            rule="batch-too-large",
            batches=1_200,
            client_id=None,
            error="MESSAGE_TOO_LARGE",
        ),
    )
    code, out, err = run("proxy", "--report", "--state-directory", folder)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    at = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"mode observe, {at} to {at} UTC, written \d+ s ago", lines[0])
    assert lines[1] == "1,204,330 batches judged: 1 observed (forwarded), 1,200 refused"
    assert lines[3].split() == [
        "batches",
        "outcome",
        "topic",
        "principal",
        "rule",
        "first",
        "(UTC)",
        "last",
        "(UTC)",
    ]
    assert re.fullmatch(
        rf"  1,200  refused   audit   User:ANONYMOUS  batch-too-large  {at}  {at}", lines[4]
    )
    assert lines[5].strip() == "partition 0 from 127.0.0.1:1: MESSAGE_TOO_LARGE: why"
    assert re.fullmatch(
        rf"      1  observed  orders  User:alice      crc-mismatch     {at}  {at}", lines[6]
    )
    assert (
        lines[7].strip()
        == "partition 0 from 127.0.0.1:1, client_id c: CORRUPT_MESSAGE: stored 1, computed 2"
    )
    assert lines[9:] == [
        "batch-too-large (13): the batch is larger than max.message.bytes",
        "crc-mismatch (14): the checksum is wrong, or the batch is smaller than its own header",
        "batchval rule NAME explains a rule",
    ]


def test_json(run: Run) -> None:
    code, out, err = run("proxy", "--report", "--state-directory", EXAMPLE, "--json")
    assert (code, err) == (1, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["type"] for row in rows] == ["refusal", "refusal", "refusal", "summary"]
    assert [row["batches"] for row in rows[:3]] == [1_210, 3, 1]
    assert rows[1] == {
        "schema_version": 1,
        "type": "refusal",
        "topic": "orders",
        "principal": "User:etl",
        "rule": "14",
        "slug": "crc-mismatch",
        "outcome": "observed",
        "batches": 3,
        "first_ms": 1_794_650_400_000,
        "last_ms": 1_795_082_400_000,
        "client": "10.0.0.7:51324",
        "client_id": "etl-1",
        "partition": 3,
        "error_code": "CORRUPT_MESSAGE",
        "reason": "stored 3735928559, computed 1",
    }
    assert (rows[3]["judged"], rows[3]["observed"], rows[3]["refused"]) == (1_204_330, 1_213, 1)


def test_nothing_was_refused(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(
        "proxy", "--report", "--state-directory", written(tmp_path, at_s=1_700_000_000)
    )
    assert code == 0
    first, second = out.splitlines()
    assert first.endswith("d ago (the gate does not run, or cannot write this file)")
    judged, _, rest = second.partition(": ")
    assert judged == "1,204,330 batches judged"
    assert rest == "nothing was refused, or would have been, since 2023-11-14 22:13:20 UTC"
    code, out, _ = run("proxy", "--report", "--state-directory", tmp_path, "--json")
    assert code == 0
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["summary"]


def test_the_folder_comes_from_the_settings_or_from_systemd(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "state", Refused())
    config = tmp_path / "gate.yaml"
    settings = 'listeners: [{address: ":9092"}]\nupstream: {bootstrap: "127.0.0.1:9"}\n'
    config.write_text(f"{settings}state_directory: state\n")
    assert run("proxy", "--report", "--config", config).code == 1
    config.write_text(settings)
    code, _, err = run("proxy", "--report", "--config", config)
    assert code == 2
    assert "--report needs --state-directory DIR" in err
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path / 'state'}:/other")
    assert run("proxy", "--report", "--config", config).code == 1
    assert run("proxy", "--report").code == 1


def test_the_report_of_a_gate_that_options_have_completed(run: Run, tmp_path: Path) -> None:
    # with --listen, --upstream and --metrics a gate runs with this file
    written(tmp_path / "state", Refused())
    config = tmp_path / "gate.yaml"
    rest = "state_directory: state\nobserve: [{topics: a}]\nmetrics: {remote: true}\n"
    for mode in ("", "mode: enforce\n", "mode: observe\n", "mode: both\n"):
        config.write_text(mode + rest)
        assert run("proxy", "--report", "--config", config).code == 1
        assert run("proxy", "--report", "--config", config, "--mode", "observe").code == 1
    config.write_text("state_directory: [1]\n")
    code, _, err = run("proxy", "--report", "--config", config)
    assert (code, "state_directory: " in err) == (2, True)
    config.write_text("state_dir: state\n")
    code, _, err = run("proxy", "--report", "--config", config)
    assert (code, "state_dir: unknown key" in err) == (2, True)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "does not exist: no gate with this state_directory has run yet"),
        (b"{", "was not written by this version of batchval proxy"),
        (b'{"version": 9}', "expected an object with version 1"),
    ],
)
def test_what_cannot_be_read(run: Run, tmp_path: Path, data: bytes | None, why: str) -> None:
    if data is not None:
        (tmp_path / NAME).write_bytes(data)
    code, out, err = run("proxy", "--report", "--state-directory", tmp_path)
    assert (code, out) == (3, "")
    assert err.startswith(f"batchval proxy: {tmp_path / NAME}")
    assert why in err
    assert err.count("\n") == 1


def test_json_belongs_to_the_report(run: Run) -> None:
    code, _, err = run("proxy", "--json", "--check-config")
    assert code == 2
    assert "--json needs --report" in err


def test_what_clients_chose_is_escaped(run: Run, tmp_path: Path) -> None:
    nasty = "x\nevil\r\x1b[2J\u2028\u202e"
    folder = written(
        tmp_path, Refused(principal=nasty, client_id=nasty, reason=nasty, client=nasty, rule=nasty)
    )
    _, out, _ = run("proxy", "--report", "--state-directory", folder)
    assert out.replace("\n", "").isprintable()
    assert len(out.splitlines()) == 8


def test_many_rows_are_cut(run: Run, tmp_path: Path) -> None:
    folder = written(tmp_path, *(Refused(topic=f"t-{n}", batches=n + 1) for n in range(130)))
    _, out, _ = run("proxy", "--report", "--state-directory", folder)
    assert "… and 30 more rows (--json has all)" in out
    assert out.index("t-129 ") < out.index("t-128 ") < out.index("t-30 ")
    assert "t-29 " not in out


def test_the_example_is_read() -> None:
    assert len(read_observed(EXAMPLE / NAME).rows) == 3


def test_a_gate_that_runs_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    words = ("--mode", "observe", "--state-directory", str(tmp_path / "state"))
    with ScriptedBroker() as broker, gate(broker, *words) as running:
        eventually((tmp_path / "state" / NAME).exists)
        code, out, _ = run("proxy", "--report", *words[2:])
        assert code == 0
        assert "0 batches judged: nothing was refused, or would have been, since" in out
        with running.connected() as sock:
            sock.sendall(produce_frame(1, ("orders", 1, BAD), ("orders", 2, GOOD)))
            assert codes(read_frame(sock)) == {("orders", 1): 0, ("orders", 2): 0}
        running.end()
    code, out, _ = run("proxy", "--report", *words[2:])
    assert code == 1
    assert "2 batches judged: 1 observed (forwarded), 0 refused" in out
    assert re.search(r"^ +1  observed  orders  User:ANONYMOUS  crc-mismatch ", out, re.MULTILINE)
