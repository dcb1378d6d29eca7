package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.Codec;

import org.apache.kafka.common.record.internal.CompressionType;

import java.util.Random;

/** No batch, and more than one. */
final class MultiBatch {
    static void make(Pass p) {
        for (int rep = 0; rep < 3; rep++)
            for (int first = 0; first <= 2; first++)
                for (int second = 0; second <= 2; second++)
                    for (CompressionType c : new CompressionType[]{CompressionType.NONE, CompressionType.GZIP, CompressionType.ZSTD}) {
                        if (c == CompressionType.ZSTD && (first < 2 || second < 2))
                            continue;
                        long seed = p.seed("multi_batch", first, second, c, rep);
                        Random r = new Random(seed);
                        p.add("multi_batch", seed, Pass.cfg().put("to_magic", rep == 2 ? first : 2),
                            Bytes.cat(Built.batch(first, c, Content.records("two", r, first)),
                                Built.batch(second, c, Content.records("two", r, second))));
                    }
        for (CompressionType a : Codec.ALL)
            for (CompressionType b : Codec.ALL) {
                long seed = p.seed("multi_batch_v2", a, b);
                Random r = new Random(seed);
                p.add("multi_batch_v2", seed, Pass.cfg(),
                    Bytes.cat(Built.batch(2, a, Content.records("one", r, 2)), Built.batch(2, b, Content.records("two", r, 2))));
            }
        p.add("empty_records", 0, Pass.cfg(), new byte[0]);
        for (CompressionType c : Codec.ALL)
            p.add("empty_records", 0, Pass.cfg().put("source", c.name), new byte[0]);
    }

    private MultiBatch() { }
}
