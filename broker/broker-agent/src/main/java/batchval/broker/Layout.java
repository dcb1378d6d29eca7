package batchval.broker;

import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;
import java.util.Set;
import java.util.function.Function;

/**
 * Where a release of Kafka has its record classes, and what its LogValidator has in it: all of it
 * is read from the classes themselves.
 *
 * @param records         the package of MemoryRecords
 * @param utils           the package of PrimitiveRef and BufferSupplier
 * @param stats           the class RecordValidationStats
 * @param boundsRecords   LogValidator has maxRecordBodySize (max.decompressed.message.bytes)
 * @param hasProtocol     LogValidator has interBrokerProtocolVersion, which may refuse zstd
 * @param tellsLastOffset ValidationResult has the last offset, as shallowOffsetOfMaxTimestamp
 */
record Layout(String records, String utils, String stats, boolean boundsRecords,
              boolean hasProtocol, boolean tellsLastOffset) {
    private static final String COMMON = "org/apache/kafka/common/";
    private static final String LOG = "org/apache/kafka/storage/internals/log/";
    private static final String STATS = "RecordValidationStats";
    static final String LOG_VALIDATOR = LOG + "LogValidator";
    static final String RESULT = LOG_VALIDATOR + "$ValidationResult";

    /**
     * Digests of the methods of LogValidator that read a compressed batch, without the packages
     * that moved. What is skipped for a settled batch is what these methods ask: each was read.
     */
    static final Set<String> KNOWN_DIGESTS = Set.of(
        "d9c492db4f0b7e8d",  // 3.9.0
        "e9b91b6012c169ce",  // 3.9.1, 3.9.2
        "a0488f95d42864d1",  // 4.0.0
        "2135ff92f2296bfc",  // 4.0.1, 4.0.2
        "13fb449c2e8dba6b",  // 4.1.0 to 4.2.1, 4.3.0, 4.3.1
        "788f2c41db301be0"); // 4.2.2, 4.4.0

    /** Return the layout that these classes have. */
    static Layout of(Shape validator, Function<String, byte[]> bytes) throws ShapeMismatch {
        String records = home("MemoryRecords", bytes, COMMON + "record/internal/",
            COMMON + "record/");
        String utils = home("PrimitiveRef", bytes, COMMON + "utils/internals/", COMMON + "utils/");
        String stats = home(STATS, bytes, LOG, records, COMMON + "record/") + STATS;
        boolean tellsLastOffset = Shape.of(RESULT, bytes)
            .hasMethod("<init>", resultConstructor(records, stats, true));
        return new Layout(records, utils, stats, validator.hasField("maxRecordBodySize"),
            validator.hasField("interBrokerProtocolVersion"), tellsLastOffset);
    }

    private static String home(String name, Function<String, byte[]> bytes, String... packages)
            throws ShapeMismatch {
        for (String one : packages)
            if (bytes.apply(one + name) != null)
                return one;
        throw new ShapeMismatch(packages[packages.length - 1] + name,
            "not found on the class path");
    }

    /** Descriptor of the constructor of LogValidator.ValidationResult. */
    String resultConstructor() {
        return resultConstructor(records, stats, tellsLastOffset);
    }

    private static String resultConstructor(String records, String stats, boolean lastOffset) {
        return "(JL" + records + "MemoryRecords;J" + (lastOffset ? "J" : "") + "ZL" + stats + ";)V";
    }

    /** Return this text with the packages that classes had before Kafka moved them. */
    static String withFormerPackages(String text) {
        return text.replace(LOG + STATS, COMMON + "record/" + STATS)
            .replace(COMMON + "record/internal/", COMMON + "record/")
            .replace(COMMON + "utils/internals/", COMMON + "utils/");
    }

    /** Return the release of the broker, as its own classes name it. */
    static String release(ClassLoader loader) {
        Properties names = new Properties();
        try (InputStream in = loader.getResourceAsStream("kafka/kafka-version.properties")) {
            if (in != null)
                names.load(in);
        } catch (IOException e) {
            return "unknown";
        }
        return names.getProperty("version", "unknown");
    }
}
