"""The answer to a request that fails as a whole, as Kafka's request classes make it
(``AbstractRequest.getErrorResponse``).

Most answers repeat what the request names (topics, partitions, groups, resources), each with the
error. ``_LISTS`` says which array of the request is repeated in which array of the response. Fetch
differs from Kafka's class: a consumer repeats a request whose answer has an error as a whole, and
reports that of a partition. So each partition has the error, as a broker answers for topics that
the client may not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from batchval.errors import ErrorCode
from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.field_schema import read, shape_of, write
from batchval.protocol.message import Chunks, read_header
from batchval.protocol.primitives import Reader, Writer
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import refuse

__all__ = ["SENTENCES", "error_answer", "reads_request", "unauthorized"]

Values = dict[str, Any]
#: (array of the response, array of the request, field of the response for elements that are not
#: structs)
_Level = tuple[str, str, str]

#: Fields by which requests and responses name the same thing.
_NAMES: Final = (
    *("Name", "Topic", "TopicId", "Partition", "PartitionIndex", "GroupId", "ProducerId"),
    *("ResourceType", "ResourceName", "EntityType", "EntityName"),
)
_ERROR_CODES: Final = ("ErrorCode", "PartitionErrorCode")
_ERROR_MESSAGE: Final = "ErrorMessage"
_NULL_PROTOCOL_FROM: Final = 7  # of JoinGroup
_FIRST_BATCHED_OFFSETS: Final = 8
_FIRST_TOP_LEVEL_OFFSETS: Final = 2
_LAST_CLIENT_ADD_PARTITIONS: Final = 3  # newer versions are brokers'
_SHARE_COORDINATOR: Final = 2


def _levels(text: str) -> tuple[_Level, ...]:
    """Read "Results<Topics/Partitions<Partitions:PartitionIndex"."""
    found = []
    for level in text.split("/"):
        response, _, rest = level.partition("<")
        request, _, field = rest.partition(":")
        found.append((response, request, field))
    return tuple(found)


#: What each API's answer repeats; the first whose array is in the version of the response counts.
_LISTS: Final[dict[int, tuple[tuple[_Level, ...], ...]]] = {
    key: tuple(map(_levels, texts.split()))
    for key, texts in {
        ApiKey.FETCH: "Responses<Topics/Partitions<Partitions",
        ApiKey.LIST_OFFSETS: "Topics<Topics/Partitions<Partitions",
        ApiKey.OFFSET_COMMIT: "Topics<Topics/Partitions<Partitions",
        ApiKey.OFFSET_FETCH: "Topics<Topics/Partitions<PartitionIndexes:PartitionIndex Groups<Groups",
        ApiKey.FIND_COORDINATOR: "Coordinators<CoordinatorKeys:Key",
        ApiKey.DESCRIBE_GROUPS: "Groups<Groups:GroupId",
        ApiKey.CREATE_TOPICS: "Topics<Topics",
        ApiKey.DELETE_TOPICS: "Responses<TopicNames:Name Responses<Topics",
        ApiKey.DELETE_RECORDS: "Topics<Topics/Partitions<Partitions",
        ApiKey.OFFSET_FOR_LEADER_EPOCH: "Topics<Topics/Partitions<Partitions",
        ApiKey.ADD_PARTITIONS_TO_TXN: (
            "ResultsByTopicV3AndBelow<V3AndBelowTopics/ResultsByPartition<Partitions:PartitionIndex"
        ),
        ApiKey.WRITE_TXN_MARKERS: "Markers<Markers/Topics<Topics/Partitions<PartitionIndexes:PartitionIndex",
        ApiKey.TXN_OFFSET_COMMIT: "Topics<Topics/Partitions<Partitions",
        ApiKey.CREATE_ACLS: "Results<Creations",
        ApiKey.DELETE_ACLS: "FilterResults<Filters",
        ApiKey.DESCRIBE_CONFIGS: "Results<Resources",
        ApiKey.ALTER_CONFIGS: "Responses<Resources",
        ApiKey.CREATE_PARTITIONS: "Results<Topics",
        ApiKey.DELETE_GROUPS: "Results<GroupsNames:GroupId",
        ApiKey.ELECT_LEADERS: "ReplicaElectionResults<TopicPartitions/PartitionResult<Partitions:PartitionId",
        ApiKey.INCREMENTAL_ALTER_CONFIGS: "Responses<Resources",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: "Responses<Topics/Partitions<Partitions",
        ApiKey.LIST_PARTITION_REASSIGNMENTS: "Topics<Topics/Partitions<PartitionIndexes:PartitionIndex",
        ApiKey.ALTER_CLIENT_QUOTAS: "Entries<Entries/Entity<Entity",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "Results<Users",
        ApiKey.DESCRIBE_PRODUCERS: "Topics<Topics/Partitions<PartitionIndexes:PartitionIndex",
        ApiKey.DESCRIBE_TRANSACTIONS: "TransactionStates<TransactionalIds:TransactionalId",
        ApiKey.CONSUMER_GROUP_DESCRIBE: "Groups<GroupIds:GroupId",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: "Topics<Topics",
        ApiKey.SHARE_GROUP_DESCRIBE: "Groups<GroupIds:GroupId",
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: "Results<Topics/Partitions<Partitions",
        ApiKey.READ_SHARE_GROUP_STATE: "Results<Topics/Partitions<Partitions",
        ApiKey.WRITE_SHARE_GROUP_STATE: "Results<Topics/Partitions<Partitions",
        ApiKey.DELETE_SHARE_GROUP_STATE: "Results<Topics/Partitions<Partitions",
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "Results<Topics/Partitions<Partitions",
        ApiKey.STREAMS_GROUP_DESCRIBE: "Groups<GroupIds:GroupId",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "Groups<Groups",
    }.items()
}

#: Values of an answer that are neither the definition's default nor the request's.
_CONSTANTS: Final[dict[int, Values]] = {
    ApiKey.FETCH: {"HighWatermark": -1},
    ApiKey.LIST_OFFSETS: {"Offset": -1, "Timestamp": -1},
    ApiKey.OFFSET_FETCH: {"CommittedOffset": -1, "Metadata": ""},
    ApiKey.FIND_COORDINATOR: {"NodeId": -1, "Port": -1},
    ApiKey.JOIN_GROUP: {"ProtocolName": None},
    ApiKey.DELETE_RECORDS: {"LowWatermark": -1},
    ApiKey.INIT_PRODUCER_ID: {"ProducerId": -1, "ProducerEpoch": -1},
    ApiKey.CREATE_DELEGATION_TOKEN: {
        "PrincipalType": "User",
        "PrincipalName": "ANONYMOUS",
        "TokenRequesterPrincipalType": "User",
        "TokenRequesterPrincipalName": "ANONYMOUS",
        "IssueTimestampMs": -1,
        "ExpiryTimestampMs": -1,
        "MaxTimestampMs": -1,
    },
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"Entries": None},
}


def error_answer(
    frame: memoryview,
    key: int,
    version: int,
    code: int,
    message: str | None,
    *,
    max_partitions: int = 0,
) -> Chunks:
    """Return the answer, a whole frame, to the request in a frame (its header first, without the
    length).

    ``message`` stands where the answer has a field for it. Of a Produce request ``max_partitions``
    are read (0: any number); one without an answer (acks=0) has to be ended otherwise.
    ProtocolError.
    """
    if key == ApiKey.PRODUCE:
        request = ProduceRequestView(frame, max_partitions=max_partitions, oldest=0)
        return refuse(request, [(code, (), message)] * len(request))
    api = APIS[key]
    r = Reader(frame)
    header = read_header(r, api.flexible_from)
    w = Writer(api.is_flexible(version), has_length=True)
    w.int32(header.correlation_id)
    w.tags(())
    asked = read(shape_of(f"{api.name}Request", version), r) if key in _READ else {}
    shapes = shape_of(f"{api.name}Response", version)
    error = dict.fromkeys(_ERROR_CODES, code) | {_ERROR_MESSAGE: message} | _CONSTANTS.get(key, {})
    values = dict(error)
    if key == ApiKey.FETCH:
        values["ErrorCode"] = 0
    if key == ApiKey.JOIN_GROUP and version < _NULL_PROTOCOL_FROM:
        values["ProtocolName"] = ""
    arrays = {shape.name for shape in shapes}
    values.update(_own_lists(key, asked, error) or _repeated(key, version, arrays, asked, error))
    write(shapes, w, values)
    return w.finish()


def _own_lists(key: int, asked: Values, error: Values) -> Values | None:
    """Return the arrays of the two answers that are not a copy of the request's."""
    if key == ApiKey.ALTER_REPLICA_LOG_DIRS:
        topics = (topic for one in asked["Dirs"] for topic in one["Topics"])
        return {
            "Results": [
                {
                    "TopicName": topic["Name"],
                    "Partitions": [
                        error | {"PartitionIndex": index} for index in topic["Partitions"]
                    ],
                }
                for topic in topics
            ]
        }
    if key == ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        users = {one["Name"] for one in (*asked["Deletions"], *asked["Upsertions"])}
        return {"Results": [error | {"User": user} for user in sorted(users)]}
    return None


