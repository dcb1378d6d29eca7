"""The configuration of a topic: the file's globs, then the cluster's own configuration, read with
the gate's credentials.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import pytest

from batchval.network.errors import AuthenticationError, DisconnectError, NetworkError
from batchval.network.sasl import ScramClient
from batchval.policy import TopicPolicy
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from batchval.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from batchval.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from batchval.proxy.produce import policies
from batchval.proxy.produce.policies import (
    UNBOUNDED,
    ClusterTopics,
    TopicLookup,
    read_topic_configs,
)
from batchval.proxy.settings.config import TopicRule, Upstream
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.setting_types import Address, Secret
from tests.support.broker_node import BrokerNode
from tests.support.fixtures import running_kafka
from tests.support.network import closed_port, until
from tests.system.interop.kafka_broker import KafkaBroker

USER, PASSWORD = "ga,te=", "pl4nted-s3cret"


class Broker(BrokerNode):
    """A broker that answers the gate's requests to clients that know the password."""

    def __init__(
        self, configs: Mapping[str, Mapping[str, str]], mechanism: str | None = None
    ) -> None:
        handlers = {
            17: self._handshake,
            36: self._authenticate,
            3: self._metadata,
            32: self._describe,
        }
        super().__init__(handlers, ranges={18: (0, 4), 17: (0, 1), 36: (0, 2), 3: (0, 13)})
        self.configs = {topic: dict(config) for topic, config in configs.items()}
        self.mechanism = mechanism
        self.iterations = 4096
        self.asked: list[list[str]] = []
        self.knows_password = True
        #: by connection
        self.sessions: dict[object, dict[str, Any]] = {}

    @property
    def bootstrap(self) -> Address:
        return Address("127.0.0.1", self.port)

    def _session(self) -> dict[str, Any]:
        start = {"in": self.mechanism is None, "first": "", "server": ""}
        return self.sessions.setdefault(asyncio.current_task(), start)

    def _handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        known = request.mechanism == self.mechanism
        return SaslHandshakeResponse(0 if known else 33, [self.mechanism or ""])

    def _metadata(self, request: MetadataRequest) -> MetadataResponse | None:
        if not self._session()["in"]:
            return None
        assert request.topics is None
        assert not request.allow_auto_topic_creation
        return MetadataResponse(
            topics=[MetadataResponseTopic(name=topic) for topic in self.configs]
        )

    def _describe(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse | None:
        if not self._session()["in"]:
            return None
        self.asked.append([resource.resource_name for resource in request.resources])
        return DescribeConfigsResponse(
            results=[self._described(r.resource_name) for r in request.resources]
        )

    def _described(self, topic: str) -> DescribeConfigsResult:
        if topic not in self.configs:
            return DescribeConfigsResult(error_code=3, resource_type=2, resource_name=topic)
        rows = [
            DescribeConfigsResourceResult(name=key, value=value)
            for key, value in self.configs[topic].items()
        ]
        return DescribeConfigsResult(resource_type=2, resource_name=topic, configs=rows)

    def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        token, state = bytes(request.auth_bytes), self._session()
        if self.mechanism == "PLAIN":
            state["in"] = token == f"\0{USER}\0{PASSWORD}".encode()
            return SaslAuthenticateResponse(error_code=0 if state["in"] else 58)
        name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[str(self.mechanism)]
        word = PASSWORD if self.knows_password else "another"
        salted = hashlib.pbkdf2_hmac(name, word.encode(), b"salt", self.iterations)
        if not state["first"]:
            state["first"] = token.decode().removeprefix("n,,")
            assert state["first"].startswith("n=ga=2Cte=3D,r=")
            nonce = state["first"].split(",r=")[1]
            state["server"] = (
                f"r={nonce}more,s={base64.b64encode(b'salt').decode()},i={self.iterations}"
            )
            return SaslAuthenticateResponse(auth_bytes=state["server"].encode())
        bare, proof = token.decode().rsplit(",p=", 1)
        message = f"{state['first']},{state['server']},{bare}".encode()
        key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, key).digest(), message, name)
        right = bytes(a ^ b for a, b in zip(key, signature, strict=True)) == base64.b64decode(proof)
        if not right and self.knows_password:
            return SaslAuthenticateResponse(error_code=58)
        state["in"] = True
        answer = hmac.digest(hmac.digest(salted, b"Server Key", name), message, name)
        return SaslAuthenticateResponse(auth_bytes=b"v=" + base64.b64encode(answer))


def upstream(broker: Broker, mechanism: str = "NONE", password: str = PASSWORD) -> Upstream:
    admin: dict[str, Any] = {"mechanism": mechanism}
    if mechanism != "NONE":
        admin |= {"username": USER, "password": password}
    return Upstream.model_validate({"bootstrap": broker.bootstrap, "admin": admin})


