package batchval.oracle.generate;

import batchval.oracle.Json;

import com.fasterxml.jackson.databind.node.ObjectNode;

import java.util.HexFormat;
import java.util.function.Supplier;

/** One question to the oracle. The bytes of slow ones are made when they are wanted. */
record Case(String family, long seed, ObjectNode cfg, Supplier<byte[]> batch, boolean slow) {
    ObjectNode toJson(String id) {
        ObjectNode o = Json.object().put("id", id).put("family", family).put("seed", seed);
        o.set("cfg", cfg);
        return o.put("batch_hex", HexFormat.of().formatHex(batch.get()));
    }
}
