"""The Java producer with the agent: claims are those that batchval finds in the batch."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.batch import batches as every_batch
from batchval.core.claims import TAG, BatchClaims, carrier_of, compute, read
from batchval.errors import ErrorCode
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.proxy.settings.options import TopicPolicies
from batchval.record_rules import RecordRules, SchemaIds
from tests.support.java_classes import compiled
from tests.support.jvm_agents import broker_agent, counters, producer_agent
from tests.support.proxy import RunningProxy
from tests.system.interop.kafka_broker import KafkaBroker, classpath, find_java, java_command
from tests.system.interop.kafka_java import TARGET
from tests.unit.producer.partition_leader import PartitionLeader, no_fault

pytestmark = pytest.mark.jvm

SOURCE = Path(__file__).resolve().parent / "java" / "Produce.java"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
IN_PAYLOADS = ("gzip", "zstd")
#: of tests.system.interop.kafka_java: Kafka 4.4.0, 4.1.2, 3.9.2, and other releases
PROFILES = (
    *("broker", "4.1", "3.9", "3.9.0", "3.9.1", "4.0.0", "4.0.1", "4.0.2"),
    *("4.1.0", "4.1.1", "4.2.0", "4.2.1", "4.2.2", "4.3.0", "4.3.1"),
)
RECORDS = 240
BATCH_SIZE = 4096


class Sent(NamedTuple):
    """A batch as it stood in a Produce request."""

    scenario: str
    codec: str
    raw: bytes
    tag: bytes | None

    @property
    def claims(self) -> BatchClaims | None:
        return read(self.raw, self.tag)

    @property
    def in_payload(self) -> bool:
        return carrier_of(self.raw) == "payload"


class Refusing(PartitionLeader):
    """Finds batches too large for which ``refused`` is true."""

    def __init__(self, refused: Callable[[bytes], bool]) -> None:
        super().__init__()
        self.refused = refused

    def _kept(self, partition: int, raw: bytes) -> tuple[ErrorCode | None, int]:
        if self.refused(raw):
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return super()._kept(partition, raw)


def batches(broker: PartitionLeader) -> list[Sent]:
    """Return all batches of the Produce requests, those that were refused too."""
    found = []
    for request in broker.requests:
        for topic in request.topic_data:
            _, scenario, codec = topic.name.split("-")
            for data in topic.partition_data:
                tags = dict(data.unknown_tagged_fields)
                assert tags.keys() <= {TAG}
                tag = tags.get(TAG)
                found.append(
                    Sent(scenario, codec, bytes(data.records), None if tag is None else bytes(tag))
                )
    return found


def stored(broker: KafkaBroker, topic: str) -> list[bytes]:
    """Return the batches in the logs of a topic's partitions."""
    found = []
    for log in sorted(broker.data.glob(f"{topic}-[01]/*.log")):
        data, at = log.read_bytes(), 0
        for one in every_batch(data):
            found.append(data[at : at + one.size_in_bytes])
            at += one.size_in_bytes
    return found


def assert_honest(found: list[Sent], carrier: str, *, schema_ids: bool = False) -> None:
    """Assert that each compressed batch has true claims in one carrier, and the others none."""
    for one in found:
        if one.codec == "none":
            assert one.tag is None
            assert carrier_of(one.raw) is None
            continue
        assert one.claims == compute(one.raw, schema_ids=schema_ids) is not None
        assert one.in_payload == (one.tag is None)
        if one.in_payload:
            assert carrier == "payload"
            assert one.codec in IN_PAYLOADS
            assert len(one.raw) <= BATCH_SIZE or one.scenario in ("large", "tiny")


@pytest.fixture(scope="module")
def classes() -> Path:
    """Return the folder of the producer's program, compiled for all releases of Kafka."""
    return compiled([SOURCE], classpath("3.9"), find_java(), TARGET)


class HasBootstrap(Protocol):
    @property
    def bootstrap(self) -> str: ...