def _repeated(key: int, version: int, arrays: set[str], asked: Values, error: Values) -> Values:
    """Return the array of the answer that repeats one of the request."""
    if key == ApiKey.OFFSET_FETCH and _FIRST_TOP_LEVEL_OFFSETS <= version < _FIRST_BATCHED_OFFSETS:
        return {}
    for levels in _LISTS.get(key, ()):
        response, request, _ = levels[0]
        if response in arrays and request in asked:
            return {response: _repeat(levels, asked[request], error)}
    return {}


def _repeat(
    levels: tuple[_Level, ...], elements: Iterable[Any] | None, error: Values
) -> list[Values]:
    (_, _, field), *below = levels
    found = []
    for element in elements or ():
        own: Mapping[str, Any] = {field: element} if field else _named(element)
        values = {**own, **error}
        if below:
            response, request, _ = below[0]
            values[response] = _repeat(tuple(below), element[request], error)
        found.append(values)
    return found


def _named(element: Values) -> Values:
    """Return what names a struct of the request; Fetch calls its partitions otherwise in the
    response.
    """
    found: Values = {name: element[name] for name in _NAMES if name in element}
    if "Partition" in found:
        found["PartitionIndex"] = found["Partition"]
    return found


#: APIs whose request is read: the answer repeats something of it.
_READ: Final = frozenset(
    {*_LISTS, ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS}
)


