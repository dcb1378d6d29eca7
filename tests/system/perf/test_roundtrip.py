"""perf roundtrip as people call it, at librdkafka's mock cluster; wrong use; and its page."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchval.perf.clients.rdkafka import MockCluster
from batchval.perf.results import Result
from batchval.perf.workload import Create, load
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli" / "perf-roundtrip.md"
COMMAND = [sys.executable, "-m", "batchval", "perf", "roundtrip"]
LINE = re.compile(
    r"(\S+) (published|end to end): (\d+) records (sent|read), "
    r"[\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
    r"[\d.]+ ms 50th, [\d.]+ ms 95th, [\d.]+ ms 99th, [\d.]+ ms 99.9th\."
)
SMALL = """
duration_s: 0.3
topics:
  - {name: orders, rate: 300, record_size: 200}
  - {name: clicks, rate: 100, record_size: [30, 60], producers: 2, groups: 2, consumers: 2}
producer: {linger.ms: 0}
consumer: {fetch.max.wait.ms: 5}
"""


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    """The address of a cluster in memory."""
    cluster = MockCluster()
    yield cluster.bootstrap
    del cluster


def run(*options: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    return done


def written(folder: Path, text: str) -> Path:
    path = folder / "workload.yaml"
    path.write_text(text)
    return path


def documented() -> str:
    section = PAGE.read_text("utf-8").split("\n## batchval perf roundtrip\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return str(block)


def test_the_example_of_the_page_is_a_workload(tmp_path: Path) -> None:
    workload = load(written(tmp_path, documented()), {}, own_client=True)
    assert [topic.name for topic in workload.topics] == ["orders", "clicks"]
    section = PAGE.read_text("utf-8").split("\n## batchval perf roundtrip\n")[1].split("\n## ")[0]
    assert re.findall(r"^(\S+) (published|end to end): \d+ records ", section, re.MULTILINE) == [
        (name, what)
        for name in ("orders", "clicks", "total")
        for what in ("published", "end to end")
    ]
    rows = [line for line in section.splitlines() if line.startswith("| `") and "`--" not in line]
    keys = {key for row in rows for key in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    models = (type(workload), type(workload.topics[0]), Create)
    assert keys == {key for model in models for key in model.model_fields}


def totals_of_the_page() -> str:
    page = PAGE.with_name("json-tools.md").read_text("utf-8")
    return page.split("\n### Results of perf roundtrip\n")[1].split("\n### ")[0]


@pytest.mark.parametrize("client", ["batchval", "librdkafka"])
def test_two_topics_at_a_mock_cluster(client: str, mock: str, tmp_path: Path) -> None:
    done = run(
        "--workload", written(tmp_path, SMALL), "--client", client, "--output", tmp_path / "r.json",
        "--report", tmp_path / "r.html", "--bootstrap-server", mock,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = [LINE.fullmatch(line) for line in done.stdout.splitlines()]
    assert [(line[1], line[2], int(line[3]), line[4]) for line in lines if line] == [
        ("orders", "published", 90, "sent"),
        ("orders", "end to end", 90, "read"),
        ("clicks", "published", 30, "sent"),
        ("clicks", "end to end", 60, "read"),
        ("total", "published", 120, "sent"),
        ("total", "end to end", 150, "read"),
    ]
    result = Result.read(tmp_path / "r.json")
    assert (result.kind, result.client) == ("roundtrip", client)
    assert result.headline is not None
    assert result.headline.count == result.totals["records"] == 150
    assert (
        result.totals["topics"]["clicks"]["lost"]
        == result.totals["topics"]["clicks"]["doubled"]
        == 0
    )
    assert result.totals["bytes"] == 90 * 200 + 4 * (8 * 30 + 7 * 60)
    assert "roundtrip" in (tmp_path / "r.html").read_text("utf-8")


def test_json_alone_is_on_stdout_and_compare_and_merge_read_it(mock: str, tmp_path: Path) -> None:
    done = run("--workload", written(tmp_path, SMALL), "--json", "--bootstrap-server", mock)
    assert done.returncode == 0
    assert LINE.fullmatch(done.stderr.splitlines()[-1])
    (line,) = done.stdout.splitlines()
    assert set(json.loads(line)["totals"]) == set(
        re.findall(r"^\| `(\w+)` ", totals_of_the_page(), re.M)
    )
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(line)
    perf = [sys.executable, "-m", "batchval", "perf"]
    pair = ["a.json", "b.json"]
    compared = subprocess.run(
        [*perf, "compare", *pair], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^ms 99th .* 0 %", compared, re.MULTILINE)
    added = subprocess.run(
        [*perf, "merge", *pair, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    totals = json.loads(added)["totals"]
    assert (
        totals["topics"]["orders"]["records"]
        == totals["topics"]["orders"]["histogram"]["count"]
        == 180
    )
    assert totals["published"]["histogram"]["count"] == 240


MINIMAL_WORKLOAD = "duration_s: 1\ntopics: [{name: t, rate: 10, record_size: 100}]\n"
AT = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("text", "options", "code", "complaint"),
    [
        (MINIMAL_WORKLOAD, [], 2, "Missing option '--bootstrap-server'."),
        (
            MINIMAL_WORKLOAD,
            ["--bootstrap-server", "nowhere"],
            2,
            "--bootstrap-server: invalid server 'nowhere'",
        ),
        (
            MINIMAL_WORKLOAD,
            [*AT, "--output", "/no/such/folder/r.json"],
            3,
            "/no/such/folder/r.json: No such file or directory",
        ),
        (
            MINIMAL_WORKLOAD + "producer: {acks: 1, enable.idempotence: true}\n",
            AT,
            2,
            "enable_idempotence",
        ),
        (
            MINIMAL_WORKLOAD.replace("rate: 10", "rate: x"),
            AT,
            2,
            "workload.yaml:2: topics[0].rate: must be a number",
        ),
        (
            MINIMAL_WORKLOAD,
            [*AT, "--workload", "/no/such.yaml"],
            3,
            "batchval perf roundtrip: /no/such.yaml: No such file or directory",
        ),
    ],
)
def test_wrong_use_is_one_line(
    text: str, options: list[str], code: int, complaint: str, tmp_path: Path
) -> None:
    done = run("--workload", written(tmp_path, text), *options)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert complaint in line


def test_topics_that_do_not_fit(mock: str, tmp_path: Path) -> None:
    """The mock cluster does not know CreateTopics, and makes topics of four partitions."""
    at = ["--bootstrap-server", mock]
    done = run(
        "--workload",
        written(tmp_path, MINIMAL_WORKLOAD.replace("100}", "100, create: {partitions: 1}}")),
        *at,
    )
    assert done.returncode == 3
    assert "topics cannot be created: " in done.stderr
    done = run(
        "--workload", written(tmp_path, MINIMAL_WORKLOAD.replace("100}", "100, consumers: 5}")), *at
    )
    assert done.returncode == 3
    assert done.stderr == "batchval perf roundtrip: topic t: consumers is 5, it has 4 partitions\n"


def test_an_interruption_prints_the_totals(mock: str, tmp_path: Path) -> None:
    path = written(tmp_path, SMALL.replace("0.3", "1000"))
    with subprocess.Popen(
        [
            *COMMAND,
            "--bootstrap-server",
            mock,
            "--workload",
            str(path),
            "--reporting-interval",
            "50",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        first = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert " records read, " in first
    assert running.returncode == 130, err
    assert err.splitlines()[-1] == "batchval perf roundtrip: interrupted"
    lines = [LINE.fullmatch(line) for line in out.splitlines()]
    assert len(lines) == 6
    assert all(lines)


@pytest.mark.jvm
def test_topics_are_created_as_the_workload_asks(broker: KafkaBroker, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, "trip-there", 3)
    text = """
duration_s: 0.2
topics:
  - name: trip-new
    rate: 200
    record_size: 100
    create: {partitions: 2, config: {retention.ms: 60000}}
  - {name: trip-there, rate: 100, record_size: 100, consumers: 3}
producer: {acks: 1, max.in.flight.requests.per.connection: 1}
"""
    path = written(tmp_path, text)
    for _ in range(2):  # the second time the topic exists
        done = run("--workload", path, "--bootstrap-server", broker.bootstrap)
        assert (done.returncode, done.stderr) == (0, "")
    path.write_text(text.replace("partitions: 2", "partitions: 4"))
    done = run("--workload", path, "--bootstrap-server", broker.bootstrap)
    assert done.returncode == 3
    assert done.stderr.endswith("topic trip-new exists: create.partitions is 4, it has 2\n")
    path.write_text(text.replace("trip-new", "trip-bad").replace("60000", "soon"))
    done = run("--workload", path, "--bootstrap-server", broker.bootstrap)
    assert done.returncode == 3
    assert "topic trip-bad cannot be created: INVALID_CONFIG" in done.stderr
