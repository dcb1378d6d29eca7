package batchval.producer.agent;

import java.nio.ByteBuffer;

/** What the patched MemoryRecordsBuilder implements: its own methods, and access to its fields. */
public interface PatchedBuilder {
    byte magic();

    int numRecords();

    boolean isControlBatch();

    boolean hasDeleteHorizonMs();

    ByteBuffer buffer();

    Building batchval$building();

    void batchval$building(Building building);

    /** The constant of Kafka's enum CompressionType. */
    Object batchval$codec();

    /** The constant of Kafka's enum TimestampType. */
    Object batchval$timestampType();

    int batchval$initialPosition();

    int batchval$recordBytes();

    Long batchval$lastOffset();

    long batchval$baseOffset();

    int batchval$writeLimit();

    /** Set the position of the stream that the compressor writes to; its buffer may grow. */
    void batchval$position(int position);
}