async def produce(
    classes: Path, profile: str, options: str, *scenarios: tuple[str, str, HasBootstrap]
) -> Any:
    """Run the program; return what it printed as ``{(scenario, codec): text}``, and its errors."""
    arguments = [f"{scenario}:{codec}:{broker.bootstrap}" for scenario, codec, broker in scenarios]
    jvm = [
        f"-javaagent:{producer_agent()}={options}",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
    ]
    command = java_command("Produce", *arguments, profile=profile, jvm=jvm)
    at = command.index("-cp") + 1
    command[at] = f"{classes}:{command[at]}"
    program = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, errors = await asyncio.wait_for(program.communicate(), 150)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    lines = [line.split(" ", 2) for line in out.decode().splitlines()]
    printed = {(scenario, codec): text for scenario, codec, text in lines}
    assert len(printed) == len(scenarios), errors.decode()[-4000:]
    return printed, errors.decode()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 180))


def cells(*in_ci: tuple[str, str]) -> list[Any]:
    """Return each release with each carrier; those that are not named are slow."""
    found = [(profile, carrier) for profile in PROFILES for carrier in ("tag", "payload")]
    return [pytest.param(*cell, marks=() if cell in in_ci else pytest.mark.slow) for cell in found]


@pytest.mark.parametrize(
    ("profile", "carrier"), cells(("broker", "tag"), ("broker", "payload"), ("3.9", "payload"))
)
def test_each_batch_has_honest_claims(profile: str, carrier: str, classes: Path) -> None:
    """Expect schema ids in payload claims, too, where each value has one."""
    kinds = ("plain", "keys", "nullkeys", "transactional", "large", "tiny", "ids")
    schema_ids = carrier == "payload"
    options, active = f"carrier={carrier}", f"carrier={carrier}"
    if schema_ids:
        options, active = f"{options};schema.ids=true", f"{active}, schema.ids=true"

    async def work() -> None:
        async with PartitionLeader() as broker, PartitionLeader(produce=(3, 8)) as older:
            wanted = [(kind, codec, broker) for kind in kinds for codec in CODECS]
            wanted += [("older", codec, older) for codec in CODECS]
            printed, errors = await produce(classes, profile, options, *wanted)
            assert errors == f"batchval-producer-agent: active: {active}\n"
            found = batches(broker)
            assert_honest(found, carrier, schema_ids=schema_ids)
            stating = [one for one in found if one.claims is not None and one.claims.schema_ids]
            all_ids = {("ids", codec) for codec in CODECS[1:]}
            assert {(one.scenario, one.codec) for one in stating} == (
                all_ids if schema_ids else set()
            )
            for (kind, codec), text in printed.items():
                assert text == f"{12 if kind == 'tiny' else RECORDS} {{}}", (kind, codec)
            assert {(one.scenario, one.codec) for one in found} == {
                (kind, codec) for kind, codec, _ in wanted[:-5]
            }
            null_keys = {
                (one.scenario, one.claims.null_keys) for one in found if one.claims is not None
            }
            assert {("keys", 2), ("nullkeys", 1), ("plain", 0), ("transactional", 0)} <= null_keys
            assert all(
                RecordBatch(one.raw).is_transactional == (one.scenario == "transactional")
                for one in found
            )
            carried = Counter(
                one.codec for one in found if one.in_payload and one.scenario != "tiny"
            )
            assert set(carried) == (set(IN_PAYLOADS) if carrier == "payload" else set())

            # before version 9 a request has no tagged fields: claims in payloads are left
            old = batches(older)
            assert all(one.tag is None for one in old)
            assert {one.codec for one in old if one.claims is not None} == set(carried)
            assert all(one.claims in (None, compute(one.raw, schema_ids=schema_ids)) for one in old)

    run(work())