def reads_request(key: int) -> bool:
    """Return whether an answer needs what its request holds: its cost grows with the request's
    size.
    """
    return key in _READ or key in (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)


# ---- which error ---------------------------------------------------------------------------------

#: Kafka's own words for the errors of ``unauthorized``.
SENTENCES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}

_TOPIC: Final = frozenset(
    {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH}
)
_GROUP: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    }
)
_TRANSACTIONAL_ID: Final = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
    }
)


def unauthorized(frame: memoryview, key: int, version: int) -> ErrorCode:
    """Return the error of a client that may not send this request, as a broker chooses it.

    Clients react to the kind: a producer to its topic, a consumer to its group. ProtocolError.
    """
    if key in _TOPIC:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if key in _GROUP:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key == ApiKey.ADD_PARTITIONS_TO_TXN and version > _LAST_CLIENT_ADD_PARTITIONS:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # Kafka asks for CLUSTER_ACTION
    if key in _TRANSACTIONAL_ID:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key not in (ApiKey.INIT_PRODUCER_ID, ApiKey.FIND_COORDINATOR):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    api, r = APIS[key], Reader(frame)
    read_header(r, api.flexible_from)
    asked = read(shape_of(f"{api.name}Request", version), r)
    if key == ApiKey.FIND_COORDINATOR:
        if asked.get("KeyType", 0) == _SHARE_COORDINATOR:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if asked.get("KeyType", 0) == 1:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if asked["TransactionalId"] is None:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
