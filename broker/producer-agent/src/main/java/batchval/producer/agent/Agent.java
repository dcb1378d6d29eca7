package batchval.producer.agent;

import java.lang.instrument.Instrumentation;
import java.util.Objects;

/**
 * Makes a stock Java producer state claims about its batches (docs/concepts/claims.md).
 *
 * <p>Started by {@code -javaagent:batchval-producer-agent.jar=carrier=tag}. Lines go to standard
 * error: the application has not set its logging up yet.
 */
public final class Agent {
    /** Of the agent that is given first; written by the thread that starts agents. */
    private static boolean isGiven;
    private static String given;
    /** Removes the transformer that the first one has installed. */
    private static Runnable remove = () -> { };

    /**
     * Install the transformer; a wrong option is logged, and nothing is patched. Given twice with
     * different options, nothing is patched either.
     */
    public static void premain(String options, Instrumentation instrumentation) {
        if (isGiven) {
            again(options);
            return;
        }
        isGiven = true;
        given = options;
        try {
            Options parsed = Options.parse(options);
            if (parsed.carrier() == Carrier.NONE) {
                log("carrier=none: nothing is patched");
                return;
            }
            Hooks.options = parsed;
            Transformer transformer = new Transformer(parsed.toString());
            remove = () -> instrumentation.removeTransformer(transformer);
            instrumentation.addTransformer(transformer);
        } catch (IllegalArgumentException wrong) {
            log(wrong.getMessage() + "; nothing is patched");
        } catch (Throwable failure) {
            log("cannot start, nothing is patched: " + failure);
        }
    }

    private static void again(String options) {
        if (Objects.equals(options, given)) {
            log("given twice with the same options; the second one is ignored");
            return;
        }
        Hooks.options = Hooks.OFF;
        remove.run();
        String reason = "given twice with different options: give it once";
        Counters.status("inactive: " + reason);
        log(reason + "; nothing is patched");
    }

    static void log(String line) {
        System.err.println("batchval-producer-agent: " + line);
    }

    private Agent() { }
}
