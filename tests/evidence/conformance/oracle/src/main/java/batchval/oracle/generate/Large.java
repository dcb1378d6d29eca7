package batchval.oracle.generate;

import batchval.oracle.bytes.Codec;
import batchval.oracle.generate.Content.KeyValue;

import org.apache.kafka.common.record.internal.CompressionType;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/** About 1 MiB of records, and batches above max.message.bytes. */
final class Large {
    static void make(Pass p) {
        for (CompressionType c : Codec.ALL)
            for (int kind = 0; kind < 4; kind++) {
                long seed = p.seed("large", c, kind);
                List<KeyValue> l = records(new Random(seed), kind);
                p.addSlow("large", seed, Pass.cfg().put("max_message_bytes", 2 << 20), () -> Built.batch(2, c, l));
                if (kind == 0)
                    p.addSlow("too_large", seed, Pass.cfg().put("max_message_bytes", 2000), () -> Built.batch(2, c, l));
                if (kind == 1 && c != CompressionType.ZSTD)
                    p.addSlow("large", seed, Pass.cfg().put("max_message_bytes", 2 << 20), () -> Built.batch(1, c, l));
            }
        // too large only once it is decompressed
        long seed = p.seed("too_large", "resize");
        byte[] value = Content.repeat(Content.text(new Random(seed), 512), 60_000);
        p.add("too_large", seed, Pass.cfg().put("max_message_bytes", 20_000).put("target", "uncompressed"),
            Built.batch(2, CompressionType.GZIP, List.of(new KeyValue(Content.NOW, null, value, Content.NO_HEADERS))));
    }

    private static List<KeyValue> records(Random r, int kind) {
        List<KeyValue> l = new ArrayList<>();
        byte[] block = Content.text(r, 2048);
        switch (kind) {
            case 0 -> l.add(new KeyValue(Content.NOW, null, Content.repeat(block, 1 << 20), Content.NO_HEADERS));
            case 1 -> {
                for (int i = 0; i < 1000; i++)
                    l.add(new KeyValue(Content.NOW - i, ("k" + i).getBytes(), Arrays.copyOf(block, 1000), Content.NO_HEADERS));
            }
            case 2 -> {
                for (int i = 0; i < 20_000; i++)
                    l.add(new KeyValue(Content.NOW, null, new byte[0], Content.NO_HEADERS));
            }
            default -> {
                for (int i = 0; i < 4; i++)
                    l.add(new KeyValue(Content.NOW, new byte[]{1}, Content.repeat(block, 200_000), Content.NO_HEADERS));
            }
        }
        return l;
    }

    private Large() { }
}
