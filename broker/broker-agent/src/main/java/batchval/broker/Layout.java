package batchval.broker;

import java.util.Map;

/**
 * Where a version of Kafka has its record classes, and what LogValidator has in it.
 *
 * @param line            the versions
 * @param records         the package of MemoryRecords
 * @param utils           the package of PrimitiveRef and BufferSupplier
 * @param stats           the class RecordValidationStats
 * @param boundsRecords   LogValidator has maxRecordBodySize (max.decompressed.message.bytes)
 * @param hasProtocol     LogValidator has interBrokerProtocolVersion, which may refuse zstd
 */
record Layout(String line, String records, String utils, String stats, boolean boundsRecords,
              boolean hasProtocol) {
    private static final String COMMON = "org/apache/kafka/common/";
    private static final String LOG = "org/apache/kafka/storage/internals/log/";
    static final String LOG_VALIDATOR = LOG + "LogValidator";

    static final Layout KAFKA_4_4 = new Layout("4.4", COMMON + "record/internal/",
        COMMON + "utils/internals/", LOG + "RecordValidationStats", true, false);
    static final Layout KAFKA_4_1 = new Layout("4.1", COMMON + "record/", COMMON + "utils/",
        COMMON + "record/RecordValidationStats", false, false);
    static final Layout KAFKA_3_9 = new Layout("3.9", COMMON + "record/", COMMON + "utils/",
        COMMON + "record/RecordValidationStats", false, true);

    /**
     * Digests of the methods of LogValidator that read a compressed batch, and the layout of the
     * version that has them. What is skipped for a settled batch is what these methods ask.
     */
    static final Map<String, Layout> BY_DIGEST = Map.of(
        "29121dd0cbf4ad95", KAFKA_4_4, "13fb449c2e8dba6b", KAFKA_4_1,
        "e9b91b6012c169ce", KAFKA_3_9);
}
