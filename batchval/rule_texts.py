"""The source of every rule: what it asks, its code, why the check exists, what to do about it.

``python tools/generate_rules.py`` writes from here the members of batchval.rules.Rule, the core's
numbers (core/format/rule_numbers.pxd) and docs/reference/rules.md. ``batchval rule`` prints the
texts; other programs import batchval.rules, which has no texts and loads faster.

Kafka's methods and their effects: Apache Kafka 4.4.0, modules clients and storage.
"""

from __future__ import annotations

from typing import NamedTuple

from batchval.errors import ErrorCode

__all__ = ["RULE_TEXTS", "RuleText"]


class RuleText(NamedTuple):
    """Explains one rule.

    ``slug``        its name in file names and metrics, in capitals the member of Rule (the members
                    of the families S, L and R are called like their ids)
    ``error_code``  Kafka's error; None where Kafka refuses nothing
    ``profiles``    ``p`` is Produce, ``l`` a log at rest
    ``summary``     what is wrong, in one line without a period
    ``why``         what goes wrong without the check
    ``advice``      what a person does about a finding
    ``kafka``       class and method of Kafka 4.4.0 that checks it; empty where Kafka does not
    ``broker``      what a broker does about such damage in its log folder; None where it does not
                    apply
    ``against_claims``  of an extra: a walk over the records finds it, and honest claims rule it out
    """

    slug: str
    error_code: ErrorCode | None
    profiles: str
    summary: str
    why: str
    advice: str
    kafka: str = ""
    broker: str | None = None
    against_claims: bool = False


_E = ErrorCode

