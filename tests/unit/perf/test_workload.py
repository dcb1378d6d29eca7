"""The workload file of perf roundtrip: what it may hold, and the line that each fault gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchval.perf.workload import MAX_CLIENTS, Workload, load
from batchval.yaml_settings.yaml_values import MAX_FILE_BYTES, ConfigError

TOPIC = "{name: t, rate: 10, record_size: 100}"
MINIMAL_WORKLOAD = f"duration_s: 1\ntopics: [{TOPIC}]\n"


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "w.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(folder: Path, text: str | bytes, *, own_client: bool = True, **common: str) -> Workload:
    return load(
        written(folder, text),
        {k.replace("_", "."): v for k, v in common.items()},
        own_client=own_client,
    )


def test_the_least(tmp_path: Path) -> None:
    workload = read(tmp_path, MINIMAL_WORKLOAD)
    (topic,) = workload.topics
    assert (topic.name, topic.rate, topic.record_size, topic.create) == ("t", 10, (100,), None)
    assert (topic.producers, topic.groups, topic.consumers) == (1, 1, 1)
    assert (workload.records(topic), workload.warmup_records(topic)) == (10, 0)


def test_everything(tmp_path: Path) -> None:
    workload = read(
        tmp_path,
        """
duration_s: 0.5
warmup_s: 0.25
topics:
  - name: a.b_c-d
    rate: 1000.5
    record_size: [28, 1000]
    producers: 2
    groups: 3
    consumers: 4
    create: {partitions: 4, replication_factor: 3, config: {min.insync.replicas: 2, a: b}}
