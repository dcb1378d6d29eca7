/* Starts Kroxylicious from its jars: its own starter is not on Maven Central. java -cp 'FOLDER/*' Start.java CONFIG */

import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

public final class Start {
    public static void main(String[] words) throws Exception {
        ConfigParser parser = new ConfigParser();
        var config = parser.parseConfiguration(Files.readString(Path.of(words[0])));
        try (KafkaProxy proxy = new KafkaProxy(parser, config, Features.defaultFeatures())) {
            proxy.startup();
            Thread.currentThread().join(); // until it is killed
        }
    }
}
