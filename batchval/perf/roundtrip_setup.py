"""The topics of a workload before a run: made where that is asked for, and how many partitions each
has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from batchval.errors import ErrorCode
from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata, bootstrap_nodes
from batchval.network.errors import (
    AuthenticationError,
    NetworkError,
    RequestTimeoutError,
    UnsupportedVersionError,
    broker_error,
)
from batchval.network.loops import loop_factory
from batchval.network.request import Build
from batchval.perf.consume import ConsumeError
from batchval.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from batchval.fetch import ConsumerOptions
    from batchval.perf.workload import Topic

__all__ = ["partitions_of"]

METADATA_MS = 10_000
_CREATE_MS: Final = 30_000
#: From this version -1 stands for the broker's default replication factor (KIP-464).
_DEFAULT_FACTOR_FROM: Final = 4


def partitions_of(options: ConsumerOptions, topics: Iterable[Topic]) -> dict[str, int]:
    """Return how many partitions each topic has; those with ``create`` are made where they do not
    exist.

    ConsumeError: no broker, no such topic, no permission, fewer partitions than a group has
    consumers, or other partitions than ``create`` asks for.
    """
    loop = loop_factory()()
    servers = ",".join(options.bootstrap_servers)
    try:
        return loop.run_until_complete(_partitions_of(options, list(topics)))
    except RequestTimeoutError as error:
        raise ConsumeError(f"no broker answers at {servers}: {error}") from None
    except AuthenticationError as error:
        raise ConsumeError(f"refused: {error}") from None
    except (NetworkError, ValueError) as error:
        raise ConsumeError(str(error)) from None
    finally:
        loop.close()


async def _partitions_of(options: ConsumerOptions, topics: list[Topic]) -> dict[str, int]:
    async with ConsumerNetworkClient(options.client_options()) as client:
        nodes = bootstrap_nodes(options.bootstrap_servers)
        # brokers that make topics on demand do so, as for perf produce
        metadata = ClusterMetadata(client, nodes)
        try:
            await _create(client, metadata, [topic for topic in topics if topic.create is not None])
            found = {
                topic.name: await metadata.wait_for(topic.name, METADATA_MS) for topic in topics
            }
        finally:
            metadata.close()
    for topic in topics:
        _check(topic, found[topic.name])
    return found


def _check(topic: Topic, partitions: int) -> None:
    wanted = partitions if topic.create is None else topic.create.partitions
    if wanted != partitions:
        raise ConsumeError(
            f"topic {topic.name} exists: create.partitions is {wanted}, it has {partitions}"
        )
    if topic.consumers > partitions:
        raise ConsumeError(
            f"topic {topic.name}: consumers is {topic.consumers}, it has {partitions} partitions"
        )


async def _create(
    client: ConsumerNetworkClient, metadata: ClusterMetadata, topics: list[Topic]
) -> None:
    """Make those that do not exist. A broker that is not the controller passes the request on
    (KIP-590); before Kafka 2.8 it refuses, and the others are asked.
    """
    if not topics:
        return
    await metadata.update([], METADATA_MS)
    has_factors = all(topic.create and topic.create.replication_factor > 0 for topic in topics)
    least = CreateTopicsRequest.min_version if has_factors else _DEFAULT_FACTOR_FROM
    request = Build(
        CreateTopicsRequest.api_key,
        (least, CreateTopicsRequest.max_version),
        lambda version: CreateTopicsRequest(
            [_wanted(topic) for topic in topics], _CREATE_MS, api_version=version
        ),
    )
    for node in metadata.nodes():
        try:
            answer: CreateTopicsResponse = (await client.send(node, request)).response
        except UnsupportedVersionError as error:
            raise ConsumeError(f"topics cannot be created: {error}") from None
        refused = [one for one in answer.topics if one.error_code == ErrorCode.NOT_CONTROLLER]
        if not refused:
            break
    for one in answer.topics:
        if one.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise broker_error(
                one.error_code, f"topic {one.name} cannot be created", one.error_message
            )


def _wanted(topic: Topic) -> CreatableTopic:
    assert topic.create is not None
    create = topic.create
    configs = [CreatableTopicConfig(name, value) for name, value in create.config.items()]
    return CreatableTopic(topic.name, create.partitions, create.replication_factor, configs=configs)