@pytest.mark.parametrize(("profile", "carrier"), cells(("broker", "payload")))
def test_batches_that_come_again_have_their_own_claims(
    profile: str, carrier: str, classes: Path
) -> None:
    """Expect the same bytes of retries, other batches of a split, and another crc of a new
    epoch.
    """
    chance = random.Random(7)
    turn = itertools.count()
    failing = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        None,
    ]

    async def work() -> None:
        async with (
            PartitionLeader() as flaky,
            Refusing(
                lambda raw: next(turn) % 3 == 2 and RecordBatch(raw).records_count > 1
            ) as small,
            Refusing(lambda raw: carrier_of(raw) is not None) as full,
            Refusing(lambda raw: True) as closed,
            PartitionLeader() as bumping,
        ):
            for faults in (flaky.faults, flaky.after):
                for _ in range(400):
                    fault = chance.choice([*failing, *[ErrorCode.NONE] * 6])
                    faults.append(lambda partition, batch, fault=fault: fault)

            def invalid(partition: int, batch: RecordBatch) -> ErrorCode:
                bumping.holding = True  # until batches that follow are in flight
                return ErrorCode.INVALID_RECORD

            bumping.faults.extend([no_fault, no_fault, invalid])
            wanted: list[tuple[str, str, PartitionLeader]] = []
            for codec in CODECS:
                wanted += [
                    ("retried", codec, flaky),
                    ("alone", codec, full),
                    ("toolarge", codec, closed),
                ]
                wanted += [("split", codec, small)]
            wanted.append(("reopened", "zstd", bumping))
            letting_go = asyncio.create_task(let_go(bumping))
            printed, _ = await produce(
                classes, profile, f"carrier={carrier};schema.ids=true", *wanted
            )
            await letting_go
            for broker in (flaky, small, full, closed, bumping):
                found = batches(broker)
                assert_honest(found, carrier, schema_ids=True)
                assert all(
                    one.claims.schema_ids is not None for one in found if one.claims is not None
                )

            for codec in CODECS:
                assert printed["retried", codec] == printed["split", codec] == f"{RECORDS} {{}}"
                assert printed["alone", codec] == "1 {}"
                assert printed["toolarge", codec] == "0 {RecordTooLargeException=1}"
            again = Counter((one.codec, one.raw) for one in batches(flaky))
            assert {codec for (codec, _), times in again.items() if times > 1} == set(CODECS)

            split = batches(small)
            counts: dict[tuple[str, int, bytes | None], set[int]] = {}
            for one in split:
                batch = RecordBatch(one.raw)
                first = (one.codec, batch.producer_id, next(iter(batch.records())).value)
                counts.setdefault(first, set()).add(batch.records_count or 0)
            # the others came again as they were: at 512 bytes they compress to no less
            assert {codec for (codec, *_), sizes in counts.items() if len(sizes) > 1} & set(
                CODECS[1:]
            )
            tagged = {one.codec for one in split if one.tag is not None}
            assert tagged == set(CODECS[1:])  # what a split made has tags, of either carrier

            twice = set(IN_PAYLOADS) if carrier == "payload" else set()
            for broker in (full, closed):
                attempts = Counter(one.codec for one in batches(broker))
                assert attempts == {codec: 1 + (codec in twice) for codec in CODECS}

            crcs: dict[bytes, set[int]] = {}
            for one in batches(bumping):
                crcs.setdefault(one.raw[61:], set()).add(RecordBatch(one.raw).crc)
            assert any(len(seen) > 1 for seen in crcs.values())
            assert "InvalidRecordException" in printed["reopened", "zstd"]

    async def let_go(broker: PartitionLeader) -> None:
        while len(broker.held) < 4:
            await asyncio.sleep(0.01)
        broker.let_go()

    run(work())


