"""``perf produce --claims tag``: what arrives at a broker, batch by batch, and what the gate makes
of it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.claims import TAG, compute, from_tag
from batchval.ledger import ClaimsCounts
from batchval.policy import ClaimsPolicy
from tests.support.proxy import RunningProxy
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.perf.conftest import fill
from tests.unit.perf.producer_parser import complaints
from tests.unit.producer.partition_leader import PartitionLeader


@pytest.mark.jvm
def test_the_gate_finds_them_true(broker: KafkaBroker) -> None:
    fill(broker.bootstrap, "claimed", 2, 0)
    with RunningProxy(broker.bootstrap, claims_in=ClaimsPolicy("verify")) as gate:
        done = subprocess.run(
            [
                sys.executable, "-m", "batchval", "perf", "produce", "--bootstrap-server", gate.bootstrap, "--topic",
                "claimed", "--num-records", "500", "--record-size", "100", "--compression-type", "zstd", "--claims",
                "tag", "--command-property", "batch.size=4000",
            ],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, complaints(done.stderr)) == (0, [])
        assert gate.proxy.gate.ledger is not None
        counts = gate.proxy.gate.ledger.counts()
        assert counts.batches > 3
        assert counts == ClaimsCounts(batches=counts.batches, honest=counts.batches)


async def sent(broker: PartitionLeader, *options: str) -> list[Any]:
    """The partitions' data of every Produce request of a run."""
    words = [
        "produce",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        "t",
        "--record-size",
        "100",
        *options,
    ]
    run = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "batchval",
        "perf",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(run.communicate(), 60)
    assert (run.returncode, complaints(err.decode())) == (0, [])
    assert out.startswith(b"500 records sent, ")
    return [
        data
        for request in broker.requests
        for topic in request.topic_data
        for data in topic.partition_data
    ]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_each_batch_carries_its_claims(codec: str) -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            more = ["--num-records", "500", "--compression-type", codec, "--claims", "tag"]
            found = await sent(broker, *more, "--command-property", "batch.size=4000")
            assert len(found) > 3
            for data in found:
                ((tag, carried),) = data.unknown_tagged_fields
                raw = bytes(data.records)
                assert tag == TAG
                assert from_tag(carried, RecordBatch(raw).crc) == compute(raw)
            assert sum(RecordBatch(data.records).records_count or 0 for data in found) == 500

    asyncio.run(work())


def test_without_it_no_tag_is_sent() -> None:
    async def work() -> None:
        async with PartitionLeader() as broker:
            found = await sent(broker, "--num-records", "500")
            assert all(data.unknown_tagged_fields == () for data in found)

    asyncio.run(work())


def test_a_broker_of_old_gets_none() -> None:
    """Produce before v9 has no tagged fields."""

    async def work() -> None:
        async with PartitionLeader(produce=(3, 8)) as broker:
            found = await sent(broker, "--num-records", "500", "--claims", "tag")
            assert all(data.unknown_tagged_fields == () for data in found)

    asyncio.run(work())
