package batchval.oracle.generate;

import batchval.oracle.Json;
import batchval.oracle.LogClasses;

import com.fasterxml.jackson.databind.node.ObjectNode;

import java.util.HexFormat;
import java.util.function.Supplier;

/** One question to the oracle. The bytes of slow ones are made when they are wanted. */
record Case(String family, long seed, ObjectNode cfg, Supplier<byte[]> batch, boolean slow) {
    ObjectNode toJson(String id) {
        ObjectNode o = Json.object().put("id", id).put("family", family).put("seed", seed);
        o.set("cfg", LogClasses.BOUNDS_THE_DIFFERENCE ? withOneBound(cfg) : cfg);
        return o.put("batch_hex", HexFormat.of().formatHex(batch.get()));
    }

    /** Both bounds of timestamps are the one that the case names. */
    private static ObjectNode withOneBound(ObjectNode cfg) {
        String named = cfg.has("after_max_ms") ? "after_max_ms" : "before_max_ms";
        long bound = cfg.path(named).asLong(Long.MAX_VALUE);
        return cfg.deepCopy().put("before_max_ms", bound).put("after_max_ms", bound);
    }
}
