"""``batchval perf consume`` on a real broker: the rows, the warnings, the exit codes, and what goes
wrong.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from batchval.perf.consumer_lines import timeout_warning
from batchval.perf.results import Result
from tests.support.ports import free_port
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.perf.conftest import AUTHORIZER, CLIENTS, ONE_CLIENT, fill, rule
from tests.unit.perf.kafka_parser import parse_consumer
from tests.unit.perf.metric_names import KAFKAS, generic, parse_metrics

pytestmark = pytest.mark.jvm

BYTES = 100


def command(bootstrap: str, *options: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "batchval",
        "perf",
        "consume",
        "--bootstrap-server",
        bootstrap,
        *options,
    ]


#: The command, but the own client waits for metadata 2 seconds, not 10.
IMPATIENT = """
import runpy
from batchval.perf.clients import own_consumer
own_consumer.METADATA_MS = 2_000
runpy.run_module("batchval", run_name="__main__")
"""


def consume(
    bootstrap: str, *options: str, impatient: bool = False
) -> subprocess.CompletedProcess[str]:
    words = command(bootstrap, *options)
    if impatient:
        words[1:3] = ["-c", IMPATIENT]
    done = subprocess.run(words, capture_output=True, text=True, timeout=150, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("batchval perf consume: ")
    return lines[0].removeprefix("batchval perf consume: ")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("threads", [1, 4])
def test_a_run(broker: KafkaBroker, topic: str, client: str, threads: int) -> None:
    done = consume(
        broker.bootstrap,
        "--topic",
        topic,
        "--num-records",
        "20000",
        "--threads",
        str(threads),
        "--client",
        client,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert "arning" not in done.stdout
    (row,) = parse_consumer(done.stdout)
    assert row["data.consumed.in.nMsg"] == 20_000
    assert row["data.consumed.in.MB"] == pytest.approx(20_000 * BYTES / 2**20, abs=1e-4)
    # the rates are those of the times that are printed
    assert row["fetch.nMsg.sec"] == pytest.approx(20_000 / (row["fetch.time.ms"] / 1000), rel=1e-6)
    assert row["fetch.MB.sec"] == pytest.approx(
        row["data.consumed.in.MB"] / (row["fetch.time.ms"] / 1000), rel=1e-3
    )
    assert row["rebalance.time.ms"] > 0
    dates = (row["start.time"], row["end.time"])
    begin, end = (datetime.strptime(date, "%Y-%m-%d %H:%M:%S:%f") for date in dates)
    elapsed = round((end - begin).total_seconds() * 1000)
    assert row["rebalance.time.ms"] + row["fetch.time.ms"] == elapsed
    assert row["nMsg.sec"] == pytest.approx(20_000 / (elapsed / 1000), rel=1e-6)


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_more_threads_than_partitions_and_fewer_records_than_wanted(
    broker: KafkaBroker, topic: str, client: str
) -> None:
    done = consume(
        broker.bootstrap, "--topic", topic, "--num-records", "20001", "--timeout", "1500", "--client", client,
        "--print-metrics",
    )  # fmt: skip
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert (
        lines[1]
        == "Warning: numThreads 10 is bigger than numPartition 4, set numThread to numPartition"
    )
    assert lines[2] == timeout_warning(1500)
    (row,) = parse_consumer(done.stdout)
    assert row["data.consumed.in.nMsg"] == 20_000
    assert re.findall(r"^Metrics for thread (\d+)$", done.stdout, re.MULTILINE) == [
        "0",
        "1",
        "2",
        "3",
    ]
    lists = parse_metrics(done.stdout)
    assert len(lists) == 4
    total = 0.0
    for found in lists:
        kafkas = {name: value for name, value in found.items() if name.startswith("consumer-")}
        assert {generic(name) for name in kafkas} <= KAFKAS
        value = {name.split(":")[1]: one for name, one in kafkas.items()}
        assert value["rebalance-latency-avg"] > 0
        assert value["last-rebalance-seconds-ago"] >= 0
        assert value["assigned-partitions"] == 1
        assert value["bytes-consumed-total"] == value["records-consumed-total"] * BYTES
        total += value["records-consumed-total"]
        if client == "batchval":
            assert value["records-lag-max"] >= 0
            assert value["fetch-total"] > 0
            assert 0 < value["fetch-latency-avg"] <= value["fetch-latency-max"]
    assert total == 20_000


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_detailed_rows_add_up(broker: KafkaBroker, topic: str, client: str) -> None:
    done = consume(
        broker.bootstrap, "--topic", topic, "--num-records", "20001", "--timeout", "1500", "--client", client,
        "--threads", "2", "--show-detailed-stats", "--reporting-interval", "500",
    )  # fmt: skip
    assert done.returncode == 1
    rows = parse_consumer(done.stdout)
    assert {row["threadId"] for row in rows} == {0, 1}
    last = {row["threadId"]: row["data.consumed.in.nMsg"] for row in rows}
    assert sum(last.values()) == 20_000
    for thread in last:
        counts = [row["data.consumed.in.nMsg"] for row in rows if row["threadId"] == thread]
        assert counts == sorted(counts)
        assert len(counts) >= 2
    assert not re.search(r"^20\d\d-.*, 20\d\d-", done.stdout, re.MULTILINE)  # no summary row


@pytest.mark.parametrize("client", CLIENTS)
def test_include_hide_header_date_format_and_deprecated_options(
    broker: KafkaBroker, topic: str, client: str
) -> None:
    fill(broker.bootstrap, f"other-a-{client}", 1, 30)
    fill(broker.bootstrap, f"other-b-{client}", 2, 30)
    done = subprocess.run(
        [
            sys.executable, "-m", "batchval", "perf", "consume", "--broker-list", broker.bootstrap, "--messages", "60",
            "--include", f"other-.-{client}", "--hide-header", "--date-format", "iso", "--client", client,
            "--num-fetch-threads", "3", "--threads", "3",
        ],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines() == [
        "batchval perf consume: --broker-list is deprecated, use --bootstrap-server instead",
        "batchval perf consume: --messages is deprecated, use --num-records instead",
        "batchval perf consume: --num-fetch-threads is deprecated and has no effect, use --threads instead",
    ]
    assert done.returncode == 0
    iso = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
    assert re.fullmatch(rf"{iso}, {iso}, 0\.0057, \d.*, 60, .*\n", done.stdout), done.stdout


@pytest.mark.parametrize("client", CLIENTS)
def test_from_latest_reads_nothing_old(broker: KafkaBroker, topic: str, client: str) -> None:
    done = consume(
        broker.bootstrap, "--topic", topic, "--num-records", "1", "--timeout", "1000", "--from-latest",
        "--client", client, "--check-crcs", "--socket-buffer-size", "100000", "--fetch-size", "1000",
    )  # fmt: skip
    assert done.returncode == 1
    assert parse_consumer(done.stdout)[0]["data.consumed.in.nMsg"] == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_the_result_as_json_and_as_a_page(
    broker: KafkaBroker, topic: str, client: str, tmp_path: Path
) -> None:
    """Two runs: what they keep is what they print, and can be merged and compared."""
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        done = consume(
            broker.bootstrap, "--topic", topic, "--num-records", "20000", "--threads", "2", "--client", client,
            "--output", str(file), "--report", str(file.with_suffix(".html")),
            "--command-property", "client.id=hidden-by-nobody",
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        (row,) = parse_consumer(done.stdout)
        result = Result.read(file)
        assert (result.kind, result.client, result.histogram) == ("consume", client, None)
        assert result.totals["records"] == row["data.consumed.in.nMsg"] == 20_000
        assert result.totals["bytes"] == 20_000 * BYTES
        assert (
            result.totals["elapsed_ns"] // 10**6
            == result.totals["end_ms"] - result.totals["start_ms"]
        )
        for name in ("rebalance", "fetch"):
            assert result.totals[f"{name}_ms"] == row[f"{name}.time.ms"]
        assert result.totals["start_ms"] < result.totals["assigned_ms"] <= result.totals["end_ms"]
        assert sum(part["records"] for part in result.intervals) == 20_000
        assert [part["t_ms"] for part in result.intervals] == sorted(
            part["t_ms"] for part in result.intervals
        )
        assert result.settings["threads"] == 2
        assert result.versions["client"].startswith(client)
        page = file.with_suffix(".html").read_text()
        assert "20,000 records" in page
        assert "http" not in re.sub(r'xmlns="[^"]*"', "", page)  # nothing is fetched
    words = [sys.executable, "-m", "batchval", "perf"]
    merged = subprocess.run(
        [*words, "merge", "--json", *map(str, files)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(merged.stdout)["totals"]["records"] == 40_000
    subprocess.run(
        [*words, "compare", *map(str, files)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_aborted_is_read_unless_only_what_is_committed_is_wanted(
    broker: KafkaBroker, client: str
) -> None:
    topic = fill(broker.bootstrap, f"aborted-{client}", 1, 5)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"v" * 100)
        assert producer.flush(30) == 0
        end(30)
    for level, records in (("", 25), ("read_uncommitted", 25), ("read_committed", 15)):
        more = ["--command-property", f"isolation.level={level}"] if level else []
        done = consume(
            broker.bootstrap,
            "--topic",
            topic,
            "--num-records",
            str(records),
            "--threads",
            "1",
            "--client",
            client,
            *more,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert parse_consumer(done.stdout)[0]["data.consumed.in.nMsg"] == records


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_an_unknown_topic(broker: KafkaBroker, client: str) -> None:
    options = ["--num-records", "1", "--client", client]
    done = consume(broker.bootstrap, "--topic", "nobody-made-me", *options, impatient=True)
    assert done.returncode == 3
    assert complaint(done).startswith("topic nobody-made-me: ")
    assert "unknown topic" in done.stderr.lower().replace("_", " ")
    done = consume(broker.bootstrap, "--include", "nobody-.*", *options, impatient=True)
    assert done.returncode == 3
    assert complaint(done) == "no topic matches 'nobody-.*'"


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_no_broker(client: str) -> None:
    began = time.monotonic()
    nobody = f"127.0.0.1:{free_port()}"
    done = consume(nobody, "--topic", "t", "--num-records", "1", "--client", client, impatient=True)
    assert done.returncode == 3
    assert complaint(done).startswith("no broker answers at 127.0.0.1:")
    assert time.monotonic() - began < 40


@pytest.mark.parametrize("client", CLIENTS)
def test_permission_refused(broker: KafkaBroker, topic: str, client: str) -> None:
    secret = fill(broker.bootstrap, f"secret-{client}", 1, 10)
    rule(broker.bootstrap, ResourceType.TOPIC, secret, AclOperation.READ)
    rule(broker.bootstrap, ResourceType.GROUP, f"locked-{client}", AclOperation.READ)
    done = consume(
        broker.bootstrap,
        "--topic",
        secret,
        "--num-records",
        "1",
        "--client",
        client,
        "--threads",
        "1",
    )
    assert done.returncode == 3
    assert "authorization failed" in complaint(done).lower().replace("_", " ")
    done = consume(
        broker.bootstrap,
        "--topic",
        topic,
        "--num-records",
        "1",
        "--client",
        client,
        "--group",
        f"locked-{client}",
    )
    assert done.returncode == 3
    assert "group authorization failed" in complaint(done).lower().replace("_", " ")


@pytest.mark.parametrize("client", CLIENTS)
def test_ctrl_c_prints_the_row_first(broker: KafkaBroker, topic: str, client: str) -> None:
    run = subprocess.Popen(
        command(broker.bootstrap, "--topic", topic, "--num-records", "999999999", "--timeout", "600000",
                "--client", client, "--threads", "2", "--show-detailed-stats", "--reporting-interval", "300"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    seen = run.stdout.readline()  # the header
    while consumed(seen) < 20_000:  # it then waits for more
        seen += run.stdout.readline()
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err == "batchval perf consume: interrupted\n"
    assert consumed(seen + out) == 20_000


def consumed(rows: str) -> int:
    """Return the records of all threads, as their last rows have them."""
    last = {row["threadId"]: int(row["data.consumed.in.nMsg"]) for row in parse_consumer(rows)}
    return sum(last.values())


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_a_broker_killed_in_the_middle(tmp_path: Path, client: str) -> None:
    with KafkaBroker(tmp_path, config=AUTHORIZER, heap="256m") as own:
        fill(own.bootstrap, "t", 2, 1_000)
        run = subprocess.Popen(
            command(own.bootstrap, "--topic", "t", "--num-records", "999999999", "--timeout", "4000",
                    "--client", client, "--threads", "2", "--show-detailed-stats", "--reporting-interval", "300"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert run.stdout is not None
        seen = ""
        # rows come before records
        while (line := run.stdout.readline()) and consumed(seen) < 1_000:
            seen += line
        own.kill()
        out, err = run.communicate(timeout=90)
    assert run.returncode == 1
    assert (
        "WARNING: Exiting before consuming the expected number of records: timeout (4000 ms) exceeded."
        in out
    )
    if client == "librdkafka" or err:  # batchval's consumer tries again without a word
        assert len(err.splitlines()) == 1, err
        assert err.startswith("batchval perf consume: the client's last error: ")
    assert consumed(seen + line + out) == 1_000


def test_json_is_one_line_on_standard_output(broker: KafkaBroker, topic: str) -> None:
    words = (
        "--topic",
        topic,
        "--num-records",
        "1000",
        "--threads",
        "1",
        "--show-detailed-stats",
        "--json",
    )
    done = consume(broker.bootstrap, *words)
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    document = json.loads(line)
    assert (document["schema_version"], document["type"], document["kind"]) == (
        1,
        "result",
        "consume",
    )
    assert Result.from_json(document).totals["records"] == 1000  # of one poll, which had more
    assert Result.from_json(document).totals["bytes"] == 1000 * BYTES
    assert done.stderr.startswith("time, threadId, ")
