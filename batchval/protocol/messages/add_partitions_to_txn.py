"""AddPartitionsToTxn: request (API key 24) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = [
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
]


@message_class
class AddPartitionsToTxnPartitionResult:
    """Of AddPartitionsToTxnResponse, versions 0 to 5."""

    partition_index: int = 0
    partition_error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.partition_error_code = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int16(self.partition_error_code)
        w.tags(self.unknown_tagged_fields)


@message_class
class AddPartitionsToTxnTopicResult:
    """Of AddPartitionsToTxnResponse, versions 0 to 5."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.results_by_partition = [AddPartitionsToTxnPartitionResult.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.structs(self.results_by_partition, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class AddPartitionsToTxnResult:
    """Of AddPartitionsToTxnResponse, versions 4 to 5."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.transactional_id = r.string()
        self.topic_results = [AddPartitionsToTxnTopicResult.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.transactional_id)
        w.structs(self.topic_results, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class AddPartitionsToTxnResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 24

    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        if version >= 4:
            self.error_code = r.int16()
            self.results_by_transaction = [AddPartitionsToTxnResult.read(r, version) for _ in range(r.count())]
        if version <= 3:
            self.results_by_topic_v3_and_below = [
                AddPartitionsToTxnTopicResult.read(r, version) for _ in range(r.count())
            ]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        if version >= 4:
            w.int16(self.error_code)
            w.structs(self.results_by_transaction, version)
        elif self.results_by_transaction:
            raise absent("ResultsByTransaction", version)
        if version <= 3:
            w.structs(self.results_by_topic_v3_and_below, version)
        elif self.results_by_topic_v3_and_below:
            raise absent("ResultsByTopicV3AndBelow", version)
        w.tags(self.unknown_tagged_fields)


@message_class
class AddPartitionsToTxnTopic:
    """Of AddPartitionsToTxnRequest, versions 0 to 5."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.partitions = r.int32_array()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.int32_array(self.partitions)
        w.tags(self.unknown_tagged_fields)


@message_class
class AddPartitionsToTxnTransaction:
    """Of AddPartitionsToTxnRequest, versions 4 to 5."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.transactional_id = r.string()
        self.producer_id = r.int64()
        self.producer_epoch = r.int16()
        self.verify_only = r.boolean()
        self.topics = [AddPartitionsToTxnTopic.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.transactional_id)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        w.boolean(self.verify_only)
        w.structs(self.topics, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 24
    response_class: ClassVar[type[AddPartitionsToTxnResponse]] = AddPartitionsToTxnResponse

    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list)
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        if version >= 4:
            self.transactions = [AddPartitionsToTxnTransaction.read(r, version) for _ in range(r.count())]
        if version <= 3:
            self.v3_and_below_transactional_id = r.string()
            self.v3_and_below_producer_id = r.int64()
            self.v3_and_below_producer_epoch = r.int16()
            self.v3_and_below_topics = [AddPartitionsToTxnTopic.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 4:
            w.structs(self.transactions, version)
        elif self.transactions:
            raise absent("Transactions", version)
        if version <= 3:
            w.string(self.v3_and_below_transactional_id)
            w.int64(self.v3_and_below_producer_id)
            w.int16(self.v3_and_below_producer_epoch)
            w.structs(self.v3_and_below_topics, version)
        elif self.v3_and_below_transactional_id:
            raise absent("V3AndBelowTransactionalId", version)
        elif self.v3_and_below_producer_id != 0:
            raise absent("V3AndBelowProducerId", version)
        elif self.v3_and_below_producer_epoch != 0:
            raise absent("V3AndBelowProducerEpoch", version)
        elif self.v3_and_below_topics:
            raise absent("V3AndBelowTopics", version)
        w.tags(self.unknown_tagged_fields)