#: Each rule, by Rule.id. Ids, slugs and numbers are for ever.
# fmt: off
RULE_TEXTS: dict[str, RuleText] = {
    "1": RuleText(
        slug="batch-incomplete", error_code=None, profiles="p",
        summary=(
            "fewer bytes left than the batch states: the iteration ends here, the tail is trimmed"
        ),
        kafka="ByteBufferLogInputStream.nextBatch",
        why=(
            "Kafka reads batches until the bytes that are left are fewer than the size field of "
            "the next batch states. It ignores that tail and trims it before the append. No error "
            "is returned, so the producer is not informed that records were dropped."
        ),
        advice=(
            "Compare the size of the buffer with the sizes that the batches state. The sender, or "
            "a proxy between sender and broker, cut the records field of its Produce request."
        ),
    ),
    "2": RuleText(
        slug="batch-size-too-small", error_code=_E.CORRUPT_MESSAGE, profiles="pl",
        summary="size field below 14",
        kafka="ByteBufferLogInputStream.nextBatchSize",
        why=(
            "A batch of any magic has at least 14 bytes after its size field. A smaller number "
            "cannot be the size of a batch, so Kafka cannot find the next batch either."
        ),
        advice=(
            "Look at the bytes at this position: they are usually not the start of a batch. In a "
            "produce request correct the encoder; in a segment treat the bytes as damage and "
            "restore the replica."
        ),
    ),
    "3": RuleText(
        slug="batch-size-overflow", error_code=_E.UNKNOWN_SERVER_ERROR, profiles="p",
        summary="size field of 2^31 - 12 or more: adding 12 overflows in Kafka",
        kafka="ByteBufferLogInputStream.nextBatchSize",
        why=(
            "Kafka adds 12 to the size field. For 2^31 - 12 and more the sum is negative, and the "
            "buffer throws IllegalArgumentException, which is not an error of Kafka's API. The "
            "broker answers -1 for the whole request, also for its other partitions."
        ),
        advice=(
            "No client writes such a size. Look for a buffer that is sent from the wrong "
            "position, or for an attack. Strict mode refuses it with S9."
        ),
    ),
    "4": RuleText(
        slug="magic-unknown", error_code=_E.CORRUPT_MESSAGE, profiles="pl",
        summary="magic is not 0, 1 or 2",
        kafka="ByteBufferLogInputStream.nextBatchSize",
        why=(
            "The magic byte selects the format of a batch. Kafka has 0, 1 and 2; anything else is "
            "an unknown format, or bytes that are not a batch."
        ),
        advice=(
            "Check that the bytes are a batch and start at its base offset. Batches of magic 3 "
            "carry claims: pass --accept-claims-header, or remove the claims with `batchval "
            "claims strip`."
        ),
    ),
    "5": RuleText(
        slug="request-without-batch", error_code=_E.INVALID_RECORD, profiles="p",
        summary="a partition of a produce request holds no batch",
        kafka="ProduceRequest.validateRecords",
        why=(
            "A partition of a produce request must carry exactly one batch. An empty records "
            "field has none."
        ),
        advice="Leave a partition without records out of the request.",
    ),
    "6": RuleText(
        slug="request-magic-not-2", error_code=_E.INVALID_RECORD, profiles="p",
        summary="the first batch of a produce request is not of magic 2",
        kafka="ProduceRequest.validateRecords",
        why=(
            "Brokers since Kafka 4.0 accept only magic 2 from producers (KIP-896, KIP-724). Magic "
            "0 and 1 have no place for headers, producer ids and transactions."
        ),
        advice=(
            "Upgrade the producer to a client that writes magic 2 (Kafka 0.11 or later; for "
            "librdkafka api.version.request=true)."
        ),
    ),
    "7": RuleText(
        slug="request-zstd-too-old", error_code=_E.UNSUPPORTED_COMPRESSION_TYPE, profiles="p",
        summary="zstd in a produce request before version 7",
        kafka="ProduceRequest.validateRecords",
        why=(
            "zstd came with version 7 of the Produce request (KIP-110). Consumers of earlier "
            "versions cannot read it, so the broker does not take it from producers of earlier "
            "versions."
        ),
        advice="Let the producer use Produce version 7 or later, or another codec.",
    ),
    "8": RuleText(
        slug="request-more-than-one-batch", error_code=_E.INVALID_RECORD, profiles="p",
        summary="a partition of a produce request holds more than one batch",
        kafka="ProduceRequest.validateRecords",
        why=(
            "Since Produce version 3 a partition of a request carries exactly one batch. The "
            "response has one base offset for each partition, so it cannot answer for two "
            "batches."
        ),
        advice=(
            "Send one batch for each partition in a request. If the bytes are a segment, use --as "
            "log."
        ),
    ),
    "9": RuleText(
        slug="raft-leader-epoch-differs", error_code=_E.INVALID_RECORD, profiles="p",
        summary="append by a raft leader: the batch has another partition leader epoch",
        kafka="UnifiedLog.analyzeAndValidateRecords",
        why=(
            "A raft leader writes its own epoch into the batches that it appends. A batch with "
            "another epoch comes from an earlier leader."
        ),
        advice=(
            "This is an error of the controller quorum, not of a producer. Check that the epoch "
            "that is passed as leader_epoch is the leader's current one."
        ),
    ),
    "10": RuleText(
        slug="base-offset-not-zero", error_code=_E.INVALID_RECORD, profiles="p",
        summary="a client's batch does not start at base offset 0",
        kafka="UnifiedLog.analyzeAndValidateRecords",
        why=(
            "The broker assigns offsets. A client must number the records of a batch from 0; "
            "another base offset shows that the batch was copied from a log without being "
            "rewritten."
        ),
        advice=(
            "Set the base offset to 0 before sending. It is not part of the CRC. If the batch "
            "comes from a segment, use --as log."
        ),
    ),
    "11": RuleText(
        slug="replica-epoch-ahead", error_code=None, profiles="p",
        summary=(
            "replication: the batch's leader epoch is above the replica's; it and all later "
            "batches are skipped"
        ),
        kafka="UnifiedLog.analyzeAndValidateRecords",
        why=(
            "A follower appends only batches of leader epochs that it knows. A batch with a "
            "higher epoch was fetched across a change of leaders (KAFKA-18723). Kafka skips it "
            "and all batches after it, without an error; the follower fetches them again."
        ),
        advice=(
            "Nothing, if the partition was changing its leader. If it lasts, compare "
            "leader-epoch-checkpoint on both brokers."
        ),
    ),
    "12": RuleText(
        slug="fields-out-of-bounds", error_code=_E.UNKNOWN_SERVER_ERROR, profiles="p",
        summary="the batch is too small for the fields that Kafka reads",
        kafka="AbstractLegacyRecordBatch",
        why=(
            "Kafka reads the fields of magic 0 and 1 without comparing the size first. If the "
            "message ends before a field, the read throws IndexOutOfBoundsException and the "
            "broker answers -1."
        ),
        advice=(
            "Correct the encoder: the message states a size that is smaller than its own header. "
            "Strict mode refuses it with S9."
        ),
    ),
    "13": RuleText(
        slug="batch-too-large", error_code=_E.MESSAGE_TOO_LARGE, profiles="p",
        summary="the batch is larger than max.message.bytes",
        kafka="UnifiedLog.analyzeAndValidateRecords",
        why=(
            "max.message.bytes bounds a batch as it is stored, after compression, header "
            "included. The default is 1,048,588 bytes. Consumers and followers reserve memory by "
            "it."
        ),
        advice=(
            "Lower batch.size or max.request.size of the producer, compress, or raise "
            "max.message.bytes of the topic together with the fetch sizes of its consumers."
        ),
    ),
    "14": RuleText(
        slug="crc-mismatch", error_code=_E.CORRUPT_MESSAGE, profiles="pl",
        summary="the checksum is wrong, or the batch is smaller than its own header",
        kafka="DefaultRecordBatch.ensureValid, LegacyRecord.ensureValid",
        why=(
            "The CRC covers everything from the attributes to the end of the batch (magic 2: "
            "CRC-32C; magic 0 and 1: CRC-32). If it differs, a byte changed after the producer "
            "computed it: in memory, on the network, on a disk. Consumers with check.crcs stop at "
            "such a batch."
        ),
        advice=(
            "In a segment: compare the batch with the replicas and restore this one from a "
            "healthy broker; check the disk and the memory of the host. In a request: look for a "
            "proxy or encoder that changes bytes without computing the CRC again."
        ),
    ),
    "15": RuleText(
        slug="codec-id-unknown", error_code=_E.UNKNOWN_SERVER_ERROR, profiles="pl",
        summary="compression codec 5, 6 or 7",
        kafka="CompressionType.forId",
        why=(
            "Bits 0 to 2 of the attributes name the codec: none, gzip, snappy, lz4, zstd. The ids "
            "5, 6 and 7 are not defined. Kafka throws IllegalArgumentException and answers -1, "
            "which a producer retries until its delivery timeout."
        ),
        advice=(
            "Correct the attributes that the encoder writes. Strict mode refuses it with S6, a "
            "code that producers do not retry."
        ),
    ),
    "16": RuleText(
        slug="offsets-out-of-order", error_code=_E.UNKNOWN_SERVER_ERROR, profiles="p",
        summary="append by a follower: last offsets do not increase",
        kafka="UnifiedLog.append",
        why=(
            "A follower stores batches at the offsets that the leader assigned. They must "
            "increase, or reads by offset would find the wrong batch."
        ),
        advice=(
            "Compare the leader's segment at these offsets: run `batchval check` on both replicas "
            "and look for L2."
        ),
    ),
    "17": RuleText(
        slug="valid-bytes-negative", error_code=_E.CORRUPT_MESSAGE, profiles="p",
        summary="the valid bytes of the records are below 0 (no input reaches this)",
        kafka="UnifiedLog.trimInvalidBytes",
        why=(
            "Kafka refuses an append whose count of valid bytes is negative. No input can cause "
            "it; the rule exists so that the list of Kafka's checks is complete."
        ),
        advice="Report the input as an error of batchval.",
    ),
    "18": RuleText(
        slug="validator-without-batch", error_code=_E.INVALID_RECORD, profiles="p",
        summary="LogValidator received no batch",
        kafka="LogValidator.getFirstBatchAndMaybeValidateNoMoreBatches",
        why="LogValidator works on the first batch. It cannot decide about an empty buffer.",
        advice="Do not append an empty buffer. For a produce request, rule 5 answers first.",
    ),
    "19": RuleText(
        slug="validator-more-than-one-batch", error_code=_E.INVALID_RECORD, profiles="p",
        summary="LogValidator received more than one batch of magic 2, or of compressed records",
        kafka="LogValidator.getFirstBatchAndMaybeValidateNoMoreBatches",
        why=(
            "A batch of magic 2, and a compressed one, is stored as one unit with one header. "
            "LogValidator assigns offsets for one such batch only."
        ),
        advice="Append one batch at a time, as a coordinator does.",
    ),
    "20": RuleText(
        slug="zstd-before-ibp-2-1", error_code=_E.UNSUPPORTED_COMPRESSION_TYPE, profiles="p",
        summary="zstd under an inter-broker protocol before 2.1 (gone in Kafka 4)",
        kafka="LogValidator (before 4.0)",
        why=(
            "Before inter-broker protocol 2.1 a follower could not read zstd, so a leader did not "
            "store it. Kafka 4 has no such protocol any more."
        ),
        advice=(
            "Nothing for supported versions. On an old cluster raise "
            "inter.broker.protocol.version, or choose another codec."
        ),
    ),
    "21": RuleText(
        slug="batch-magic-differs", error_code=_E.INVALID_RECORD, profiles="p",
        summary="the batch's magic is not that of the first batch",
        kafka="LogValidator.validateBatch",
        why=(
            "All batches of one append must have one format, because the path (in place, or "
            "converted) is chosen by the first one."
        ),
        advice="Send batches of one magic only.",
    ),
    "22": RuleText(
        slug="offset-range-empty", error_code=_E.INVALID_RECORD, profiles="p",
        summary="last offset minus base offset plus 1 is not positive",
        kafka="LogValidator.validateBatch",
        why=(
            "The offsets of a batch run from its base offset to base offset plus last offset "
            "delta. A range of no offsets, or one that overflows 64 bits, cannot hold a record."
        ),
        advice="Correct last_offset_delta in the encoder: it is the number of records minus 1.",
    ),
    "23": RuleText(
        slug="records-count-not-positive", error_code=_E.INVALID_RECORD, profiles="p",
        summary="the records count of a client's batch is 0 or negative",
        kafka="LogValidator.validateBatch",
        why=(
            "A client's batch must hold at least one record. Empty batches exist only in logs, "
            "where the cleaner keeps them for a producer's last sequence."
        ),
        advice=(
            "Do not send empty batches. If the batch comes from a compacted segment, use --as "
            "log."
        ),
    ),
    "24": RuleText(
        slug="records-count-unlike-offsets", error_code=_E.INVALID_RECORD, profiles="p",
        summary="last offset delta plus 1 is not the records count",
        kafka="LogValidator.validateBatch",
        why=(
            "A producer numbers its records without gaps, so the number of records is last offset "
            "delta plus 1. If both differ, one of them is wrong, and the offsets that the broker "
            "assigns would be wrong too."
        ),
        advice=(
            "Correct records_count or last_offset_delta in the encoder. If the batch comes from a "
            "compacted segment, use --as log."
        ),
    ),
    "25": RuleText(
        slug="control-batch-by-client", error_code=_E.INVALID_RECORD, profiles="p",
        summary="a client set the control bit",
        kafka="LogValidator.validateBatch",
        why=(
            "Control batches hold the markers that end transactions. Only the broker writes them; "
            "a client could end the transaction of another one with them."
        ),
        advice=(
            "Clear bit 5 of the attributes. A mirror must not copy control batches: the target "
            "cluster writes its own."
        ),
    ),
    "26": RuleText(
        slug="base-sequence-negative", error_code=_E.INVALID_RECORD, profiles="p",
        summary="a producer id without a base sequence",
        kafka="LogValidator.validateBatch",
        why=(
            "A batch with a producer id belongs to an idempotent producer, and its base sequence "
            "is how the broker finds duplicates. Without a sequence it could be stored twice."
        ),
        advice=(
            "Set the base sequence, or write producer id -1 for a producer that is not "
            "idempotent."
        ),
    ),
    "27": RuleText(
        slug="transaction-before-magic-2",
        error_code=_E.UNSUPPORTED_FOR_MESSAGE_FORMAT, profiles="p",
        summary="the transactional bit, and a target magic below 2",
        kafka="LogValidator.validateBatch",
        why=(
            "Magic 0 and 1 have no transactional bit, so a topic that stores them cannot hold a "
            "batch of a transaction."
        ),
        advice=(
            "Set the topic's message format to 2, or turn transactions off. Brokers since 4.0 "
            "always store magic 2."
        ),
    ),
    "28": RuleText(
        slug="producer-id-before-magic-2",
        error_code=_E.UNSUPPORTED_FOR_MESSAGE_FORMAT, profiles="p",
        summary="a producer id, and a target magic below 2",
        kafka="LogValidator.validateBatch",
        why=(
            "Magic 0 and 1 have no producer id, so the broker could not recognise duplicates "
            "later."
        ),
        advice=(
            "Set the topic's message format to 2, or turn idempotence off. Brokers since 4.0 "
            "always store magic 2."
        ),
    ),
    "29": RuleText(
        slug="record-malformed", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a record does not parse, or the batch holds more or fewer than it states",
        kafka="DefaultRecord.readFrom, DefaultRecord.readPartiallyFrom",
        why=(
            "The broker walks over all records before it stores a batch of a client. A length "
            "that leaves the batch, a varint that is too long, a header count that is too large, "
            "or a number of records that differs from the header's would make consumers fail "
            "later. A varint that does not fit can be answered with -1."
        ),
        advice=(
            "Decode the batch with `batchval dump --records` to see the first record that fails, "
            "and correct the encoder. In a segment restore the replica from a healthy broker."
        ),
    ),
    "30": RuleText(
        slug="wrapper-malformed", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a compressed message of magic 0 or 1 that holds no readable message set",
        kafka="AbstractLegacyRecordBatch.DeepRecordsIterator",
        why=(
            "A compressed message of magic 0 or 1 wraps a message set. Kafka reads all of it to "
            "assign offsets: a wrapper without a value, without an inner message, of another "
            "magic, or with zstd cannot be read."
        ),
        advice="Correct the encoder, or upgrade the producer to a client that writes magic 2.",
    ),
    "31": RuleText(
        slug="inner-size-too-small", error_code=_E.CORRUPT_MESSAGE, profiles="pl",
        summary="an inner message of magic 0 or 1 states a size below 14",
        kafka="AbstractLegacyRecordBatch.DataLogInputStream.nextBatch",
        why=(
            "The messages within a compressed message of magic 0 or 1 have size fields of their "
            "own. A message has at least 14 bytes after it."
        ),
        advice=(
            "Correct the encoder, or upgrade the producer to a client that writes magic 2. In a "
            "segment restore the replica from a healthy broker."
        ),
    ),
    "32": RuleText(
        slug="inner-codec-set", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="an inner message of magic 0 or 1 has a codec set",
        kafka=(
            "AbstractLegacyRecordBatch.DeepRecordsIterator, "
            "LogValidator.validateRecordCompression"
        ),
        why=(
            "A compressed message of magic 0 or 1 must not hold another compressed message. "
            "Consumers open one level only."
        ),
        advice="Compress once: the inner messages need codec 0 in their attributes.",
    ),
    "33": RuleText(
        slug="record-magic-differs", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="an inner message's magic is not its wrapper's",
        kafka="LogValidator.validateRecord",
        why=(
            "All messages in a wrapper have the wrapper's format. A mixture would give records "
            "without timestamps among records with them."
        ),
        advice="Write inner messages with the magic of the wrapper.",
    ),
    "34": RuleText(
        slug="inner-crc-mismatch", error_code=_E.CORRUPT_MESSAGE, profiles="pl",
        summary="the checksum of an inner message of magic 0 or 1 is wrong",
        kafka="LegacyRecord.ensureValid",
        why=(
            "Each inner message of magic 0 and 1 has a CRC of its own. If it differs, bytes "
            "changed before the wrapper was compressed, and the wrapper's own CRC cannot show it."
        ),
        advice=(
            "Look at the producer's memory and its encoder. In a segment compare the replicas: "
            "all of them hold what the producer sent."
        ),
    ),
    "35": RuleText(
        slug="key-missing", error_code=_E.INVALID_RECORD, profiles="p",
        summary="a record without a key for a compacted topic",
        kafka="LogValidator.validateKey",
        why=(
            "A compacted topic keeps the last record of every key. A record without a key could "
            "never be removed, and the log cleaner would fail."
        ),
        advice="Set a key on every record of this topic, or take compact out of cleanup.policy.",
    ),
    "36": RuleText(
        slug="timestamp-out-of-range", error_code=_E.INVALID_TIMESTAMP, profiles="p",
        summary="a record's timestamp is outside what the topic allows around now",
        kafka="LogValidator.validateTimestamp",
        why=(
            "Retention and lookups by time use the timestamp of a record. "
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms bound how far it "
            "may be from the broker's clock. Since Kafka 4.0 the default for the future is one "
            "hour (KIP-1030)."
        ),
        advice=(
            "Check the producer's clock and the unit of its timestamps (milliseconds since 1970). "
            "For imports of old data raise message.timestamp.before.max.ms. With batchval, --now "
            "sets the clock."
        ),
    ),
    "37": RuleText(
        slug="timestamp-type-by-producer", error_code=_E.INVALID_TIMESTAMP, profiles="p",
        summary="the producer set the LogAppendTime bit",
        kafka="LogValidator.validateTimestamp",
        why=(
            "LogAppendTime means that the broker set the timestamp. Only the broker may set this "
            "bit. Up to Kafka 3.5 every such record is refused; later only those of a topic with "
            "LogAppendTime, and those whose timestamp is -1."
        ),
        advice="Clear bit 3 of the attributes. If the batch comes from a segment, use --as log.",
    ),
    "38": RuleText(
        slug="record-errors", error_code=_E.INVALID_RECORD, profiles="p",
        summary="records were refused for more than one reason",
        kafka="LogValidator.processRecordErrors",
        why=(
            "Kafka collects the refusals of single records and answers once for the batch "
            "(KIP-467). The batch broke more than one of the rules 32, 33 and 35 to 37. The code "
            "is INVALID_TIMESTAMP if a timestamp is among them."
        ),
        advice=(
            "Read record_errors of the result (the response of Produce version 8 has them too) "
            "and correct the records that it lists."
        ),
    ),
    "39": RuleText(
        slug="rebuild-impossible", error_code=_E.UNKNOWN_SERVER_ERROR, profiles="p",
        summary="the batch would have to be rebuilt, and Kafka's builder refuses its content",
        kafka="MemoryRecordsBuilder",
        why=(
            "The broker must rebuild the batch to change its codec or format. Its builder has "
            "limits that the checks before it do not have: no negative timestamps except -1, no "
            "headers or zstd for magic 0 and 1. It throws, and the broker answers -1."
        ),
        advice=(
            "Let the producer use the topic's compression.type, so that nothing is rebuilt, or "
            "correct the timestamps. Strict mode refuses it with an extra that names the cause."
        ),
    ),
    "40": RuleText(
        slug="rebuilt-batch-too-large", error_code=_E.MESSAGE_TOO_LARGE, profiles="p",
        summary="the rebuilt batch is larger than max.message.bytes",
        kafka="UnifiedLog.append",
        why=(
            "Recompression can make a batch larger. Kafka compares the size with "
            "max.message.bytes again before it writes."
        ),
        advice=(
            "Let the producer use the topic's compression.type, set the topic to "
            "compression.type=producer, or raise max.message.bytes."
        ),
    ),
    "41": RuleText(
        slug="offset-below-log-end", error_code=_E.UNKNOWN_SERVER_ERROR, profiles="p",
        summary=(
            "append by a follower or a raft leader: the first offset is below the end of the log"
        ),
        kafka="UnifiedLog.append",
        why=(
            "A follower or raft leader appends at the end of its log. An offset below the end "
            "would overwrite history."
        ),
        advice=(
            "Compare the ends of both logs. A follower truncates to the leader's epoch before it "
            "fetches again."
        ),
    ),
    "42": RuleText(
        slug="leader-epoch-invalid", error_code=_E.UNKNOWN_SERVER_ERROR, profiles="p",
        summary="the partition leader epoch or the base offset to be stored is below 0",
        kafka="LeaderEpochFileCache.assign",
        why=(
            "The broker records at which offset every leader epoch began. Negative epochs and "
            "offsets cannot be recorded."
        ),
        advice=(
            "Check the leader epoch or the first offset that is passed. In a replicated batch the "
            "leader wrote a damaged header."
        ),
    ),
    "43": RuleText(
        slug="producer-epoch-too-low", error_code=_E.INVALID_PRODUCER_EPOCH, profiles="p",
        summary="a producer id with an epoch below -1, or below that of the batch before",
        kafka="ProducerAppendInfo.checkProducerEpoch",
        why=(
            "The epoch of a producer id increases when the producer is replaced, and fences the "
            "earlier one. A batch with a lower epoch comes from an instance that must not write "
            "any more."
        ),
        advice=(
            "Stop the earlier instance, or give each instance its own transactional.id. In an "
            "encoder write the epoch from the InitProducerId response."
        ),
    ),
    "44": RuleText(
        slug="transaction-marker-malformed", error_code=_E.INVALID_RECORD, profiles="p",
        summary=(
            "a control batch with a producer id does not start with a transaction marker, or comes "
            "from a raft leader"
        ),
        kafka="EndTransactionMarker.deserialize, ProducerAppendInfo.appendEndTxnMarker",
        why=(
            "The first record of a control batch with a producer id decides whether a transaction "
            "was committed or aborted. If it cannot be read, readers with read_committed cannot "
            "go on."
        ),
        advice=(
            "Only transaction coordinators write markers. Check who appended the batch; in a log "
            "compare the replicas."
        ),
    ),
    "45": RuleText(
        slug="coordinator-epoch-too-low",
        error_code=_E.TRANSACTION_COORDINATOR_FENCED, profiles="p",
        summary="a transaction marker with a coordinator epoch below -1",
        kafka="ProducerAppendInfo.checkCoordinatorEpoch",
        why=(
            "A marker carries the epoch of the transaction coordinator, so that an earlier "
            "coordinator cannot end transactions. Below -1 it is not an epoch."
        ),
        advice="This is an error of the coordinator, or a marker that was not written by one.",
    ),
    "46": RuleText(
        slug="transaction-not-ended", error_code=_E.INVALID_TXN_STATE, profiles="p",
        summary=(
            "a batch outside a transaction follows one inside it, of the same producer in one "
            "append"
        ),
        kafka="ProducerAppendInfo.appendDataBatch",
        why=(
            "While the transaction of a producer is open, all its batches must belong to it. A "
            "batch outside it would be visible before the transaction is decided."
        ),
        advice=(
            "Commit or abort the transaction before sending a batch without the transactional "
            "bit."
        ),
    ),
    "47": RuleText(
        slug="offsets-outside-segment", error_code=_E.UNKNOWN_SERVER_ERROR, profiles="p",
        summary=(
            "the last offset is below the base offset of the segment, more than 2^31 - 1 above it, "
            "or 2^63 - 1"
        ),
        kafka="LogSegment.append",
        why=(
            "A segment stores offsets relative to its base offset as 32-bit integers. Offsets "
            "below the base, or more than 2^31 - 1 above it, do not fit its index."
        ),
        advice=(
            "Check last_offset_delta and the first offset that is passed. The broker starts a new "
            "segment before offsets grow too far."
        ),
    ),
    "S1": RuleText(
        slug="unused-attribute-bits", error_code=_E.INVALID_RECORD, profiles="p",
        summary="a client set one of the attribute bits 6-15",
        why=(
            "Bits 7 to 15 of the attributes have no meaning yet, and bit 6 (delete horizon) "
            "belongs to the log cleaner. Kafka stores what a client sets there. A later version "
            "can give such a bit a meaning that these records do not have, and the cleaner reads "
            "bit 6 as its own."
        ),
        advice=(
            "Clear the bits in the encoder. To only observe, set this extra to report (--extra "
            "S1=report)."
        ),
    ),
    "S2": RuleText(
        slug="bytes-behind-batch", error_code=_E.INVALID_RECORD, profiles="p",
        summary="bytes after the last batch, which Kafka trims without an error",
        why=(
            "Kafka drops bytes after the last whole batch and reports success. The producer "
            "believes that these records are stored: data is lost without an error."
        ),
        advice=(
            "Look for a sender or proxy that cuts requests or miscounts their size. To only "
            "observe, set this extra to report."
        ),
    ),
    "S3": RuleText(
        slug="offset-deltas-not-sequential", error_code=_E.INVALID_RECORD, profiles="pl",
        summary=(
            "offset deltas are not 0 to n - 1 (at rest: not ascending within last_offset_delta)"
        ),
        against_claims=True,
        why=(
            "Consumers, mirrors and indexes count on offsets that follow one another. Kafka "
            "stores an uncompressed batch with any deltas, so records can share an offset or lie "
            "outside the range in the header. In a compressed batch Kafka answers -1."
        ),
        advice=(
            "Number offset deltas from 0 in the encoder. At rest the cleaner leaves gaps, so "
            "there deltas must only ascend."
        ),
    ),
    "S4": RuleText(
        slug="record-length-unlike-record", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a record's stated length is not its length",
        against_claims=True,
        why=(
            "In a compressed batch Kafka's fast parser reads the length of a record and does not "
            "use it. Clients that trust the length (librdkafka, Go clients) then read the next "
            "record from the wrong place."
        ),
        advice=(
            "Write the real length of each record. Records that are already stored can be read by "
            "clients that ignore the length, such as Kafka's own."
        ),
    ),
    "S5": RuleText(
        slug="record-fields-outside-format", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a length below -1, record attribute bits, or a header key that is not UTF-8",
        against_claims=True,
        why=(
            "Kafka reads every negative length as null, ignores attributes of records, and does "
            "not decode header keys. Other clients refuse such records, and one of them blocks "
            "their consumers."
        ),
        advice="Write -1 for null, 0 for the attributes of a record, and UTF-8 for header keys.",
    ),
    "S6": RuleText(
        slug="codec-not-defined", error_code=_E.UNSUPPORTED_COMPRESSION_TYPE, profiles="pl",
        summary="compression codec 5, 6 or 7",
        why=(
            "The ids 5, 6 and 7 are not codecs. Kafka answers -1 (rule 15), which producers retry "
            "until their delivery timeout. This extra answers with a code that producers do not "
            "retry."
        ),
        advice="Correct bits 0 to 2 of the attributes.",
    ),
    "S7": RuleText(
        slug="compressed-stream-damaged", error_code=_E.INVALID_RECORD, profiles="pl",
        summary=(
            "the compressed stream is damaged, mislabelled or overlong, halts before its end, or "
            "asks for a zstd window above 2^27"
        ),
        against_claims=True,
        why=(
            "Kafka reads only as much of a stream as the records need. It does not see damage "
            "after that, frames that it skips, or bytes after the end; other decoders do, and "
            "consumers then stop at this offset. For other damage Kafka answers -1, which "
            "producers retry."
        ),
        advice=(
            "Check that the codec in the attributes is the codec of the payload, and that the "
            "compressor finished its stream. In a segment restore the replica from a healthy "
            "broker."
        ),
    ),
    "S8": RuleText(
        slug="decompressed-too-large", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="the batch decompresses to more than max_decompressed_bytes",
        why=(
            "A few kB can decompress to gigabytes. Kafka bounds one record, not the batch, and "
            "not by default, so such a batch fills the memory of brokers and consumers."
        ),
        advice=(
            "If the batch is legitimate raise --max-decompressed-bytes (max_decompressed_bytes). "
            "If not, find its sender. This extra always refuses: what was not decompressed cannot "
            "be accepted."
        ),
    ),
    "S9": RuleText(
        slug="broker-would-fail", error_code=_E.INVALID_RECORD, profiles="p",
        summary="other batches that Kafka answers with UNKNOWN_SERVER_ERROR",
        why=(
            "Kafka answers -1 where a class throws an exception that its API does not know. "
            "Producers retry -1 until their delivery timeout, and the cause is only in the "
            "broker's log. This extra refuses at once and names the cause in its reason."
        ),
        advice="Read the reason, and look at the rule that kafka mode reports (--mode kafka).",
    ),
    "S10": RuleText(
        slug="timestamp-below-minus-one", error_code=_E.INVALID_TIMESTAMP, profiles="pl",
        summary="a record's timestamp is below -1",
        against_claims=True,
        why=(
            "A negative timestamp except -1 (unknown) is not a time. Kafka stores it where it "
            "does not rebuild the batch, and answers -1 where it does (rule 39). Retention and "
            "lookups by time treat it as very old."
        ),
        advice="Write milliseconds since 1970, or -1. Look for a timestamp that overflowed.",
    ),
    "L1": RuleText(
        slug="partial-batch", error_code=_E.CORRUPT_MESSAGE, profiles="l",
        summary="a batch that the segment does not hold whole, or zeros to the end",
        why=(
            "The segment ends in the middle of a batch, or with zeros. A broker that stops "
            "cleanly leaves neither. After a crash Kafka's recovery truncates the log here; the "
            "active segment of a running broker shows it for a moment, and segments with "
            "preallocate=true end with zeros."
        ),
        advice=(
            "Nothing for the active segment of a running broker, or for a preallocated one. "
            "Otherwise look for a full disk, a crash or an incomplete copy, and compare the size "
            "with the replicas."
        ),
        broker=(
            "Nothing for the active segment. At a start after an unclean shutdown it truncates "
            "the log here, if that is above the recovery point; what follows is deleted. Below it "
            "the broker serves what comes before, and fetches of what follows fail."
        ),
    ),
    "L2": RuleText(
        slug="offsets-going-back", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="a batch's offsets overlap the batch before, or go back",
        why=(
            "Offsets of a log increase from batch to batch. If they go back, one offset names two "
            "records, and reads by offset find the first one only."
        ),
        advice=(
            "Compare with the other replicas. Look for files of two partitions in one folder, a "
            "restored backup, or a copy that was appended twice."
        ),
    ),
    "L3": RuleText(
        slug="offset-gap", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="offsets are missing between two batches of a topic that is not compacted",
        why=(
            "Without compaction every offset is in the log once. A gap means that records were "
            "lost, or that the topic is compacted (or was)."
        ),
        advice=(
            "If the topic is or was compacted pass --cleanup-policy compact. Otherwise compare "
            "with the other replicas and look for a segment that is missing."
        ),
    ),
    "L4": RuleText(
        slug="leader-epoch-going-back", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="the partition leader epoch is below that of the batch before",
        why=(
            "Leader epochs never decrease along a log. If they do, two leaders wrote into the "
            "same range, and followers truncate at the wrong offset."
        ),
        advice=(
            "Compare leader-epoch-checkpoint and this range on all replicas. Look for an unclean "
            "leader election at this time."
        ),
    ),
    "L5": RuleText(
        slug="sequence-gap", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="a producer's base sequence does not follow its last one",
        why=(
            "The sequences of an idempotent producer are consecutive in a partition. A gap means "
            "that a batch is missing, unless the cleaner or retention removed it."
        ),
        advice=(
            "If the topic is or was compacted pass --cleanup-policy compact. Otherwise look for "
            "damage (L1, 14) before this position, and compare with the other replicas."
        ),
    ),
    "L6": RuleText(
        slug="lying-index", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary=(
            "an entry of .index does not point at the batch that it names, or entries are out of "
            "order or missing"
        ),
        why=(
            "A broker starts to read at the position that the index names. A wrong entry makes it "
            "read from the middle of a batch, or miss records."
        ),
        advice=(
            "The log itself is whole. Stop the broker, delete the .index file and start it: Kafka "
            "builds the index again from the log."
        ),
        broker=(
            "Uses the wrong entries, also after a restart: the index is not checked. Fetches then "
            "fail, or skip records without an error. A missing .index is built again at a start, "
            "together with .timeindex and .txnindex; so are those of segments above the recovery "
            "point after an unclean shutdown."
        ),
    ),
    "L7": RuleText(
        slug="lying-claims", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="the records contradict a batch-level claim",
        why=(
            "Claims in a header of magic 3 spare a broker the decompression, so they must be true "
            "of the records. This one is not: the sender computed it wrongly, or lies. "
            "In a payload claims change no verdict of a broker, and only --trust-claims makes a "
            "lie a finding."
        ),
        advice=(
            "Run `batchval claims show` to see what would be true, and write the batch again with "
            "`batchval claims strip` and `batchval claims attach`. Do not trust the claims of "
            "this sender."
        ),
    ),
    "L8": RuleText(
        slug="segment-name-differs", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary=(
            "the name of a segment is not the base offset that its batches and its neighbours "
            "imply"
        ),
        why=(
            "Kafka finds the segment of an offset by the names of the files, and the offsets in "
            "its indexes are relative to the name. A name above the base offset hides records "
            "from reads that start in the segment before. A name below it shadows the end of that "
            "segment."
        ),
        advice=(
            "Compare the name with the base offset of the first batch and with the segment "
            "before. Stop the broker, give the segment and its indexes the right name, delete the "
            ".index file, and start the broker. For a segment that is missing restore the "
            "replica."
        ),
        broker=(
            "Serves wrong data. It does not compare names with batches. Fetches of offsets that a "
            "name hides skip ahead to the next batch without an error, and a segment that is "
            "missing is a gap that consumers pass over."
        ),
    ),
    "L9": RuleText(
        slug="time-index-differs", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary=(
            "an entry of .timeindex is out of order or not true of a batch, or entries are missing"
        ),
        why=(
            "Lookups by time (offsetsForTimes), time-based retention and roll by time use the "
            "time index. A wrong entry starts a consumer at the wrong offset, or makes retention "
            "delete a segment too early or never."
        ),
        advice=(
            "The log itself is whole. Stop the broker, delete the .index and .timeindex files of "
            "the segment, and start it: Kafka builds both again from the log. Deleting the "
            ".timeindex alone leaves it empty."
        ),
        broker=(
            "Uses the wrong entries, also after a restart: it builds the index again only for "
            "segments above the recovery point after an unclean shutdown, and for those whose "
            ".index is missing. A missing .timeindex becomes an empty one: lookups then read the "
            "segment from its start, and retention uses the time of the file."
        ),
    ),
    "L10": RuleText(
        slug="transaction-index-differs", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary=(
            ".txnindex does not hold the aborted transactions that the markers of the segment end"
        ),
        kafka="TransactionIndex.sanityCheck",
        why=(
            "A broker tells read_committed consumers by this index which transactions were "
            "aborted. Without an entry they receive records that were aborted; a wrong entry "
            "hides records that were committed."
        ),
        advice=(
            "The log itself is whole. Stop the broker, delete the .index file of the segment, and "
            "start it: Kafka then builds .index, .timeindex and .txnindex again. Deleting the "
            ".txnindex alone does not help. Consumers may already have read aborted records."
        ),
        broker=(
            "Serves wrong data: read_committed consumers receive aborted records. A missing "
            ".txnindex means that nothing was aborted. At a start the broker only checks that no "
            "transaction ends below the segment's base offset; then it builds the index again. A "
            "version above 0 fails the log's loading and takes the log folder offline."
        ),
    ),
    "L11": RuleText(
        slug="producer-snapshot-damaged", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="a producer snapshot has a wrong checksum, version, structure or name",
        kafka="ProducerStateManager.readSnapshot",
        why=(
            "A snapshot holds the last sequence, the epoch and the open transaction of each "
            "producer id. A broker starts with it and reads only what follows. If it is wrong, "
            "duplicates are accepted, or the batches of a producer are refused."
        ),
        advice=(
            "Nothing for one snapshot of several. The broker deletes a damaged snapshot at its "
            "next start and reads the log from the snapshot before. Look for other damage on the "
            "same disk."
        ),
        broker=(
            "Repairs it at its next start: it logs a warning, deletes the snapshot, and builds "
            "the state from the snapshot before, or from the start of the log. If the log no "
            "longer holds a producer's batches, its sequences and epoch are forgotten."
        ),
    ),
    "L12": RuleText(
        slug="epoch-checkpoint-differs", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="leader-epoch-checkpoint is malformed, out of order, or not true of the batches",
        kafka="CheckpointFile.read, LeaderEpochFileCache.assign",
        why=(
            "Followers and consumers ask by leader epoch where a log ends, and truncate there. A "
            "wrong start offset makes a follower keep records that the leader does not have, or "
            "lose records that it has."
        ),
        advice=(
            "Compare the file with those of the other replicas. Stop the broker and restore the "
            "entries; for a follower it is safest to delete the partition's folder and let it "
            "replicate again."
        ),
        broker=(
            "A file that does not parse takes the whole log folder offline, and a broker with one "
            "log folder stops. Entries that parse are used as they are. Only entries below the "
            "log start offset or above the log end offset are removed at a start."
        ),
    ),
    "L13": RuleText(
        slug="log-checkpoint-differs", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="an offset checkpoint is malformed, or names an offset that the log does not have",
        kafka="CheckpointFile.read, LogLoader.recoverLog",
        why=(
            "The checkpoints say what was flushed, what is committed, where the log starts, and "
            "how far the cleaner came. An offset beyond the end of the log means that the end is "
            "missing, or that the file belongs to another log."
        ),
        advice=(
            "Compare with the other replicas: records may be lost at the end of this one. A "
            "recovery-point-offset-checkpoint that does not parse can be deleted: the broker then "
            "recovers all segments after an unclean shutdown."
        ),
        broker=(
            "Recovery point and high watermark: limited to the log end offset at a start, without "
            "an error. Log start beyond the log end: the broker DELETES all segments of the "
            "partition at its start. A file that does not parse is logged: recovery points and "
            "log starts then count as 0."
        ),
    ),
    "L14": RuleText(
        slug="partition-metadata-damaged", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="partition.metadata does not hold a version and a topic id",
        kafka="PartitionMetadataReadBuffer.read",
        why=(
            "The file binds the folder to a topic id. Without it a broker cannot see that a "
            "folder belongs to an earlier topic of the same name."
        ),
        advice=(
            "Write the file again with the topic id that `kafka-topics --describe` shows "
            "(`version: 0` and `topic_id: ID`), or restore it from another replica: the id is the "
            "same."
        ),
        broker=(
            "A file that does not parse takes the whole log folder offline, and a broker with one "
            "log folder stops. A missing file is written again."
        ),
    ),
    "L15": RuleText(
        slug="stored-leader-epoch-invalid", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="the partition leader epoch of a stored batch is below -1",
        why=(
            "The leader epoch is not under the checksum of the batch. -1 means unknown; no broker "
            "writes anything below. A wrong epoch misleads followers when they truncate."
        ),
        advice=(
            "Compare the batch with the other replicas. The records can be read. To repair the "
            "replica delete its folder and let the broker replicate it again."
        ),
        broker=(
            "Serves the batch as it is. Recovery and the epoch cache ignore negative epochs. A "
            "follower refuses nothing either: it stores the batch and skips the cache."
        ),
    ),
    "L16": RuleText(
        slug="transaction-hanging", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="a transaction is open for longer than a transaction coordinator allows",
        why=(
            "The last stable offset does not pass an open transaction: read_committed consumers "
            "wait there, and the cleaner does not go on. A coordinator aborts a transaction after "
            "transaction.timeout.ms, at most transaction.max.timeout.ms."
        ),
        advice=(
            "Find it with `kafka-transactions.sh find-hanging` and abort it with "
            "`kafka-transactions.sh abort`."
        ),
        broker=(
            "Waits for ever. Partition leaders do not abort transactions, and the coordinator "
            "knows nothing of a hanging one. Kafka 4 prevents most of them (KIP-890)."
        ),
    ),
    "L17": RuleText(
        slug="replicas-differ", error_code=_E.KAFKA_STORAGE_ERROR, profiles="l",
        summary="replicas hold different batches between their log starts and the high watermark",
        why=(
            "Replicas hold the same batches for the same offsets. Where they differ, consumers "
            "read other records after the next leader election."
        ),
        advice=(
            "Trust the replicas that agree with the majority and with valid checksums. Stop the "
            "other broker, delete the partition's folder there, and let it replicate again."
        ),
        broker=(
            "Does not notice it. Followers compare leader epochs and offsets, never bytes."
        ),
    ),
    "R1": RuleText(
        slug="record-schema-id", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a key, value or header holds no allowed schema id",
        why=(
            "Consumers look up the schema of a record by its id. A record without an id, or with "
            "the id of another subject, stops a consumer that deserializes it."
        ),
        advice=(
            "Use the serializer of the schema registry for this topic, and compare the id that "
            "the reason names with `schema_id` in the topic's record rules."
        ),
    ),
    "R2": RuleText(
        slug="record-key-too-large", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a key has more than max_key_bytes",
        why=(
            "Keys are held in memory by compaction and by tables that are built from the topic."
        ),
        advice=(
            "Send a shorter key, or raise `max_key_bytes` in the topic's record rules."
        ),
    ),
    "R3": RuleText(
        slug="record-value-too-large", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a value has more than max_value_bytes",
        why=(
            "One large value fills fetches and buffers of consumers that expect small ones."
        ),
        advice=(
            "Send the payload in parts or store it elsewhere and send its name, or raise "
            "`max_value_bytes` in the topic's record rules."
        ),
    ),
    "R4": RuleText(
        slug="record-headers-too-many", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a record has more than max_headers headers",
        why=(
            "Each header repeats its name in each record. Consumers hold all of them."
        ),
        advice=(
            "Send fewer headers, or raise `max_headers` in the topic's record rules."
        ),
    ),
    "R5": RuleText(
        slug="record-header-missing", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a record lacks a header of required_headers",
        why=(
            "Consumers or auditors of the topic rely on the header."
        ),
        advice=(
            "Add the header to each record. Producers of magic 0 and 1 have no headers: they "
            "cannot write to this topic."
        ),
    ),
    "R6": RuleText(
        slug="record-header-forbidden", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a record has a header of forbidden_headers",
        why=(
            "The topic's owner has excluded the header, for example because it holds personal "
            "data."
        ),
        advice=(
            "Remove the header in the producer, or its name from `forbidden_headers`."
        ),
    ),
    "R7": RuleText(
        slug="record-tombstone", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a value is null, and tombstones are refused",
        why=(
            "A null value deletes the key when the topic is compacted. The topic's owner does not "
            "allow deletions by producers."
        ),
        advice=(
            "Send a value. Set `tombstones: allow` where deletions are wanted."
        ),
    ),
    "R8": RuleText(
        slug="record-key-not-utf8", error_code=_E.INVALID_RECORD, profiles="pl",
        summary="a key is not UTF-8, and utf8_keys is set",
        why=(
            "Tools and consumers that show or join keys as text fail for other bytes."
        ),
        advice=(
            "Use a string serializer for the key, or unset `utf8_keys` for keys that are binary."
        ),
    ),
}
# fmt: on
