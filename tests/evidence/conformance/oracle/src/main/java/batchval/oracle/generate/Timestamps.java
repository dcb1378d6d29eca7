package batchval.oracle.generate;

import batchval.oracle.bytes.Codec;
import batchval.oracle.generate.Built.Producer;
import batchval.oracle.generate.Content.KeyValue;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Timestamps around what the topic allows, and the LogAppendTime bit set by a producer. */
final class Timestamps {
    private static final long[] AWAY = {-1001, -1000, -999, 0, 999, 1000, 1001, Long.MIN_VALUE, -Content.NOW - 1, -Content.NOW - 2, 1L << 40};

    static void make(Pass p) {
        for (int magic = 0; magic <= 2; magic++)
            for (CompressionType c : Codec.of(magic))
                for (int i = 0; i < AWAY.length; i++)
                    for (int position = 0; position < 2; position++)
                        around(p, magic, c, i, position);
        for (int magic = 1; magic <= 2; magic++)
            for (CompressionType c : Codec.of(magic))
                for (String type : new String[]{"CreateTime", "LogAppendTime"})
                    for (String shape : new String[]{"ten", "no_ts"}) {
                        long seed = p.seed("timestamp_type_bit", magic, c, type);
                        p.add("timestamp_type_bit", seed, Pass.cfg().put("ts_type", type).put("to_magic", magic),
                            Built.batch(magic, c, TimestampType.LOG_APPEND_TIME, 0, Content.records(shape, new Random(seed), magic), Producer.PLAIN, -1));
                    }
    }

    private static void around(Pass p, int magic, CompressionType c, int i, int position) {
        long seed = p.seed("timestamp", magic, c, i, position);
        Random r = new Random(seed);
        long odd = AWAY[i] == Long.MIN_VALUE ? 0 : Math.max(-1, Content.NOW + AWAY[i]);
        int at = position == 0 ? 0 : 1 + r.nextInt(3);
        List<KeyValue> l = new ArrayList<>();
        for (int j = 0; j < 5; j++)
            l.add(new KeyValue(j == at || (position == 1 && j == 4) ? odd : Content.NOW, Content.text(r, 3), Content.text(r, 5), Content.NO_HEADERS));
        p.add("timestamp", seed, Pass.cfg().put("before_max_ms", 1000).put("after_max_ms", 1000).put("to_magic", magic == 0 ? 2 : magic),
            Built.batch(magic, c, l));
    }

    private Timestamps() { }
}
