"""A stock broker with the agent of ``broker/``: raw Produce requests under each policy."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchval.core.claims import attach, compute, to_tag
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION
from batchval.kafka_versions import RELEASES as RANGES
from batchval.protocol.messages.produce import ProduceResponse
from tests.support.batches import with_crc
from tests.support.jvm_agents import broker_agent, counters
from tests.support.ports import free_port
from tests.support.proxy import batch, produce_frame, read_frame
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.interop.kafka_java import find_java

pytestmark = pytest.mark.jvm

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TAG = 25206
ROOT = Path(__file__).resolve().parents[3]
OPTIONS = """
policy=ignore
rule.1=trust,topic=trusted*,listener=PLAINTEXT
rule.2=audit:0.5,topic=audited,listener=PLAINTEXT
rule.3=verify,topic=verified
rule.4=trust,topic=unnamed
rule.5=trust,topic=of-users,principal=User:al*
first.checked=4
secret=000102030405060708090a0b0c0d0e0f
"""
#: releases that are started with the agent, besides the newest
RELEASES = (
    *("3.9.0", "3.9.1", "3.9.2", "4.0.0", "4.0.1", "4.0.2", "4.1.0", "4.1.1", "4.1.2"),
    *("4.2.0", "4.2.1", "4.2.2", "4.3.0", "4.3.1"),
)
#: of these, the two whose classes differ the most; the others are slow
IN_CI = ("3.9.0", "4.3.1")
TOPICS = ("trusted", "audited", "verified", "unnamed", "of-users", "ignored")
COMPACTED = "trusted-compacted"


class Agented:
    """A broker with the agent, and what its counters have changed by."""

    def __init__(self, broker: KafkaBroker, sasl_port: int) -> None:
        self.broker = broker
        self.sasl_port = sasl_port
        self.seen = self._counters()

    def _counters(self) -> dict[str, int | str]:
        assert self.broker.process is not None
        return counters(self.broker.process.pid)

    def counted(self) -> dict[str, int]:
        before, self.seen = self.seen, self._counters()
        return {
            name: value - before[name]  # type: ignore[operator]
            for name, value in self.seen.items()
            if isinstance(value, int) and value != before[name]
        }

    @contextlib.contextmanager
    def client(self, port: int | None = None) -> Iterator[Callable[..., int]]:
        """Yield a function that produces one batch a request and returns the error code."""
        with socket.create_connection((self.broker.host, port or self.broker.port), 20) as sock:
            if port is not None:
                authenticate(sock)

            def send(topic: str, data: bytes, tag: bytes | None = None, version: int = 9) -> int:
                tags = () if tag is None else ((TAG, tag),)
                sock.sendall(
                    produce_frame(1, (topic, 0, data), acks=-1, tags=tags, version=version)
                )
                answer = ProduceResponse.decode(read_frame(sock), version)
                return answer.responses[0].partition_responses[0].error_code

            yield send

    def stored(self, topic: str) -> bytes:
        return (self.broker.data / f"{topic}-0" / f"{0:020}.log").read_bytes()


def authenticate(sock: socket.socket) -> None:
    """Authenticate with SASL PLAIN as alice."""

    def ask(key: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhih", key, version, 7, -1) + body
        sock.sendall(struct.pack(">i", len(request)) + request)
        return read_frame(sock)[4:]

    assert ask(17, 1, struct.pack(">h5s", 5, b"PLAIN"))[:2] == b"\0\0"
    token = b"\0alice\0secret"
    assert ask(36, 0, struct.pack(">i", len(token)) + token)[:2] == b"\0\0"


@contextlib.contextmanager
def agented(
    folder: Path, profile: str = "broker", options: str = OPTIONS, second: str | None = None
) -> Iterator[Agented]:
    """Start a broker with the agent, and create the topics. ``second``: given once more so."""
    settings = folder / "claims.properties"
    settings.write_text(options)
    port, sasl, controller = free_port(), free_port(), free_port()
    jvm = [f"-javaagent:{broker_agent()}={settings}"]
    if second is not None:
        jvm.append(f"-javaagent:{broker_agent()}={second or settings}")
    broker = KafkaBroker(port=port, profile=profile, jvm=jvm)
    names = ("PLAINTEXT", "SASL_PLAINTEXT")
    advertised = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=secret;"
    broker.config.update(
        {
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in names)
            + ",CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        }
    )
    with broker:
        for topic in TOPICS:
            make_topic(broker.bootstrap, topic)
        make_topic(broker.bootstrap, COMPACTED, **{"cleanup.policy": "compact"})
        yield Agented(broker, sasl)


def made(codec: int, number: int = 0) -> bytes:
    return batch(*(b"value %d of batch %d " % (i, number) * 3 for i in range(20)), codec=codec)


def tag_of(data: bytes, **changes: int) -> bytes:
    claims = compute(data)
    assert claims is not None
    return to_tag(claims._replace(**changes), int.from_bytes(data[17:21], "big"))


def check_policies(one: Agented) -> None:
    """Check the answers, the log and the counters of each policy with both carriers."""
    batches = [made(codec) for codec in (GZIP, SNAPPY, LZ4, ZSTD)]
    carrying = [bytes(attach(data, carrier="payload")) for data in (batches[0], batches[3])]
    with one.client() as send:
        # the same batches with and without claims that are believed: the same log
        for topic in ("trusted", "ignored"):
            for data in batches:
                assert send(topic, data, tag_of(data)) == 0
            for data in carrying:
                assert send(topic, data, version=7) == 0
                assert send(topic, data) == 0
        assert one.stored("trusted") == one.stored("ignored")
        assert send("trusted", batches[0]) == 0
        assert send("trusted", batches[0], tag_of(batches[1])) == 0  # of another batch
        assert send("trusted", made(0), tag_of(made(0))) == 0  # uncompressed: walking it is cheap
        # what claims would refuse is Kafka's to answer
        # the last offset delta is 20 of 20 records
        wrong = with_crc(batches[3][:26] + b"\x14" + batches[3][27:])
        assert send("trusted", wrong, tag_of(batches[3])[:-4] + wrong[17:21]) == 87
        null = batch(b"a" * 99, b"b" * 99, codec=ZSTD, key=None)
        assert send(COMPACTED, null, tag_of(null)) == 87
        assert send(COMPACTED, batches[3], tag_of(batches[3])) == 0

        assert send("unnamed", batches[3], tag_of(batches[3])) == 0
        assert one.counted() == {
            "Trusted": 8 + 1,
            "NoClaims": 1,
            "Unbound": 1,
            "AnonymousIgnored": 1,
            "NotSettled": 1,
            "Honest": 1,
            "Unjudged": 1,
        }

        for number in range(40):
            data = made(ZSTD, number)
            assert send("audited", data, tag_of(data)) == 0
        counted = one.counted()
        assert counted["Verified"] == counted["Honest"] >= 4
        assert counted["Verified"] + counted["Trusted"] == 40

    with one.client(one.sasl_port) as send:
        assert send("of-users", batches[2], tag_of(batches[2])) == 0
        assert send("verified", batches[2], tag_of(batches[2])) == 0
        # its rule names the other listener
        assert send("trusted", batches[2], tag_of(batches[2])) == 0
        # a lie that Kafka accepts stays accepted, and its sender is demoted; the listener's is not
        lie = tag_of(batches[2], uncompressed_bytes=900)
        assert send("verified", batches[2], lie) == 0
        assert send("of-users", batches[2], tag_of(batches[2])) == 0
    with one.client() as send:
        assert send("trusted", batches[2], tag_of(batches[2])) == 0
    assert one.counted() == {"Verified": 3, "Honest": 2, "Lying": 1, "Demotions": 1, "Trusted": 2}
    log = one.broker.log.read_text(errors="replace")
    assert (
        log.count("claims of User:alice lie (topic verified): uncompressed_bytes is 900, but") == 1
    )
    assert log.count("claims of User:ANONYMOUS on listener PLAINTEXT are ignored") == 1


@pytest.mark.long
def test_policies_of_a_stock_broker(tmp_path: Path) -> None:
    with agented(tmp_path) as one:
        assert str(one.seen["Status"]).startswith(
            "active: Kafka 4.4.0, policy ignore; rule.1 trust"
        )
        check_policies(one)


@pytest.mark.parametrize(
    "release",
    [
        pytest.param(release, marks=pytest.mark.long if release in IN_CI else pytest.mark.slow)
        for release in RELEASES
    ],
)
def test_policies_of_another_stock_broker(tmp_path: Path, release: str) -> None:
    with agented(tmp_path, release) as one:
        assert str(one.seen["Status"]).startswith(f"active: Kafka {release}, ")
        assert one.seen["Inactive"] == 0
        check_policies(one)


def test_the_page_lists_the_releases_that_are_started() -> None:
    page = (ROOT / "broker" / "README.md").read_text("utf-8")
    sentence = page.partition("finds lies: ")[2].partition(".\n\n")[0]
    assert sentence.split() == [f"{name}," for name in RELEASES] + [DEFAULT_KAFKA_VERSION]
    assert all(
        any(numbers(one.first) <= numbers(name) <= numbers(one.last) for name in RELEASES)
        for one in RANGES
        if one.is_published and numbers("3.9.0") <= numbers(one.last) < numbers("4.4.0")
    )


def numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


@pytest.mark.slow
def test_a_wrong_option_leaves_a_stock_broker(tmp_path: Path) -> None:
    with agented(tmp_path, options="policy=believe\n") as one:
        data = made(ZSTD)
        with one.client() as send:
            assert send("trusted", data, tag_of(data)) == 0
        assert one.counted() == {}
        status = one.seen["Status"]
        assert one.seen["Inactive"] == 1
        assert (
            status
            == "inactive: invalid policy 'believe': expected ignore, verify, audit:RATE or trust"
        )
        assert one.broker.log.read_text(errors="replace").count("invalid policy 'believe'") == 1


@pytest.mark.slow
@pytest.mark.parametrize("second", ["", "policy=trust"], ids=["same options", "others"])
def test_the_agent_given_twice(tmp_path: Path, second: str) -> None:
    """What is trusted does not depend on which of the two comes first."""
    with agented(tmp_path, second=second) as one:
        data = made(ZSTD)
        with one.client() as send:
            assert send("trusted", data, tag_of(data)) == 0
        counted, status = one.counted(), str(one.seen["Status"])
        log = one.broker.log.read_text(errors="replace")
        if second:
            reason = "the agent is given twice with different options: give it once"
            assert (counted, status) == ({}, f"inactive: {reason}")
            assert log.count(f"inactive, the broker runs as without the agent: {reason}") == 1
        else:
            assert counted == {"Trusted": 1}
            assert status.startswith("active: Kafka 4.4.0, ")
            assert log.count("given twice with the same options; the second one is ignored") == 1


@pytest.mark.slow
def test_the_counters_of_a_broker_without_the_agent() -> None:
    with KafkaBroker() as broker:
        assert broker.process is not None
        for pid, words in ((str(broker.process.pid), "has no agent"), ("x1", "cannot read")):
            done = subprocess.run(
                [find_java(), "-jar", str(broker_agent()), pid],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert (done.returncode, done.stdout) == (1, "")
            (line,) = done.stderr.splitlines()
            assert words in line
            assert pid in line