CONFIGS = {
    "orders": {
        "max.message.bytes": "2000000",
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
    },
    "logs": {
        "message.timestamp.after.max.ms": "9223372036854775807",
        "compression.type": "zstd",
        "other.key": "x",
    },
    "levels": {
        "compression.type": "gzip",
        "compression.gzip.level": "9",
        "compression.lz4.level": "3",
    },
    "kafka-3.9": {
        "message.timestamp.difference.max.ms": "1000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.after.max.ms": "60",
        "message.format.version": "3.0-IV1",
    },
}
POLICIES = {
    "orders": TopicPolicy(max_message_bytes=2_000_000, cleanup_policy="compact"),
    "logs": TopicPolicy(message_timestamp_after_max_ms=2**63 - 1, compression_type="zstd"),
    "levels": TopicPolicy(
        compression_type="gzip", compression_gzip_level=9, compression_lz4_level=3
    ),
    "kafka-3.9": TopicPolicy(
        message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=60
    ),
}


@pytest.mark.parametrize("mechanism", ["NONE", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_topic_configurations_are_read(mechanism: str) -> None:
    async with Broker(CONFIGS, None if mechanism == "NONE" else mechanism) as broker:
        settings = upstream(broker, mechanism)
        assert await read_topic_configs(settings, None, None) == POLICIES
        assert await read_topic_configs(settings, None, ["logs", "none"]) == {
            "logs": POLICIES["logs"]
        }


async def test_any_broker_serves_for_asking() -> None:
    async with Broker(CONFIGS) as broker, Broker(CONFIGS) as other:
        gone = Address("127.0.0.1", closed_port())
        found = await read_topic_configs(
            upstream(broker), None, ["orders"], [gone, other.bootstrap]
        )
        assert set(found) == {"orders"}
        assert (broker.asked, other.asked) == ([], [["orders"]])
        with pytest.raises(OSError, match=r"refused|failed"):
            await read_topic_configs(upstream(broker), None, ["orders"], [gone, gone])


async def test_plain_shows_no_remote_broker_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker(CONFIGS, "PLAIN") as broker:
        settings = upstream(broker, "PLAIN")
        assert await read_topic_configs(settings, None, ["orders"])
        monkeypatch.setattr(Address, "is_loopback", False)
        with pytest.raises(AuthenticationError, match="PLAIN would show the password"):
            await read_topic_configs(settings, None, ["orders"], [broker.bootstrap])
        allowed = settings.model_copy(update={"allow_plaintext": True})
        assert await read_topic_configs(allowed, None, ["orders"], [broker.bootstrap])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_reported_and_not_shown(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(CONFIGS, mechanism) as broker:
        with pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED") as refused:
            await read_topic_configs(upstream(broker, mechanism, "wrong-s3cret"), None, None)
        assert "s3cret" not in str(refused.value)
        other = "PLAIN" if mechanism != "PLAIN" else "SCRAM-SHA-512"
        text = rf"mechanism {other} \(UNSUPPORTED_SASL_MECHANISM\): it offers {mechanism}"
        with pytest.raises(AuthenticationError, match=text):
            await read_topic_configs(upstream(broker, other), None, None)
        monkeypatch.delenv("GATE_NONE", raising=False)
        admin = upstream(broker, mechanism)
        assert admin.admin is not None
        gone = admin.model_copy(
            update={"admin": admin.admin.model_copy(update={"password": Secret(env="GATE_NONE")})}
        )
        with pytest.raises(ConfigError, match="GATE_NONE"):
            await read_topic_configs(gone, None, None)


async def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    async with Broker(CONFIGS, "SCRAM-SHA-256") as broker:
        broker.knows_password = False
        with pytest.raises(AuthenticationError, match="does not know the password"):
            await read_topic_configs(upstream(broker, "SCRAM-SHA-256"), None, None)
        broker.iterations = 10
        with pytest.raises(AuthenticationError, match="'10' iterations"):
            await read_topic_configs(upstream(broker, "SCRAM-SHA-256"), None, None)


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert client.final(first).endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    for wrong in (
        b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        b"v=",
        b"e=other",
        b"",
        b"\xff",
        b"v=\xc3\xa9",
    ):
        with pytest.raises(AuthenticationError):
            client.verify(wrong)
    others = [first.replace(b"4096", b"9" * 30), first.replace(b"s=W", b"s=!")]
    for wrong in (b"r=other,s=QQ==,i=4096", first[:22], *others):
        with pytest.raises(AuthenticationError):
            ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO").final(wrong)


async def test_a_broker_too_old_to_be_asked() -> None:
    async with Broker(CONFIGS) as broker:
        broker.ranges[3] = (0, 3)  # would create the topics that are asked for
        with pytest.raises(ProtocolError, match="no version of MetadataRequest"):
            await read_topic_configs(upstream(broker), None, None)
        del broker.handlers[3]
        with pytest.raises(ProtocolError):
            await read_topic_configs(upstream(broker), None, None)


# ---- what is known -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def running(topics: ClusterTopics) -> AsyncIterator[None]:
    task = asyncio.create_task(topics.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_new_topics_are_asked_for_and_old_ones_read_again() -> None:
    async with Broker(CONFIGS) as broker:
        settings = upstream(broker)
        topics = ClusterTopics(lambda names: read_topic_configs(settings, None, names), 1.5)
        assert topics("orders") is None
        assert topics.age_s == -1
        async with running(topics):
            await until(lambda: topics("orders"))
            assert topics("orders") == POLICIES["orders"]
            broker.configs["new"] = {"max.message.bytes": "7"}
            assert topics("new") is None
            assert topics("never") is None
            await until(lambda: topics("new"))
            assert broker.asked[-1] == ["never", "new"]
            for _ in range(100):
                assert topics("never") is None  # asked for once, until all are read again
            broker.configs["orders"] = {"max.message.bytes": "8"}
            await until(lambda: topics("orders") == TopicPolicy(max_message_bytes=8))
            assert len(broker.asked) == 3
            assert topics.age_s >= 0
            del broker.configs["logs"]
            await until(lambda: topics("logs") is None)


async def test_what_was_read_holds_while_the_cluster_is_away() -> None:
    answers: list[Any] = [
        DisconnectError("gone"),
        {"a": UNBOUNDED},
        OSError("gone"),
        ConnectionError(),
        {"b": UNBOUNDED},
    ]

    async def read(_: Iterable[str] | None) -> Mapping[str, TopicPolicy]:
        answer = answers.pop(0) if answers else {"b": UNBOUNDED}
        if isinstance(answer, Exception):
            raise answer
        return answer

    topics = ClusterTopics(read, 0.05, retry_s=(0.01, 0.02))
    async with running(topics):
        await until(lambda: topics("a"))
        assert topics.failures_total == 1
        await until(lambda: topics.failures_total == 3)
        assert topics("a") == UNBOUNDED
        await until(lambda: topics("b"))


async def test_a_new_topic_is_asked_for_again_after_a_failed_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policies, "SOON_S", 0.0)
    answers: list[Any] = [{}, OSError("gone"), ConnectionError(), {"new": UNBOUNDED}]
    asked: list[Any] = []

    async def read(names: Iterable[str] | None) -> Mapping[str, TopicPolicy]:
        asked.append(None if names is None else set(names))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    topics = ClusterTopics(read, 60, retry_s=(0.01, 0.01))
    async with running(topics):
        await until(lambda: topics.read_at)
        assert topics("new") is None
        await until(lambda: topics("new"))
        assert asked == [None, {"new"}, {"new"}, {"new"}]


async def test_names_that_clients_make_up_cost_no_memory() -> None:
    async def read(_: Iterable[str] | None) -> Mapping[str, TopicPolicy]:
        return {}

    topics = ClusterTopics(read, 60)
    async with running(topics):
        await until(lambda: topics.read_at)
        for n in range(5_000):
            topics(f"t{n}")
        assert len(topics._wanted) == 1_000


def test_the_file_first_then_the_cluster_then_nothing() -> None:
    rules = [
        TopicRule.model_validate({"match": "orders.eu", "max.message.bytes": 1}),
        TopicRule.model_validate({"match": "orders.*", "max.message.bytes": 2}),
        TopicRule.model_validate({"match": "orders.eu", "max.message.bytes": 3}),
    ]
    lookup = TopicLookup(rules, {"orders.us": UNBOUNDED, "logs": POLICIES["logs"]}.get)
    assert lookup("orders.eu") == TopicPolicy(max_message_bytes=1)
    assert lookup("orders.us") == lookup("orders.us") == TopicPolicy(max_message_bytes=2)
    assert lookup("logs") == POLICIES["logs"]
    assert lookup("other") is None
    assert TopicLookup([])("other") is None


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with running_kafka() as running:
        yield running


@pytest.mark.jvm
async def test_with_a_real_broker(broker: KafkaBroker, loop_kind: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic  # type: ignore[import-not-found]

    topic = f"made-{loop_kind}"

    def create() -> None:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        config = {"cleanup.policy": "compact", "max.message.bytes": "4321"}
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs=config)])
        admin.close()

    await asyncio.to_thread(create)
    settings = Upstream.model_validate(
        {"bootstrap": broker.bootstrap, "admin": {"mechanism": "NONE"}}
    )
    found = await read_topic_configs(settings, None, None)
    deadline = time.monotonic() + 60
    while topic not in found and time.monotonic() < deadline:  # the controller answers first
        await asyncio.sleep(0.1)
        found = await read_topic_configs(settings, None, None)
    assert found[topic] == TopicPolicy(cleanup_policy="compact", max_message_bytes=4321)
    with_password = {"mechanism": "PLAIN", "username": "a", "password": "b"}
    with pytest.raises(NetworkError):
        await read_topic_configs(
            Upstream.model_validate({"bootstrap": broker.bootstrap, "admin": with_password}),
            None,
            None,
        )
