package batchval.oracle;

import org.apache.kafka.common.config.ConfigDef;

import java.io.IOException;
import java.io.OutputStream;
import java.util.Map;

/**
 * topic-keys [OUT]: Kafka's topic configuration keys, one line each: default and allowed values as
 * Kafka writes them.
 */
final class TopicKeysCommand {
    static void run(String out) throws IOException {
        Map<String, ConfigDef.ConfigKey> keys = LogClasses.topicKeys();
        try (OutputStream to = Json.create(out)) {
            for (String name : LogClasses.topicKeyNames()) {
                ConfigDef.ConfigKey key = keys.get(name);
                Json.line(to, Json.object().put("name", name)
                    .put("default", String.valueOf(key.defaultValue))
                    .put("allowed", String.valueOf(key.validator)));
            }
        }
    }

    private TopicKeysCommand() { }
}
