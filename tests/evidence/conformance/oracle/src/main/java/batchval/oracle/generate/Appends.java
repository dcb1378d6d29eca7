package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.Checksums;
import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.V2Batch;
import batchval.oracle.bytes.V2Record;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.record.internal.CompressionType;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/**
 * What each origin appends to a real log.
 *   append_client, append_coordinator, append_replication, append_raft_leader
 *                     batches of the other families, good and damaged, with offsets and epochs
 *                     that fit the origin and the log, or nearly: an origin that takes offsets as
 *                     they come gets several batches in one append
 *   append_producers  producers, transactions and their markers, in up to four batches
 *   append_offsets    offsets at the edges of a segment and of 64 bits
 */
final class Appends {
    private static final int EACH = 900;
    private static final int PRODUCERS = 400;
    private static final int OFFSETS = 200;
    private static final int EPOCH = 7;
    private static final int SIZE = 8;
    private static final int LEADER_EPOCH = 12;
    private static final int MAGIC = 16;
    private static final int ATTRIBUTES_LOW = 22;
    private static final int LAST_OFFSET_DELTA = 23;
    private static final int PRODUCER_ID = 43;
    private static final int LOG_OVERHEAD = 12;
    private static final int MOST_BYTES = 1 << 16;

    static void make(Pass p) {
        List<Case> others = new ArrayList<>();
        for (Case c : p.cases())
            if (!c.slow() && c.batch().get().length <= MOST_BYTES)
                others.add(c);
        for (String origin : Control.ORIGINS)
            for (int i = 0; i < EACH; i++)
                again(p, origin, i, others);
        for (int i = 0; i < PRODUCERS; i++)
            producers(p, i);
        for (int i = 0; i < OFFSETS; i++)
            offsets(p, i);
    }

    /** Bytes and settings of another family, for this origin. */
    private static void again(Pass p, String origin, int i, List<Case> others) {
        String family = "append_" + origin.toLowerCase();
        long seed = p.seed(family, i);
        Random r = new Random(seed);
        Case from = one(r, others, origin.equals("RAFT_LEADER"));
        ObjectNode cfg = from.cfg().deepCopy().put("origin", origin).put("leader_epoch", EPOCH);
        cfg.remove(List.of("to_magic", "source"));
        byte[] bytes = from.batch().get().clone();
        boolean keepsOffsets = origin.equals("REPLICATION") || origin.equals("RAFT_LEADER");
        long offset = 0;
        if (keepsOffsets) {
            offset = startingOffset(r);
            for (int n = r.nextInt(3); n > 0; n--)
                bytes = Bytes.cat(bytes,
                    one(r, others, origin.equals("RAFT_LEADER")).batch().get());
            cfg.put("first_offset", logEnd(r, offset));
        }
        if (r.nextInt(4) != 0)
            state(r, bytes);
        if (r.nextInt(10) != 0)
            place(r, bytes, offset, keepsOffsets);
        p.add(family, seed, cfg, bytes);
    }

    /** Any case; mostly one of magic 2 where the origin needs its leader epoch. */
    private static Case one(Random r, List<Case> others, boolean mostlyNew) {
        Case c = others.get(r.nextInt(others.size()));
        for (int i = 0; mostlyNew && i < 4 && !isNew(c.batch().get()); i++)
            c = others.get(r.nextInt(others.size()));
        return c;
    }

    private static boolean isNew(byte[] a) {
        return a.length > MAGIC && a[MAGIC] == 2;
    }

    private static long startingOffset(Random r) {
        return switch (r.nextInt(8)) {
            case 0 -> 0;
            case 1 -> 1L << (31 + r.nextInt(30));
            default -> r.nextInt(5000);
        };
    }

    /** Mostly where the batches begin, or before. */
    private static long logEnd(Random r, long offset) {
        return switch (r.nextInt(8)) {
            case 0 -> Math.max(0, offset - 1 - r.nextInt(50));
            case 1 -> 0;
            case 2 -> offset + r.nextInt(3);
            default -> offset;
        };
    }

