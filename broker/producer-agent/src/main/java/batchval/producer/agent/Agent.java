package batchval.producer.agent;

import java.lang.instrument.Instrumentation;

/**
 * Makes a stock Java producer state claims about its batches (docs/concepts/claims.md).
 *
 * <p>Started by {@code -javaagent:batchval-producer-agent.jar=carrier=tag}. Lines go to standard
 * error: the application has not set its logging up yet.
 */
public final class Agent {
    /** Install the transformer; a wrong option is logged, and nothing is patched. */
    public static void premain(String options, Instrumentation instrumentation) {
        try {
            Options parsed = Options.parse(options);
            if (parsed.carrier() == Carrier.NONE) {
                log("carrier=none: nothing is patched");
                return;
            }
            Hooks.options = parsed;
            instrumentation.addTransformer(new Transformer(parsed.toString()));
        } catch (IllegalArgumentException wrong) {
            log(wrong.getMessage() + "; nothing is patched");
        } catch (Throwable failure) {
            log("cannot start, nothing is patched: " + failure);
        }
    }

    static void log(String line) {
        System.err.println("batchval-producer-agent: " + line);
    }

    private Agent() { }
}
