"""Versions of APIs that Kafka 4 no longer knows (KIP-896), and the version that each is raised to.

    request   body of the old version  ->  body of the version that it is raised to
    answer    body of that version     ->  body of the old version

A translation is a list of steps: what a reader reads and a writer writes, field by field, as
Kafka's message definitions have them. None of these versions has compact lengths or tagged fields.
Fetch is in ``old_fetch``, since its answers hold records; ListOffsets in ``old_list_offsets``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.primitives import Reader, Writer

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CONSUMERS", "ERROR_CODES", "PRODUCERS", "Raised", "lower_answer", "raise_request"]

#: A step of a translation; the int is how many more elements of arrays may come.
TranslationStep = Callable[[Reader, Writer, int], int]
TranslationSteps = tuple[TranslationStep, ...]

#: More elements of arrays than any answer has.
UNBOUNDED: Final = 1 << 62

# ---- error codes ---------------------------------------------------------------------------------

_NONE: Final = 0
_UNKNOWN_TOPIC_OR_PARTITION: Final = 3
_LEADER_NOT_AVAILABLE: Final = 5
_NOT_LEADER_OR_FOLLOWER: Final = 6
_KAFKA_STORAGE_ERROR: Final = 56
_FENCED_LEADER_EPOCH: Final = 74
_UNKNOWN_LEADER_EPOCH: Final = 75
_OFFSET_NOT_AVAILABLE: Final = 78

#: Error codes that clients of the old versions do not know, and what they get. Each is retriable,
#: and makes a client look for the leader again.
ERROR_CODES: Final[Mapping[ApiKey, Mapping[int, int]]] = {
    # All else is as Kafka 3.9 answers versions 0 to 2. Clients repeat no request for a code that
    # they do not know, which is right for INVALID_RECORD, INVALID_TIMESTAMP and what is newer.
    ApiKey.PRODUCE: {
        # KIP-112: a log directory is offline, and another replica becomes the leader
        _KAFKA_STORAGE_ERROR: _NOT_LEADER_OR_FOLLOWER,
        # KIP-320: the leader has changed
        _FENCED_LEADER_EPOCH: _NOT_LEADER_OR_FOLLOWER,
        _UNKNOWN_LEADER_EPOCH: _NOT_LEADER_OR_FOLLOWER,
    },
    ApiKey.FETCH: {
        # FetchResponse of Kafka 3.9 does the same for versions up to 5
        _KAFKA_STORAGE_ERROR: _NOT_LEADER_OR_FOLLOWER,
        # KIP-320: the client's metadata is older, or newer, than the broker's
        _FENCED_LEADER_EPOCH: _NOT_LEADER_OR_FOLLOWER,
        _UNKNOWN_LEADER_EPOCH: _NOT_LEADER_OR_FOLLOWER,
    },
    ApiKey.LIST_OFFSETS: {
        _FENCED_LEADER_EPOCH: _NOT_LEADER_OR_FOLLOWER,
        _UNKNOWN_LEADER_EPOCH: _NOT_LEADER_OR_FOLLOWER,
        # KIP-207: a new leader does not know its high watermark yet; Kafka does the same below 5
        _OFFSET_NOT_AVAILABLE: _LEADER_NOT_AVAILABLE,
    },
}


# ---- steps ---------------------------------------------------------------------------------------


def _copy(*kinds: str) -> TranslationStep:
    """Return a step that copies fields."""
    readers = [getattr(Reader, kind) for kind in kinds]
    writers = [getattr(Writer, kind) for kind in kinds]
    pairs = tuple(zip(readers, writers, strict=True))

    def step(r: Reader, w: Writer, left: int) -> int:
        for read, write in pairs:
            write(w, read(r))
        return left

    return step


def _drop(*kinds: str) -> TranslationStep:
    """Return a step that leaves fields out."""
    readers = [getattr(Reader, kind) for kind in kinds]

    def step(r: Reader, w: Writer, left: int) -> int:
        for read in readers:
            read(r)
        return left

    return step


def _put(kind: str, value: object) -> TranslationStep:
    """Return a step that writes a field of which the other version knows nothing."""
    writer = getattr(Writer, kind)

    def step(r: Reader, w: Writer, left: int) -> int:
        writer(w, value)
        return left

    return step


def _each(*steps: TranslationStep) -> TranslationStep:
    """Return a step that translates the elements of an array, which may be null."""

    def step(r: Reader, w: Writer, left: int) -> int:
        count = r.nullable_count()
        w.count(count)
        left -= max(count, 0)
        if left < 0:
            raise ProtocolError("more topics or partitions than are allowed", r.position)
        for _ in range(count):
            for one in steps:
                left = one(r, w, left)
        return left

    return step


# ---- OffsetCommit, OffsetFetch, OffsetForLeaderEpoch ---------------------------------------------

_NO_GENERATION: Final = -1
_DEFAULT_RETENTION: Final = -1

# version 0 went to ZooKeeper: now it is the commit of a consumer without a group's membership
_OFFSET_COMMIT_0: Final = (
    _copy("string"),
    _put("int32", _NO_GENERATION),
    _put("string", ""),
    _put("int64", _DEFAULT_RETENTION),
    _each(_copy("string"), _each(_copy("int32", "int64", "nullable_string"))),
)
_OFFSET_COMMIT_1: Final = (
    _copy("string", "int32", "string"),
    _put("int64", _DEFAULT_RETENTION),
    # the commit's timestamp
    _each(
        _copy("string"), _each(_copy("int32", "int64"), _drop("int64"), _copy("nullable_string"))
    ),
)


def _no_offset_is_an_error(r: Reader, w: Writer, left: int) -> int:
    """Write offset, metadata and error code: version 0 has an error in place of no offset."""
    offset, metadata, code = r.int64(), r.nullable_string(), r.int16()
    w.int64(offset)
    w.nullable_string(metadata)
    w.int16(_UNKNOWN_TOPIC_OR_PARTITION if offset < 0 and code == _NONE else code)
    return left


_OFFSET_FETCH_ANSWER: Final = (
    _each(_copy("string"), _each(_copy("int32"), _no_offset_is_an_error)),
)

_NO_EPOCH: Final = -1
_LEADER_EPOCH_REQUEST: Final = (
    _each(_copy("string"), _each(_copy("int32"), _put("int32", _NO_EPOCH), _copy("int32"))),
)
_LEADER_EPOCH_ANSWER_0: Final = (
    _drop("int32"),  # throttle_time_ms
    _each(_copy("string"), _each(_copy("int16", "int32"), _drop("int32"), _copy("int64"))),
)
_LEADER_EPOCH_ANSWER_1: Final = (
    _drop("int32"),  # throttle_time_ms
    _each(_copy("string"), _each(_copy("int16", "int32", "int32", "int64"))),
)

# ---- topics and configurations -------------------------------------------------------------------

_CREATE_TOPICS: Final = _each(
    _copy("string", "int32", "int16"),
    _each(_copy("int32"), _each(_copy("int32"))),
    _each(_copy("string", "nullable_string")),
)
_CREATE_TOPICS_0: Final = (_CREATE_TOPICS, _copy("int32"), _put("boolean", False))  # validate_only
_CREATE_TOPICS_1: Final = (_CREATE_TOPICS, _copy("int32", "boolean"))
_CREATE_TOPICS_ANSWER_0: Final = (
    _drop("int32"),  # throttle_time_ms
    _each(_copy("string", "int16"), _drop("nullable_string")),
)
_CREATE_TOPICS_ANSWER_1: Final = (
    _drop("int32"),
    _each(_copy("string", "int16", "nullable_string")),
)
_DELETE_TOPICS: Final = (_each(_copy("string")), _copy("int32"))
_DELETE_TOPICS_ANSWER: Final = (_drop("int32"), _each(_copy("string", "int16")))

_DEFAULT_CONFIG: Final = 5


def _is_default(r: Reader, w: Writer, left: int) -> int:
    """Write where a configuration comes from: version 0 knows whether it is the default."""
    w.boolean(r.int8() == _DEFAULT_CONFIG)
    return left


_DESCRIBE_CONFIGS_REQUEST: Final = (
    _each(_copy("int8", "string"), _each(_copy("string"))),
    _put("boolean", False),  # include_synonyms
)
_DESCRIBE_CONFIGS_ANSWER: Final = (
    _copy("int32"),
    _each(
        _copy("int16", "nullable_string", "int8", "string"),
        _each(
            _copy("string", "nullable_string", "boolean"),
            _is_default,
            _copy("boolean"),
            # synonyms
            lambda r, w, left: _leave_out(r, left, "string", "nullable_string", "int8"),
        ),
    ),
)


def _leave_out(r: Reader, left: int, *kinds: str) -> int:
    """Read an array that the old version does not have."""
    count = max(r.nullable_count(), 0)
    readers = [getattr(Reader, kind) for kind in kinds]
    for _ in range(count):
        for read in readers:
            read(r)
    return left - count


# ---- access control ------------------------------------------------------------------------------

_LITERAL: Final = 3  # PatternType (KIP-290); version 0 knew no other
_PUT_PATTERN: Final = _put("int8", _LITERAL)
_ACL: Final = _copy("string", "string", "int8", "int8")
_DESCRIBE_ACLS_REQUEST: Final = (
    _copy("int8", "nullable_string"),
    _PUT_PATTERN,
    _copy("nullable_string", "nullable_string", "int8", "int8"),
)
_DESCRIBE_ACLS_ANSWER: Final = (
    _copy("int32", "int16", "nullable_string"),
    _each(_copy("int8", "string"), _drop("int8"), _each(_ACL)),
)
_CREATE_ACLS_REQUEST: Final = (_each(_copy("int8", "string"), _PUT_PATTERN, _ACL),)
_DELETE_ACLS_REQUEST: Final = (_each(*_DESCRIBE_ACLS_REQUEST),)
_DELETE_ACLS_ANSWER: Final = (
    _copy("int32"),
    _each(
        _copy("int16", "nullable_string"),
        _each(_copy("int16", "nullable_string", "int8", "string"), _drop("int8"), _ACL),
    ),
)

# ---- the table -----------------------------------------------------------------------------------


class Raised(NamedTuple):
    """The versions of an API from ``oldest`` to below ``first_kept`` are raised to ``to``.

    ``kept_from``              the first version that is not raised; 0: ``to``
    ``requests``, ``answers``  the steps for each old version, from ``oldest`` on; None where the
                               bodies are equal. Empty where another module translates.
    """

    oldest: int
    to: int
    requests: tuple[TranslationSteps | None, ...] = ()
    answers: tuple[TranslationSteps | None, ...] = ()
    kept_from: int = 0

    @property
    def first_kept(self) -> int:
        """Return the first version that the broker knows itself."""
        return self.kept_from or self.to


_ONLY_THE_NUMBER: Final = Raised(0, 1, (None,), (None,))

#: What producers need.
PRODUCERS: Final[Mapping[ApiKey, Raised]] = {ApiKey.PRODUCE: Raised(0, 3)}

#: What consumers and admin clients need. Fetch 10 is the first version whose answers may hold zstd:
#: below it Kafka answers UNSUPPORTED_COMPRESSION_TYPE for topics with compression.type=zstd.
CONSUMERS: Final[Mapping[ApiKey, Raised]] = {
    ApiKey.FETCH: Raised(0, 10, kept_from=4),
    ApiKey.LIST_OFFSETS: Raised(0, 1),
    ApiKey.OFFSET_COMMIT: Raised(0, 2, (_OFFSET_COMMIT_0, _OFFSET_COMMIT_1), (None, None)),
    ApiKey.OFFSET_FETCH: Raised(0, 1, (None,), (_OFFSET_FETCH_ANSWER,)),
    ApiKey.CREATE_TOPICS: Raised(
        0,
        2,
        (_CREATE_TOPICS_0, _CREATE_TOPICS_1),
        (_CREATE_TOPICS_ANSWER_0, _CREATE_TOPICS_ANSWER_1),
    ),
    ApiKey.DELETE_TOPICS: Raised(0, 1, (_DELETE_TOPICS,), (_DELETE_TOPICS_ANSWER,)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Raised(
        0,
        2,
        (_LEADER_EPOCH_REQUEST, _LEADER_EPOCH_REQUEST),
        (_LEADER_EPOCH_ANSWER_0, _LEADER_EPOCH_ANSWER_1),
    ),
    ApiKey.DESCRIBE_ACLS: Raised(0, 1, (_DESCRIBE_ACLS_REQUEST,), (_DESCRIBE_ACLS_ANSWER,)),
    ApiKey.CREATE_ACLS: Raised(0, 1, (_CREATE_ACLS_REQUEST,), (None,)),
    ApiKey.DELETE_ACLS: Raised(0, 1, (_DELETE_ACLS_REQUEST,), (_DELETE_ACLS_ANSWER,)),
    ApiKey.DESCRIBE_CONFIGS: Raised(
        0, 1, (_DESCRIBE_CONFIGS_REQUEST,), (_DESCRIBE_CONFIGS_ANSWER,)
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ONLY_THE_NUMBER,
    ApiKey.DESCRIBE_LOG_DIRS: _ONLY_THE_NUMBER,
    ApiKey.CREATE_DELEGATION_TOKEN: _ONLY_THE_NUMBER,
    ApiKey.RENEW_DELEGATION_TOKEN: _ONLY_THE_NUMBER,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _ONLY_THE_NUMBER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _ONLY_THE_NUMBER,
}


def raise_request(
    raised: Raised, version: int, body: Buffer, *, max_elements: int = UNBOUNDED
) -> bytes:
    """Return a request's body in the version that it is raised to. ProtocolError.

    ``max_elements``  of all its arrays together
    """
    steps = raised.requests[version - raised.oldest]
    if steps is None:
        return bytes(body)
    r = Reader(body)
    translated = _translated(steps, r, max_elements)
    r.finish()
    return translated


def lower_answer(raised: Raised, version: int, body: Buffer) -> bytes:
    """Return the body of an answer to a raised request in the client's version.

    Bytes after the answer's end are ignored. Raises ProtocolError.
    """
    steps = raised.answers[version - raised.oldest]
    return bytes(body) if steps is None else _translated(steps, Reader(body), UNBOUNDED)


def _translated(steps: TranslationSteps, r: Reader, max_elements: int) -> bytes:
    w = Writer()
    left = max_elements
    for step in steps:
        left = step(r, w, left)
    return w.getvalue()
