package batchval.oracle.bytes;

import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;

import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;

import batchval.oracle.Bytes;
import batchval.oracle.LogClasses;

/** Compresses as a Kafka producer does: Compression.wrapForOutput, before 3.8 CompressionType.wrapForOutput. */
public final class Codec {
    public static final CompressionType[] ALL = CompressionType.values();
    /** zstd came with magic 2. */
    public static final CompressionType[] LEGACY = {CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4};

    /** Writes what is to be compressed. */
    public interface Writer {
        void write(OutputStream to) throws IOException;
    }

    public static CompressionType[] of(int magic) {
        return magic == 2 ? ALL : LEGACY;
    }

    public static byte[] compress(CompressionType type, int magic, byte[] plain) {
        return type == CompressionType.NONE ? plain : compress(type, magic, o -> o.write(plain));
    }

    /** The same for content too large to hold. */
    public static byte[] compress(CompressionType type, int magic, Writer plain) {
        ByteBufferOutputStream out = new ByteBufferOutputStream(1 << 16);
        try (OutputStream to = LogClasses.compressing(type, out, (byte) magic)) {
            plain.write(to);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        ByteBuffer b = out.buffer().duplicate();
        b.flip();
        return Bytes.of(b);
    }

    private Codec() { }
}
