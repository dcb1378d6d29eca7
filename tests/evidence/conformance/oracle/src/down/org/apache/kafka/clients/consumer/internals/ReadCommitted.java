package org.apache.kafka.clients.consumer.internals;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.message.FetchResponseData.PartitionData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;

import java.util.List;
import java.util.Set;

/** What Kafka's consumer reads of a partition's answer with isolation.level=read_committed. */
public final class ReadCommitted {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);
    private static final LogContext LOG = new LogContext();
    private static final SubscriptionState SUBSCRIPTIONS =
        new SubscriptionState(LOG, OffsetResetStrategy.EARLIEST);
    private static final FetchMetricsManager METRICS =
        new FetchMetricsManager(new Metrics(), new FetchMetricsRegistry());
    private static final FetchConfig CONFIG = new FetchConfig(1, Integer.MAX_VALUE, 0,
        Integer.MAX_VALUE, Integer.MAX_VALUE, true, "", IsolationLevel.READ_COMMITTED);
    private static final Deserializers<byte[], byte[]> AS_BYTES =
        new Deserializers<>(new ByteArrayDeserializer(), new ByteArrayDeserializer());

    public static List<Long> offsets(MemoryRecords records, List<AbortedTransaction> aborted) {
        PartitionData answer = new PartitionData().setRecords(records)
            .setAbortedTransactions(aborted);
        CompletedFetch fetch = new CompletedFetch(LOG.logger(CompletedFetch.class), SUBSCRIPTIONS,
            BufferSupplier.NO_CACHING, PARTITION, answer,
            new FetchMetricsAggregator(METRICS, Set.of(PARTITION)), 0L,
            ApiKeys.FETCH.latestVersion());
        return fetch.fetchRecords(CONFIG, AS_BYTES, Integer.MAX_VALUE).stream()
            .map(ConsumerRecord::offset).toList();
    }

    private ReadCommitted() { }
}
