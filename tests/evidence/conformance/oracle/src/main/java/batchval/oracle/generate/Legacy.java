package batchval.oracle.generate;

import batchval.oracle.Bytes;
import batchval.oracle.bytes.Codec;
import batchval.oracle.bytes.LegacyMessage;

import org.apache.kafka.common.record.internal.CompressionType;

import java.util.Random;

/** Hostile messages of magic 0 and 1: compressed wrappers ("legacy_wrapper") and single ones ("legacy_shallow"). */
final class Legacy {
    private static final int WRAPPERS = 24;
    private static final int SHALLOW = 14;

    static void make(Pass p) {
        for (int rep = 0; rep < 2; rep++)
            for (int magic = 0; magic <= 1; magic++)
                for (CompressionType c : new CompressionType[]{CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4})
                    for (int kind = 0; kind < WRAPPERS; kind++) {
                        long seed = p.seed("legacy_wrapper", magic, c, kind, rep);
                        byte[] wrapper = new Wrapper(new Random(seed), magic, c).make(kind);
                        for (int to : magic == 0 ? new int[]{0, 2} : new int[]{1, 2})
                            p.add("legacy_wrapper", seed, Pass.cfg().put("to_magic", to), wrapper);
                    }
        for (int magic = 0; magic <= 1; magic++)
            for (int kind = 0; kind < SHALLOW; kind++) {
                long seed = p.seed("legacy_shallow", magic, kind);
                byte[] message = shallow(new Random(seed), magic, kind);
                for (int to = 0; to <= 2; to++)
                    for (String target : new String[]{"producer", "gzip"})
                        p.add("legacy_shallow", seed, Pass.cfg().put("to_magic", to).put("target", target), message);
            }
    }

    static LegacyMessage message(Random r, int magic, long offset) {
        return new LegacyMessage(magic, offset, Content.NOW, Content.text(r, 4), Content.text(r, 4));
    }

    private static byte[] shallow(Random r, int magic, int kind) {
        LegacyMessage m = new LegacyMessage(magic, 0, Content.NOW, Content.text(r, 5), Content.text(r, 9));
        switch (kind) {
            case 0 -> m.keyLength(-2);
            case 1 -> m.keyLength(9999);
            case 2 -> m.valueLength(-2);
            case 3 -> m.valueLength(9999);
            case 4 -> m.wrongCrc();
            case 5 -> m.attributes(8);
            case 6 -> m.attributes(0xf0);
            case 7 -> m.offset = -5;
            case 8 -> m.timestamp = -7;
            case 9 -> m.timestamp = Long.MAX_VALUE;
            case 10 -> m.timestamp = Long.MIN_VALUE;
            case 11 -> m.size(13);
            case 12 -> m.size(14);
            default -> {
                m.offset = 9;
                byte[] first = m.build();
                m.offset = 3;
                return Bytes.cat(first, m.build());
            }
        }
        return m.build();
    }

    /** A compressed set of three messages, good until make() spoils it. */
    private static final class Wrapper {
        private final Random r;
        private final int magic;
        private final CompressionType codec;
        private byte[][] inner = new byte[3][];
        private byte[] trailing = {};
        private boolean withoutValue = false;
        private final LegacyMessage outer;

        Wrapper(Random r, int magic, CompressionType codec) {
            this.r = r;
            this.magic = magic;
            this.codec = codec;
            for (int i = 0; i < inner.length; i++)
                inner[i] = new LegacyMessage(magic, i, Content.NOW - i, Content.text(r, 4), Content.text(r, 9)).build();
            outer = new LegacyMessage(magic, 2, Content.NOW, null, null).attributes(codec.id);
        }

        private LegacyMessage fresh(long offset) {
            return message(r, magic, offset);
        }

        byte[] make(int kind) {
            switch (kind) {
                case 0 -> { }
                case 1 -> withoutValue = true;
                case 2 -> inner[1] = nested();
                case 3 -> inner[1] = message(r, 1 - magic, 1).build();
                case 4 -> inner[r.nextInt(3)] = fresh(1).wrongCrc().build();
                case 5 -> inner[2] = fresh(2).size(5).build();
                case 6 -> inner[2] = fresh(2).size(5000).build();
                case 7 -> outer.offset = 1;
                case 8 -> outer.offset = 0;
                case 9 -> outer.offset = 5000;
                case 10 -> {
                    for (int i = 0; i < 3; i++)
                        inner[i] = fresh(7L * i).build();
                    outer.offset = 14;
                }
                case 11 -> {
                    for (int i = 0; i < 3; i++)
                        inner[i] = fresh(5).build();
                    outer.offset = 5;
                }
                case 12 -> inner = new byte[][]{{}};
                case 13 -> outer.attributes(4);
                case 14 -> outer.attributes(5 + r.nextInt(3));
                case 15 -> outer.attributes(codec.id | 8);
                case 16 -> inner[1] = new LegacyMessage(magic, 1, Content.NOW, null, Content.text(r, 4)).keyLength(-2).build();
                case 17 -> inner[1] = fresh(1).keyLength(4000).build();
                case 18 -> inner[1] = fresh(1).valueLength(4000).build();
                case 19 -> inner[1] = new LegacyMessage(magic, 1, Content.NOW, Content.text(r, 4), null).valueLength(-5).build();
                case 20 -> outer.wrongCrc();
                case 21 -> trailing = Content.text(r, 10);
                case 22 -> {
                    LegacyMessage m = fresh(1).attributes(8);
                    m.timestamp = -1;
                    inner[1] = m.build();
                }
                default -> {
                    outer.key = Content.text(r, 4);
                    outer.timestamp = -1;
                }
            }
            outer.value = withoutValue ? null
                    : Codec.compress(codec, magic, Bytes.cat(Bytes.cat(inner), trailing));
            return outer.build();
        }

        private byte[] nested() {
            byte[] innermost = new LegacyMessage(magic, 0, Content.NOW, null, Content.text(r, 4)).build();
            return new LegacyMessage(magic, 1, Content.NOW, null, Codec.compress(codec, magic, innermost)).attributes(codec.id).build();
        }
    }

    private Legacy() { }
}
