package batchval.broker;

import batchval.broker.hook.Hooks;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.management.ManagementFactory;
import java.security.ProtectionDomain;
import java.util.Objects;

import javax.management.JMException;
import javax.management.ObjectName;
import javax.management.StandardMBean;

/**
 * Has a stock broker read claims: KAFKA_OPTS=-javaagent:batchval-broker-agent.jar=OPTIONS.
 *
 * <p>All classes are checked before the first is patched. Where an option is wrong or a class is
 * not as it is known, nothing is patched and the broker runs as without the agent. So it does where
 * the agent is given twice with different options: what is trusted must not depend on their order.
 */
public final class Agent {
    static final String MBEAN = "batchval:type=claims";

    /** Of the agent that is given first; written once, by the thread that starts agents. */
    private static Counters counters;
    private static String given;

    public static void premain(String argument, Instrumentation instrumentation) {
        Log log = new Log();
        if (counters != null) {
            again(argument, log);
            return;
        }
        counters = new Counters();
        given = argument;
        try {
            register(counters);
            Options options = Options.parse(argument);
            ClassLoader loader = ClassLoader.getSystemClassLoader();
            Patches patches = Patches.of(name -> bytes(loader, name));
            instrumentation.addTransformer(new Transformer(patches, loader, counters, log));
            Hooks.install(options, counters, log);
            String release = Layout.release(loader);
            counters.active("Kafka " + release + ", " + options);
            log.info("claims are read in Kafka " + release + "; " + options);
        } catch (IllegalArgumentException | ShapeMismatch e) {
            inactive(counters, log, e.getMessage());
        } catch (Throwable e) {
            inactive(counters, log, e.toString());
        }
    }

    private static void again(String argument, Log log) {
        if (Objects.equals(argument, given)) {
            log.warn("the agent is given twice with the same options; the second one is ignored");
            return;
        }
        Hooks.uninstall();
        inactive(counters, log, "the agent is given twice with different options: give it once");
    }

    private static void inactive(Counters counters, Log log, String reason) {
        counters.inactive(reason);
        log.warn("inactive, the broker runs as without the agent: " + reason);
    }

    private static void register(Counters counters) throws JMException {
        ManagementFactory.getPlatformMBeanServer().registerMBean(
            new StandardMBean(counters, ClaimsMBean.class), new ObjectName(MBEAN));
    }

    private static byte[] bytes(ClassLoader loader, String name) {
        try (InputStream in = loader.getResourceAsStream(name + ".class")) {
            return in == null ? null : in.readAllBytes();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Patches the five classes as the broker's class loader defines them. */
    private static final class Transformer implements ClassFileTransformer {
        private final Patches patches;
        private final ClassLoader loader;
        private final Counters counters;
        private final Log log;

        Transformer(Patches patches, ClassLoader loader, Counters counters, Log log) {
            this.patches = patches;
            this.loader = loader;
            this.counters = counters;
            this.log = log;
        }

        @Override
        public byte[] transform(ClassLoader of, String name, Class<?> redefined,
                                ProtectionDomain domain, byte[] bytes) {
            if (of != loader || name == null || !patches.has(name))
                return null;
            try {
                return patches.patch(name, bytes);
            } catch (Throwable e) {
                // another agent has changed the class: the others of the five then change nothing
                Hooks.uninstall();
                inactive(counters, log, e instanceof ShapeMismatch ? e.getMessage()
                    : name.replace('/', '.') + ": " + e);
                return null;
            }
        }
    }

    private Agent() { }
}
