package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.Checksums;
import batchval.oracle.bytes.Codec;
import batchval.oracle.generate.Built.Producer;

import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;

import java.util.Random;

/** Control batches and other batches from each origin. */
final class Control {
    static final String[] ORIGINS = {"CLIENT", "COORDINATOR", "REPLICATION", "RAFT_LEADER"};
    private static final int ATTRIBUTES_LOW = 22;
    private static final int CONTROL_BIT = 0x20;

    static void make(Pass p) {
        for (String origin : ORIGINS) {
            for (ControlRecordType t : new ControlRecordType[]{ControlRecordType.COMMIT, ControlRecordType.ABORT})
                for (String target : new String[]{"producer", "gzip", "zstd"})
                    p.add("control", 0, Pass.cfg().put("origin", origin).put("target", target), marker(t));
            for (CompressionType c : Codec.ALL) {
                long seed = p.seed("control", origin, c);
                p.add("control", seed, Pass.cfg().put("origin", origin),
                    asControl(Built.batch(2, c, 0, Content.records("two", new Random(seed), 2), Producer.TRANSACTIONAL)));
                p.add("origin", seed, Pass.cfg().put("origin", origin),
                    Built.batch(2, c, 5, Content.records("two", new Random(seed), 2), Producer.IDEMPOTENT));
                p.add("origin", seed, Pass.cfg().put("origin", origin),
                    Built.batch(2, c, 0, Content.records("ten", new Random(seed), 2), Producer.TRANSACTIONAL));
            }
        }
    }

    private static byte[] marker(ControlRecordType type) {
        return Bytes.of(MemoryRecords.withEndTransactionMarker(0, Content.NOW - 3, 7, 4242L, (short) 3, new EndTransactionMarker(type, 11)).buffer());
    }

    private static byte[] asControl(byte[] batch) {
        batch[ATTRIBUTES_LOW] |= CONTROL_BIT;
        Checksums.fixV2(batch, batch.length);
        return batch;
    }

    private Control() { }
}
