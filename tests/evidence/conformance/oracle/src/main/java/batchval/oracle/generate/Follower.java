package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.Checksums;
import batchval.oracle.bytes.Codec;
import batchval.oracle.generate.Built.Producer;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.util.Random;

/**
 * Several batches from a leader: epochs above the replica's own (rule 11), last offsets that do not
 * increase (rule 16), and both next to damage. Kafka parses every record for the message of rule
 * 16, so damage anywhere changes its answer.
 */
final class Follower {
    private static final int EPOCH = 7;
    private static final int EACH = 80;
    private static final String[] SHAPES = {"one", "two", "headers", "null_keys"};

    static void make(Pass p) {
        for (int i = 0; i < EACH; i++) {
            epochs(p, i);
            offsets(p, i);
            damaged(p, i);
        }
    }

    private static void epochs(Pass p, int i) {
        long seed = p.seed("follower_epoch", i);
        Random r = new Random(seed);
        int[] epochs = {-1, EPOCH - 1, EPOCH, EPOCH, EPOCH + 1, EPOCH + 3, Integer.MAX_VALUE, -2};
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        long offset = r.nextInt(50);
        for (int n = 1 + r.nextInt(4); n > 0; n--) {
            byte[] b = batch(r, magic(r), offset, epochs[r.nextInt(epochs.length)]);
            if (r.nextInt(6) == 0)
                b[b.length - 1] ^= 1;  // nobody looks at the checksum of what is skipped
            o.writeBytes(b);
            offset += 20;
        }
        if (r.nextInt(5) == 0)
            o.writeBytes(Content.text(r, 1 + r.nextInt(30)));
        String origin = r.nextInt(5) == 0 ? Control.ORIGINS[r.nextInt(4)] : "REPLICATION";
        p.add("follower_epoch", seed, Pass.cfg().put("origin", origin), o.toByteArray());
    }

    private static void offsets(Pass p, int i) {
        long seed = p.seed("follower_offsets", i);
        Random r = new Random(seed);
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        long offset = r.nextInt(50);
        for (int n = 2 + r.nextInt(3); n > 0; n--) {
            o.writeBytes(batch(r, magic(r), offset, r.nextInt(8) == 0 ? EPOCH + r.nextInt(3) - 1 : EPOCH));
            offset += switch (r.nextInt(4)) {
                case 0 -> -1 - r.nextInt(3);
                case 1 -> 0;
                default -> 10 + r.nextInt(5);
            };
        }
        p.add("follower_offsets", seed, origin(r), o.toByteArray());
    }

    private static void damaged(Pass p, int i) {
        long seed = p.seed("follower_damaged", i);
        Random r = new Random(seed);
        int magic = magic(r);
        byte[] first = batch(r, magic, 10, EPOCH);
        byte[] second = batch(r, magic(r), r.nextInt(4) == 0 ? 30 : 5, EPOCH);
        byte[] third = batch(r, magic(r), 50, EPOCH);
        byte[][] all = {first, second, third};
        byte[] victim = all[r.nextInt(3)];
        int header = victim[16] == 2 ? 61 : 26;
        int at = header + r.nextInt(victim.length - header);
        victim[at] ^= (byte) (1 + r.nextInt(255));
        if (r.nextInt(5) != 0)
            Checksums.fix(victim[16], victim, victim.length);
        byte[] trailing = r.nextInt(6) == 0 ? Content.text(r, 20) : new byte[0];
        p.add("follower_damaged", seed, origin(r), Bytes.cat(first, second, third, trailing));
    }

    private static ObjectNode origin(Random r) {
        String[] origins = {"REPLICATION", "REPLICATION", "RAFT_LEADER", "RAFT_LEADER", "COORDINATOR", "CLIENT"};
        return Pass.cfg().put("origin", origins[r.nextInt(origins.length)]).put("max_message_bytes", r.nextInt(6) == 0 ? 100 : 1_048_588);
    }

    private static int magic(Random r) {
        return r.nextInt(6) == 0 ? r.nextInt(2) : 2;
    }

    private static byte[] batch(Random r, int magic, long offset, int epoch) {
        CompressionType[] codecs = Codec.of(magic);
        return Built.batch(magic, codecs[r.nextInt(codecs.length)], TimestampType.CREATE_TIME, offset,
            Content.records(SHAPES[r.nextInt(SHAPES.length)], r, magic), Producer.PLAIN, epoch);
    }

    private Follower() { }
}
