"""perf produce as people call it, on a real broker: lines, figures, exit codes; and what goes
wrong.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from batchval.perf.results import Result
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.perf.conftest import CLIENTS, ONE_CLIENT, rule
from tests.unit.perf.producer_parser import DETAILS, complaints, parse

ROOT = Path(__file__).parents[3]


def command(*options: object) -> list[str]:
    return [sys.executable, "-m", "batchval", "perf", "produce", *map(str, options)]


def run(*options: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*options), cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def where(broker: KafkaBroker) -> Callable[..., list[object]]:
    """The options for a new topic."""

    def make(name: str, partitions: int = 1, **config: str) -> list[object]:
        return [
            "--bootstrap-server",
            broker.bootstrap,
            "--topic",
            make_topic(broker.bootstrap, name, partitions, **config),
        ]

    return make


def values(bootstrap: str, topic: str, partition: int = 0) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "look", "enable.partition.eof": False}
    )
    try:
        last = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)[1]
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[bytes] = []
        position = 0
        while position < last:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None
                found.append(message.value() or b"")
            position = consumer.position([TopicPartition(topic, partition)])[0].offset
            position = max(position, 0)
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_kafkas_lines_and_the_second_line(
    where: Callable[..., list[object]], client: str, broker: KafkaBroker
) -> None:
    done = run(
        *where(f"lines-{client}"), "--client", client, "--num-records", 3000, "--record-size", 100,
        "--throughput", 1500, "--reporting-interval", 500, "--warmup-records", 1000,
    )  # fmt: skip
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    *intervals, total, steady = parse(done.stdout, strict=True)
    assert {line.kind for line in intervals} == {"interval"}
    assert len(intervals) >= 3
    assert sum(line.records for line in intervals) <= 3000
    assert (total.kind, total.records, steady.kind, steady.records) == (
        "total",
        3000,
        "steady",
        2000,
    )
    assert 500 < steady.rate < 1550
    assert 0 < steady.percentiles["50th"] <= steady.percentiles["99.9th"] <= steady.max <= total.max
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == list(DETAILS)
    assert "highest in flight: broker 1 " in done.stderr
    assert len(values(broker.bootstrap, f"lines-{client}")) == 3000


@pytest.mark.parametrize("client", CLIENTS)
def test_with_latency_unit_ms_only_kafkas_bytes_are_printed(
    where: Callable[..., list[object]], client: str
) -> None:
    done = run(
        *where(f"ms-{client}"), "--client", client, "--num-records", 500, "--record-size", 10, "--latency-unit", "ms",
        "--throughput", 500, "--reporting-interval", 300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.kind for line in parse(done.stdout, "ms", strict=True)][-1] == "total"


@pytest.mark.parametrize("client", CLIENTS)
def test_json_and_the_histogram_say_the_same(
    where: Callable[..., list[object]], client: str, tmp_path: Path
) -> None:
    done = run(
        *where(f"json-{client}", 3), "--client", client, "--num-records", 20_000, "--record-size", 200, "--threads", 2,
        "--output", tmp_path / "r.json", "--histogram", tmp_path / "r.hlog", "--report", tmp_path / "r.html",
        "--compression-type", "lz4",
        "--command-property", "linger.ms=2", "sasl.password=hush", "sasl.oauthbearer.client.secret=hush",
    )  # fmt: skip
    assert done.returncode == 0
    (total,) = (line for line in parse(done.stdout) if line.kind == "total")
    result = Result.read(tmp_path / "r.json")
    assert result.histogram is not None
    assert result.histogram.count == result.totals["records"] == total.records == 20_000
    assert result.totals["bytes"] == 4_000_000
    assert sum(row["records"] for row in result.intervals) in {0, 20_000}
    assert total.max == result.histogram.max / 1000
    assert "hush" not in (tmp_path / "r.json").read_text()
    read = HistogramLogReader(
        str(tmp_path / "r.hlog"), HdrHistogram(1, 3_600_000_000, 3)
    ).get_next_interval_histogram()
    assert read.get_total_count() == 20_000
    assert read.get_max_value() == pytest.approx(result.histogram.max, rel=1e-3)
    shown = (tmp_path / "r.html").read_text()
    assert "20,000 records" in shown
    assert "hush" not in shown


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_what_is_sent_is_what_was_asked(
    where: Callable[..., list[object]], client: str, broker: KafkaBroker, tmp_path: Path
) -> None:
    name = f"monotonic-{client}"
    assert (
        run(
            *where(name), "--client", client, "--num-records", 100, "--payload-monotonic"
        ).returncode
        == 0
    )
    assert values(broker.bootstrap, name) == [b"%d" % n for n in range(100)]
    name, file = f"file-{client}", tmp_path / "payloads"
    file.write_text("one,two,three")
    done = run(
        *where(name, 2), "--client", client, "--num-records", 200, "--payload-file", file, "--payload-delimiter", ",",
        "--partition", 1,
    )  # fmt: skip
    assert done.returncode == 0
    assert set(values(broker.bootstrap, name, 1)) == {b"one", b"two", b"three"}
    assert values(broker.bootstrap, name, 0) == []
    name = f"round-{client}"
    done = run(
        *where(name, 4),
        "--client",
        client,
        "--num-records",
        400,
        "--record-size",
        5,
        "--partitioner",
        "round_robin",
    )
    assert done.returncode == 0
    assert [len(values(broker.bootstrap, name, n)) for n in range(4)] == [100] * 4


@pytest.mark.parametrize("client", CLIENTS)
def test_transactions(where: Callable[..., list[object]], client: str, broker: KafkaBroker) -> None:
    name = f"transactions-{client}"
    done = run(
        *where(name), "--client", client, "--num-records", 300, "--record-size", 10, "--transactional-id", name,
        "--transaction-duration-ms", 100, "--throughput", 600,
    )  # fmt: skip
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert parse(done.stdout)[-1].records == 300
    assert (
        len(values(broker.bootstrap, name)) == 300
    )  # read committed, as a consumer of librdkafka is by default


def test_deprecated_words_are_taken_and_reported(
    where: Callable[..., list[object]], tmp_path: Path
) -> None:
    file = tmp_path / "p.properties"
    file.write_text("linger.ms=1\n")
    _, server, *topic = where("deprecated")
    done = run(
        "--broker-list", server, *topic, "--client", "librdkafka", "--num-records", 10, "--record-size", 10,
        "--producer.config", file, "--producer-props", "acks=1", "batch.size=1000", "--throughput", -1,
    )  # fmt: skip
    assert done.returncode == 0
    assert len(complaints(done.stderr)) == 3
    assert all("is deprecated, use --" in line for line in complaints(done.stderr))


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_no_such_topic_partition_or_broker(
    broker: KafkaBroker, where: Callable[..., list[object]], client: str
) -> None:
    some = ["--client", client, "--num-records", 10, "--record-size", 10]
    small = f"three-{client}"
    where(small, 3)
    for topic, partition, words in (("not a topic!", 0, "not a topic!"), (small, 7, "7")):
        done = run(
            "--bootstrap-server",
            broker.bootstrap,
            "--topic",
            topic,
            "--partition",
            partition,
            *some,
        )
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
        assert words in done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(
            "--bootstrap-server",
            nobody,
            "--topic",
            "t",
            *some,
            "--command-property",
            "max.block.ms=2000",
        )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert nobody in done.stderr


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_that_nobody_may_write(
    broker: KafkaBroker, where: Callable[..., list[object]], client: str
) -> None:
    """The topic may be described, so the run begins; every send is refused."""
    name = f"forbidden-{client}"
    options = where(name)
    rule(broker.bootstrap, ResourceType.TOPIC, name, AclOperation.WRITE)
    rule(broker.bootstrap, ResourceType.TOPIC, name, AclOperation.DESCRIBE, AclPermissionType.ALLOW)
    done = run(
        *options, "--client", client, "--num-records", 10, "--record-size", 10, "--no-idempotence"
    )
    assert done.returncode == 1
    assert parse(done.stdout)[-1].records == 0
    *warned, line = complaints(done.stderr)
    assert "10 records failed: TOPIC_AUTHORIZATION_FAILED 10" in line
    assert all("a retry may reorder" in words for words in warned)
    assert len(warned) == (client == "batchval")  # once


@pytest.mark.parametrize("client", CLIENTS)
def test_interrupted_the_totals_are_printed(
    where: Callable[..., list[object]], client: str
) -> None:
    with subprocess.Popen(
        command(*where(f"interrupted-{client}"), "--client", client, "--num-records", 10**12, "--record-size", 10,
                "--throughput", 1000, "--reporting-interval", 200),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert "records sent" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complaints(err) == ["batchval perf produce: interrupted"]
    assert [line.kind for line in parse(out)][-1] == "total"
    assert parse(out)[-1].records > 0


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_records_that_can_never_be_sent(
    where: Callable[..., list[object]], client: str, tmp_path: Path
) -> None:
    """Larger than the buffer: they fail, and those that fit are sent."""
    file = tmp_path / "payloads"
    file.write_text("small,small,small," + "large" * 1000)
    done = run(
        *where(f"never-{client}"), "--client", client, "--num-records", 200, "--payload-file", file,
        "--payload-delimiter", ",", "--throughput", 400, "--command-property", "buffer.memory=3000",
    )  # fmt: skip
    (line,) = complaints(done.stderr)
    (failed,) = re.findall(r"(\d+) records failed: ", line)
    assert done.returncode == 1
    assert 20 < int(failed) < 90
    assert parse(done.stdout)[-1].records == 200 - int(failed)


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_batches_that_the_topic_does_not_take(
    where: Callable[..., list[object]], client: str
) -> None:
    options = where(f"little-{client}", **{"max.message.bytes": "2000"})
    done = run(*options, "--client", client, "--num-records", 20, "--record-size", 5000)
    assert done.returncode == 1
    *split, line = complaints(done.stderr)
    assert "20 records failed: M" in line
    assert len(split) == (client == "batchval")  # it says once that batches were split


def test_acks_0(where: Callable[..., list[object]]) -> None:
    done = run(*where("acks-0"), "--num-records", 500, "--record-size", 10, "--acks", 0)
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert "highest in flight: none; over all brokers 0" in done.stderr


@pytest.mark.parametrize("client", CLIENTS)
def test_a_full_buffer_only_slows_down(where: Callable[..., list[object]], client: str) -> None:
    done = run(
        *where(f"full-{client}"), "--client", client, "--num-records", 5000, "--record-size", 1000,
        "--command-property", "buffer.memory=65536", "batch.size=16384",
    )  # fmt: skip
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert parse(done.stdout)[-1].records == 5000


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_a_broker_that_dies_leaves_right_totals(client: str, tmp_path: Path) -> None:
    result = tmp_path / "r.json"
    with KafkaBroker(tmp_path / "broker", heap="256m") as dying:
        make_topic(dying.bootstrap, "t")
        with subprocess.Popen(
            command("--bootstrap-server", dying.bootstrap, "--topic", "t", "--client", client, "--num-records", 3000,
                    "--record-size", 10, "--throughput", 1000, "--reporting-interval", 200, "--output", result,
                    "--command-property", "delivery.timeout.ms=3000", "request.timeout.ms=1000", "linger.ms=0"),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            while process.stdout.readline().startswith("0 records sent"):
                pass
            dying.stop()
            out, err = process.communicate(timeout=100)
    assert process.returncode == 1, err
    totals = json.loads(result.read_text())["totals"]
    assert totals["failed"] > 0
    assert totals["records"] + totals["failed"] == 3000
    assert parse(out)[-1].records == totals["records"] > 0
    (line,) = complaints(err)
    assert f"{totals['failed']} records failed: " in line


@pytest.mark.parametrize("client", ONE_CLIENT)
def test_a_broker_that_comes_back_amid_transactions(client: str, tmp_path: Path) -> None:
    """Killed, and started again: the run goes on, and all is committed, once, in order."""
    with KafkaBroker(tmp_path / "broker", heap="256m") as dying:
        make_topic(dying.bootstrap, "t")
        with subprocess.Popen(
            command("--bootstrap-server", dying.bootstrap, "--topic", "t", "--client", client, "--num-records", 6000,
                    "--payload-monotonic", "--throughput", 2000, "--reporting-interval", 200,
                    "--transactional-id", "t", "--transaction-duration-ms", 100),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            while process.stdout.readline().startswith("0 records sent"):
                pass
            dying.kill()
            dying.start()
            out, err = process.communicate(timeout=100)
        assert (process.returncode, complaints(err)) == (0, [])
        assert parse(out)[-1].records == 6000
        assert values(dying.bootstrap, "t") == [b"%d" % n for n in range(6000)]  # read committed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--num-records", "10"], "Give one of"),
        (["--record-size", "10"], "'--num-records' or '--duration'"),
        (["--num-records", "0", "--record-size", "10"], "--num-records"),
        (["--num-records", "1" + "0" * 30, "--record-size", "10"], "--num-records"),
        (["--num-records", "10", "--record-size", "-1"], "--record-size"),
        (["--num-records", "10", "--record-size", str(2**31 - 1)], "max.request.size"),
        (
            ["--num-records", "10", "--record-size", "9", "--command-property", "buffer.memory=8"],
            "buffer.memory",
        ),
        (
            ["--num-records", "10", "--record-size", "1", "--bootstrap-server", "localhost"],
            "invalid server 'localhost': expected host:port",
        ),
        (
            ["--num-records", "10", "--record-size", "1", "--bootstrap-server", "a:99999"],
            "invalid server 'a:99999': expected host:port",
        ),
        (["--num-records", "10", "--record-size", "1", "--payload-monotonic"], "Give one of"),
        (["--num-records", "10", "--record-size", "1", "--throughput", "0"], "--throughput"),
        (["--num-records", "10", "--record-size", "1", "--throughput", "nan"], "--throughput"),
        (["--num-records", "10", "--record-size", "1", "--throughput", "inf"], "--throughput"),
        (["--num-records", "10", "--record-size", "1", "--threads", "0"], "--threads"),
        (
            ["--num-records", "10", "--record-size", "1", "--warmup-records", "10"],
            "--warmup-records",
        ),
        (
            ["--num-records", "10", "--record-size", "1", "--max-in-flight", "6", "--idempotence"],
            "idempotence",
        ),
        (
            ["--num-records", "10", "--record-size", "1", "--acks", "1", "--transactional-id", "t"],
            "transactions",
        ),
        (
            ["--num-records", "10", "--record-size", "1", "--reporting-interval", "0"],
            "--reporting-interval",
        ),
        (["--num-records", "10", "--record-size", "1", "--claims", "tag"], "--claims tag"),
        (["--num-records", "10", "--record-size", "1", "--command-property", "acks=7"], "acks"),
        (["--num-records", "10", "--record-size", "1", "--command-property", "acks"], "NAME=VALUE"),
        (
            ["--num-records", "10", "--record-size", "1", "--command-property", "no.such.thing=1"],
            "no.such.thing",
        ),
        (["--duration", "0", "--record-size", "1"], "--duration"),
        (["--duration", "nan", "--record-size", "1"], "--duration"),
        (["--num-records", "10", "--payload-file", os.devnull], "no payload in it"),
        (["--num-records", "10", "--payload-file", "/no/such/file"], "/no/such/file"),
        (
            ["--num-records", "10", "--record-size", "1", "--output", "/no/such/folder/r.json"],
            "/no/such/folder",
        ),
        (
            ["--num-records", "10", "--record-size", "1", "--report", "/no/such/folder/r.html"],
            "/no/such/folder",
        ),
        (
            ["--num-records", "10", "--record-size", "1", "--command-config", "/no/such/file"],
            "/no/such/file",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_line(options: list[str], words: str) -> None:
    begin = time.monotonic()
    done = run(
        "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--client", "librdkafka", *options
    )
    assert done.returncode in ((3,) if "/no/such" in words or "no.such" in words else (2,)), (
        done.stderr
    )
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr
    assert time.monotonic() - begin < 60


def test_json_is_one_line_on_standard_output(where: Callable[..., list[object]]) -> None:
    done = run(
        *where("json-flag"), "--num-records", 500, "--record-size", 10, "--print-metrics", "--json"
    )
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    document = json.loads(line)
    assert (document["schema_version"], document["type"], document["kind"]) == (
        1,
        "result",
        "produce",
    )
    assert Result.from_json(document).totals["records"] == 500
    assert "500 records sent" in done.stderr
    assert "Metric Name" in done.stderr