def test_with_a_wrong_option_the_producer_is_stock(classes: Path) -> None:
    line = "invalid carrier 'tags': expected tag, payload or none; nothing is patched"

    async def work() -> None:
        async with PartitionLeader() as broker:
            printed, errors = await produce(
                classes, "broker", "carrier=tags", ("plain", "zstd", broker)
            )
            assert printed["plain", "zstd"] == f"{RECORDS} {{}}"
            assert errors == f"batchval-producer-agent: {line}\n"
            assert all(one.tag is None and one.claims is None for one in batches(broker))

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_a_real_broker_finds_each_claim_honest(profile: str, classes: Path) -> None:
    """Let Kafka read the records, and the broker's agent compare them with the claims."""
    kinds = ("nullkeys", "transactional")

    async def work() -> None:
        jvm = [f"-javaagent:{broker_agent()}=policy=verify"]
        config = {"num.partitions": 2, "transaction.state.log.num.partitions": 1}
        with KafkaBroker(jvm=jvm, config=config, heap="512m", profile=profile) as broker:
            wanted = [(kind, codec, broker) for kind in kinds for codec in CODECS[1:]]
            for carrier in ("tag", "payload"):
                printed, _ = await produce(classes, profile, f"carrier={carrier}", *wanted)
                assert set(printed.values()) == {f"{RECORDS} {{}}"}
            assert broker.process is not None
            counted = counters(broker.process.pid)
            assert counted["Honest"] == counted["Verified"] > 100
            for name in ("Lying", "Unjudged", "Unbound", "NoClaims", "Errors"):
                assert counted[name] == 0, counted

    run(work())


@pytest.mark.long
def test_schema_ids_are_in_the_log_and_settle_a_gates_rule(classes: Path) -> None:
    """Send the same values to a broker whose agent verifies claims, and through a proxy."""
    allowed = frozenset({7, 300, 100_001})
    rules = TopicPolicy(record_rules=RecordRules(SchemaIds(ids=allowed)))

    async def work() -> None:
        jvm = [f"-javaagent:{broker_agent()}=policy=verify"]
        trusting: dict[str, Any] = {
            "policies": TopicPolicies(rules),
            "claims_in": ClaimsPolicy.parse("trust"),
        }
        with (
            KafkaBroker(jvm=jvm, config={"num.partitions": 2}, heap="512m") as broker,
            RunningProxy(broker.bootstrap, **trusting) as gate,
        ):
            wanted: list[tuple[str, str, HasBootstrap]] = [
                ("ids", codec, broker) for codec in CODECS[1:]
            ]
            wanted += [("gated_ids", codec, gate) for codec in CODECS[1:]]
            printed, _ = await produce(
                classes, "broker", "carrier=payload;schema.ids=true", *wanted
            )
            assert set(printed.values()) == {f"{RECORDS} {{}}"}
            for codec in IN_PAYLOADS:
                logged = stored(broker, f"t-ids-{codec}")
                assert len(logged) > 1
                for raw in logged:
                    claims = read(raw)
                    assert claims == compute(raw, schema_ids=True) is not None
                    assert set(claims.schema_ids or ()) <= allowed
                assert {
                    claim for raw in logged for claim in compute(raw, schema_ids=True).schema_ids
                } == allowed

            gated = sum(len(stored(broker, f"t-gated_ids-{codec}")) for codec in CODECS[1:])
            # a batch that came before its partition had a leader was sent, and judged, again
            trusted = gate.proxy.gate.ledger.counts().trusted
            assert trusted >= gated > len(CODECS)
            assert broker.process is not None
            counted = counters(broker.process.pid)
            # the gate has verified nothing, so it passes no claims on
            assert counted["NoClaims"] == gated
            assert counted["Verified"] == counted["Honest"] > len(CODECS)

            # the rule is asked: values without ids are refused, and nothing is settled by claims
            printed, _ = await produce(
                classes, "broker", "carrier=payload;schema.ids=true", ("plain", "zstd", gate)
            )
            assert "InvalidRecordException" in printed["plain", "zstd"]
            assert gate.proxy.gate.ledger.counts().trusted == trusted
            assert gate.counters.partitions_refused["record-schema-id"] > 0

    run(work())