    /** Base offsets that rise and leader epochs, neither of which a checksum covers. */
    private static void place(Random r, byte[] a, long offset, boolean rising) {
        ByteBuffer b = ByteBuffer.wrap(a);
        for (int at = 0; at + MAGIC < a.length; ) {
            long size = LOG_OVERHEAD + (long) b.getInt(at + SIZE);
            if (size < LOG_OVERHEAD || size > a.length - at)
                return;
            boolean isNew = a[at + MAGIC] == 2 && size >= V2Batch.RECORDS;
            int delta = isNew ? b.getInt(at + LAST_OFFSET_DELTA) : 0;
            b.putLong(at, offset);
            if (isNew && r.nextInt(16) != 0)
                b.putInt(at + LEADER_EPOCH, r.nextInt(16) == 0 ? EPOCH - 1 + r.nextInt(3) : EPOCH);
            if (rising)
                offset += Math.max(1, delta + 1L) + (r.nextInt(3) == 0 ? r.nextInt(20) : 0);
            at += (int) size;
        }
    }

    /**
     * Producer fields, and now and then the control or transactional bit, of batches whose checksum
     * is right.
     */
    private static void state(Random r, byte[] a) {
        ByteBuffer b = ByteBuffer.wrap(a);
        for (int at = 0; at + V2Batch.RECORDS <= a.length; ) {
            long size = LOG_OVERHEAD + (long) b.getInt(at + SIZE);
            if (size < LOG_OVERHEAD || size > a.length - at)
                return;
            if (a[at + MAGIC] == 2 && size >= V2Batch.RECORDS && r.nextInt(3) == 0) {
                byte[] batch = Arrays.copyOfRange(a, at, (int) (at + size));
                byte[] fixed = batch.clone();
                Checksums.fixV2(fixed, fixed.length);
                if (Arrays.equals(batch, fixed)) {
                    if (r.nextInt(6) == 0)
                        fixed[ATTRIBUTES_LOW] ^= (byte) (r.nextInt(3) == 0 ? 0x20 : 0x10);
                    ByteBuffer.wrap(fixed, PRODUCER_ID, 14).putLong(r.nextInt(4) - 1)
                        .putShort((short) (r.nextInt(6) - 3)).putInt(r.nextInt(6) - 1);
                    Checksums.fixV2(fixed, fixed.length);
                    System.arraycopy(fixed, 0, a, at, fixed.length);
                }
            }
            at += (int) size;
        }
    }

    private static void producers(Pass p, int i) {
        long seed = p.seed("append_producers", i);
        Random r = new Random(seed);
        String[] origins = {"REPLICATION", "REPLICATION", "REPLICATION", "RAFT_LEADER",
            "RAFT_LEADER", "COORDINATOR", "COORDINATOR", "CLIENT"};
        String origin = origins[r.nextInt(origins.length)];
        boolean several = origin.equals("REPLICATION") || origin.equals("RAFT_LEADER");
        ObjectNode cfg = Pass.cfg().put("origin", origin)
            .put("first_offset", several ? r.nextInt(3) : 1000);
        if (r.nextInt(5) == 0)
            cfg.put("target",
                Codec.ALL[r.nextInt(Codec.ALL.length)].name.replace("none", "uncompressed"));
        if (r.nextInt(5) == 0)
            cfg.put("ts_type", "LogAppendTime");
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        long offset = several ? 3 : 0;
        for (int n = several ? 1 + r.nextInt(4) : 1; n > 0; n--) {
            int count = r.nextInt(8) == 0 ? 0 : 1 + r.nextInt(3);
            CompressionType codec = r.nextInt(4) == 0 ? Codec.ALL[r.nextInt(Codec.ALL.length)]
                : CompressionType.NONE;
            boolean control = r.nextInt(2) == 0;
            byte[] plain = control ? markers(r, count) : Content.plainBody(r, count);
            if (r.nextInt(10) == 0 && plain.length > 0)
                plain = Arrays.copyOf(plain, r.nextInt(plain.length + 1));
            V2Batch b = new V2Batch().count(count).timestamps(Content.NOW - 9, Content.NOW)
                .producer(r.nextInt(3) - 1, r.nextInt(6) - 3, r.nextInt(4) - 1);
            b.attributes = codec.id | (control ? 0x20 : 0) | (r.nextInt(2) == 0 ? 0x10 : 0)
                | (r.nextInt(8) == 0 ? 8 : 0);
            if (r.nextInt(10) == 0)
                b.lastOffsetDelta += r.nextInt(5) - 2;
            b.leaderEpoch = r.nextInt(20) == 0 ? r.nextInt(4) - 2 : EPOCH;
            b.baseOffset = offset;
            b.body = Codec.compress(codec, 2, plain);
            o.writeBytes(b.build());
            offset += 4;
        }
        p.add("append_producers", seed, cfg, o.toByteArray());
    }

