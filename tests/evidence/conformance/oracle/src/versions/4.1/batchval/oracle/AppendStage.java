package batchval.oracle;

import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * The real log is asked for Kafka 4.4 alone: appendAsLeader has other arguments in older versions.
 */
final class AppendStage {
    static void answer(ObjectNode to, byte[] input, Settings s) {
        to.put("skipped", true);
    }

    private AppendStage() { }
}
