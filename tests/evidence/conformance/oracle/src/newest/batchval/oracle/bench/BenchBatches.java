package batchval.oracle.bench;

import batchval.oracle.bytes.Codec;
import batchval.oracle.generate.Built;
import batchval.oracle.generate.Content;
import batchval.oracle.generate.Content.KeyValue;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.CompressionType;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/**
 * bench-batches [--seed N] DIR: one batch a file, vMAGIC-CODEC-RECORDS-VALUESIZE.bin. Values are
 * words with random hexadecimal tokens between them, so that they compress as events do (about 3:1
 * to 5:1).
 */
public final class BenchBatches {
    private static final int[] COUNTS = {1, 10, 100, 1000};
    private static final int[] LEGACY_COUNTS = {1, 10, 100};
    private static final int[] VALUE_SIZES = {100, 1000};

    public static void run(long seed, Path folder) throws IOException {
        Files.createDirectories(folder);
        for (int magic = 1; magic <= 2; magic++)
            for (CompressionType c : Codec.of(magic))
                for (int count : magic == 2 ? COUNTS : LEGACY_COUNTS)
                    for (int size : VALUE_SIZES)
                        Files.write(folder.resolve(String.format("v%d-%s-%d-%d.bin", magic, c.name, count, size)),
                            Built.batch(magic, c, records(seed, count, size)));
    }

    private static List<KeyValue> records(long seed, int count, int size) {
        Random r = new Random(seed * 1_000_003L + count * 31L + size);
        List<KeyValue> l = new ArrayList<>();
        for (int i = 0; i < count; i++)
            l.add(new KeyValue(Content.NOW + i, ("key-" + r.nextInt(100_000)).getBytes(StandardCharsets.ISO_8859_1),
                Content.noisyText(r, size), new Header[0]));
        return l;
    }

    private BenchBatches() { }
}