    /**
     * Records of a control batch: type and version in the key, version and coordinator epoch in the
     * value.
     */
    private static byte[] markers(Random r, int count) {
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        for (int i = 0; i < count; i++) {
            V2Record x = new V2Record();
            x.offsetDelta = i;
            x.key = short2(r, r.nextInt(8) == 0 ? r.nextInt(4) - 1 : 0,
                r.nextInt(5) == 0 ? r.nextInt(10) - 2 : r.nextInt(2));
            int version = r.nextInt(5) == 0 ? r.nextInt(4) - 1 : 0;
            byte[] epoch = ByteBuffer.allocate(4)
                .putInt(r.nextInt(6) == 0 ? r.nextInt(4) - 3 : r.nextInt(9)).array();
            x.value = Bytes.cat(ByteBuffer.allocate(2).putShort((short) version).array(), epoch,
                tags(r));
            if (r.nextInt(12) == 0)
                x.key = r.nextBoolean() ? null : Arrays.copyOf(x.key, r.nextInt(7));
            if (r.nextInt(12) == 0)
                x.value = r.nextBoolean() ? null : Arrays.copyOf(x.value, r.nextInt(9));
            x.write(o);
        }
        return o.toByteArray();
    }

    private static byte[] short2(Random r, int version, int type) {
        byte[] key = ByteBuffer.allocate(4).putShort((short) version).putShort((short) type)
            .array();
        return r.nextInt(10) == 0 ? Bytes.cat(key, tags(r)) : key;
    }

    /** Tagged fields as a later version may have them, whole or not. */
    private static byte[] tags(Random r) {
        return switch (r.nextInt(6)) {
            case 0 -> new byte[]{0};
            case 1 -> new byte[]{1, 5, 2, 9, 9};
            case 2 -> new byte[]{2, 5, 2, 9, 9, 1, 0};
            case 3 -> {
                byte[] any = new byte[1 + r.nextInt(7)];
                r.nextBytes(any);
                yield any;
            }
            default -> new byte[0];
        };
    }

    private static void offsets(Pass p, int i) {
        long seed = p.seed("append_offsets", i);
        Random r = new Random(seed);
        String origin = Control.ORIGINS[r.nextInt(4)];
        long[] edges = {0, 1, Integer.MAX_VALUE, 1L << 31, (1L << 32) - 1, 1L << 62,
            Long.MAX_VALUE, -1, -5};
        long start = Math.max(0, edges[r.nextInt(6)] + r.nextInt(5) - 2);
        ObjectNode cfg = Pass.cfg().put("origin", origin).put("first_offset", start);
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        long offset = start;
        for (int n = 1 + r.nextInt(3); n > 0; n--) {
            int count = r.nextInt(6) == 0 ? 0 : 1 + r.nextInt(4);
            V2Batch b = Content.good(r, CompressionType.NONE, Math.max(1, count)).count(count);
            if (count == 0)
                b.body = new byte[0];
            b.leaderEpoch = EPOCH;
            b.baseOffset = origin.equals("CLIENT") ? 0 : offset;
            if (r.nextInt(2) == 0)
                b.lastOffsetDelta = new int[]{-5, -1, 0, 9, Integer.MAX_VALUE, Integer.MIN_VALUE,
                    Integer.MAX_VALUE - 3}[r.nextInt(7)];
            o.writeBytes(r.nextInt(8) == 0
                ? Built.batch(r.nextInt(2), CompressionType.NONE, offset,
                    Content.records("one", r, 1), Built.Producer.PLAIN)
                : b.build());
            offset = r.nextInt(4) == 0 ? edges[r.nextInt(edges.length)]
                : offset + 1 + (r.nextInt(2) == 0 ? Integer.MAX_VALUE : r.nextInt(9));
            if (!origin.equals("REPLICATION") && !origin.equals("RAFT_LEADER"))
                break;
        }
        p.add("append_offsets", seed, cfg, o.toByteArray());
    }

    private Appends() { }
}