producer: {linger.ms: 0, enable.idempotence: true, compression.type: lz4}
consumer: {fetch.min.bytes: 1}
""",
    )
    (topic,) = workload.topics
    assert topic.create is not None
    assert topic.create.config == {"min.insync.replicas": "2", "a": "b"}
    assert workload.producer == {
        "linger.ms": "0",
        "enable.idempotence": "true",
        "compression.type": "lz4",
    }
    assert (workload.records(topic), workload.warmup_records(topic)) == (750, 250)


def test_a_run_of_less_than_a_record_has_one(tmp_path: Path) -> None:
    workload = read(tmp_path, MINIMAL_WORKLOAD.replace("duration_s: 1", "duration_s: 0.001"))
    assert workload.records(workload.topics[0]) == 1


def test_librdkafka_judges_the_names_that_it_alone_knows(tmp_path: Path) -> None:
    text = MINIMAL_WORKLOAD + "producer: {queue.buffering.max.ms: 3}\n"
    assert read(tmp_path, text, own_client=False).producer == {"queue.buffering.max.ms": "3"}
    with pytest.raises(ConfigError, match="unknown property"):
        read(tmp_path, text)


def topic(more: str) -> str:
    return f"duration_s: 1\ntopics:\n- {{name: t, {more}}}\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [": duration_s: is missing", ": topics: is missing"]),
        ("[1]", [": must be keys and values"]),
        ("duration_s: [", [":1: is not YAML: expected the node content, but found '<stream end>'"]),
        ("a: \x03", [": is not YAML: character U+0003 at position 3 is not allowed"]),
        ("[" * 100_000, [": is not YAML: nested too deep to be read"]),
        ("a: !!bool maybe", [": is not YAML: a value does not fit its tag"]),
        ('a: !!int ""', [": is not YAML: a value does not fit its tag"]),
        ("a: !!timestamp foo", [": is not YAML: a value does not fit its tag"]),
        (
            "a: !!python/object:os.system {}",
            [":1: is not YAML: could not determine a constructor for the tag"],
        ),
        (b"\xff\xfe\xfa", [": is not YAML: byte 0xff at position 0 is not UTF-8"]),
        (b"#" * (MAX_FILE_BYTES + 1), [f": longer than {MAX_FILE_BYTES} bytes"]),
        (MINIMAL_WORKLOAD + "duration_s: 2\n", [":3: duration_s: stands twice"]),
        (
            MINIMAL_WORKLOAD + "warm_up_s: 2\n",
            [":3: warm_up_s: unknown key (nearest known key: warmup_s)"],
        ),
        (
            MINIMAL_WORKLOAD.replace(": 1\n", ": 0\n"),
            [":1: duration_s: must be more than 0, not 0"],
        ),
        (MINIMAL_WORKLOAD.replace(": 1\n", ": .inf\n"), [":1: duration_s: "]),
        (MINIMAL_WORKLOAD.replace(": 1\n", ": .nan\n"), [":1: duration_s: "]),
        (MINIMAL_WORKLOAD.replace(": 1\n", ": '1'\n"), [":1: duration_s: must be a number"]),
        (MINIMAL_WORKLOAD.replace(": 1\n", ": true\n"), [":1: duration_s: must be a number"]),
        (MINIMAL_WORKLOAD + "warmup_s: -1\n", [":3: warmup_s: must be at least 0, not -1"]),
        ("duration_s: 1\ntopics: []\n", [":2: topics: "]),
        ("duration_s: 1\ntopics: {name: t}\n", [":2: topics: must be a list"]),
        ("duration_s: 1\ntopics: [t]\n", [":2: topics[0]: must be keys and values"]),
        (
            "duration_s: 1\ntopics:\n- rate: 1\n",
            [":3: topics[0].name: is missing", ":3: topics[0].record_size: is missing"],
        ),
        (topic("rate: 0, record_size: 99"), [":3: topics[0].rate: must be more than 0, not 0"]),
        (
            topic("rate: 2000000000, record_size: 99"),
            [":3: topics[0].rate: must be at most 1000000000, not 2000000000"],
        ),
        (
            topic("rate: 1, record_size: 27"),
            [":3: topics[0].record_size: must be 28 to 2147483647 bytes, not 27"],
        ),
        (
            topic("rate: 1, record_size: 99.5"),
            [":3: topics[0].record_size: must be a number of bytes, or a list"],
        ),
        (
            topic("rate: 1, record_size: []"),
            [":3: topics[0].record_size: must be a number of bytes, or a list of 1"],
        ),
        (
            topic("rate: 1, record_size: [99, x]"),
            [":3: topics[0].record_size: must be a number of bytes, or a list"],
        ),
        (
            topic("rate: 1, record_size: 1048577"),
            [":3: topics[0].record_size: must be at most 1048576 (max.request.size), not 1048577"],
        ),
        (
            topic("rate: 1, record_size: 99, groups: 0"),
            [":3: topics[0].groups: must be at least 1, not 0"],
        ),
        (
            topic("rate: 1, record_size: 99, producers: 1.5"),
            [":3: topics[0].producers: must be a whole number"],
        ),
        (
            topic("rate: 1, record_size: 99, consumers: 3, create: {partitions: 2}"),
            [":3: topics[0].consumers: must be at most 2, one for each partition, not 3"],
        ),
        (
            topic("rate: 1, record_size: 99, create: true"),
            [":3: topics[0].create: must be keys and values"],
        ),
        (
            topic("rate: 1, record_size: 99, create: {}"),
            [":3: topics[0].create.partitions: is missing"],
        ),
        (
            topic("rate: 1, record_size: 99, create: {partitions: 1, config: {a: [1]}}"),
            [":3: topics[0].create.config.a: must be text, a number, true or false"],
        ),
        (
            topic("rate: 1000000000, record_size: 99").replace(": 1\n", ": 10000000\n"),
            [":3: topics[0].rate: must make at most"],
        ),
        (
            topic(f"rate: 1, record_size: 99, groups: 4, consumers: {MAX_CLIENTS // 4}"),
            [
                f":2: topics: must have at most {MAX_CLIENTS} producers and consumers together, not {MAX_CLIENTS + 1}"
            ],
        ),
        (
            f"duration_s: 1\ntopics:\n- {TOPIC}\n- {TOPIC}\n",
            [":4: topics[1].name: t is the name of topics[0] too"],
        ),
        (
            MINIMAL_WORKLOAD.replace("name: t", "name: a/b"),
            [":2: topics[0].name: must be 1 to 249 letters, digits, "],
        ),
        (
            MINIMAL_WORKLOAD.replace("name: t", "name: '..'"),
            [":2: topics[0].name: must be 1 to 249 letters, digits, "],
        ),
        (MINIMAL_WORKLOAD.replace("name: t", "name: 7"), [":2: topics[0].name: must be text"]),
        (
            MINIMAL_WORKLOAD + "producer: {linger.ms: -1}\n",
            [":3: producer.linger.ms: '-1': expected an integer, 0 to 2147483647"],
        ),
        (
            MINIMAL_WORKLOAD + "producer: {linger_ms: 1}\n",
            [":3: producer.linger_ms: unknown property (nearest known property: linger.ms)"],
        ),
        (
            MINIMAL_WORKLOAD + "consumer: {linger.ms: 1}\n",
            [":3: consumer.linger.ms: unknown property (nearest known property: "],
        ),
        (
            MINIMAL_WORKLOAD + "consumer: {group.id: g}\n",
            [":3: consumer.group.id: is set by the run"],
        ),
        (
            MINIMAL_WORKLOAD + "producer: {bootstrap.servers: 'a:1'}\n",
            [":3: producer.bootstrap.servers: is set by the run: use --bootstrap-server"],
        ),
        (MINIMAL_WORKLOAD + "producer: [linger.ms]\n", [":3: producer: must be keys and values"]),
    ],
)
def test_each_fault_is_a_line(text: str | bytes, lines: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert len(raised.value.problems) == len(lines), raised.value.problems
    for problem, line in zip(raised.value.problems, lines, strict=True):
        assert problem.removeprefix(str(tmp_path / "w.yaml")).startswith(line)
        assert "\n" not in problem


def test_the_largest_record_is_that_of_the_producer(tmp_path: Path) -> None:
    text = topic("rate: 1, record_size: 2000")
    with pytest.raises(ConfigError, match=r"at most 1000 \(max.request.size\), not 2000"):
        read(tmp_path, text, max_request_size="1000")
    assert read(tmp_path, text + "producer: {max.request.size: 3000}\n", max_request_size="1000")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.yaml", {}, own_client=True)
