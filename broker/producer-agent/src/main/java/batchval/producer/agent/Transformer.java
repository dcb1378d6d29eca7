package batchval.producer.agent;

import java.io.IOException;
import java.io.InputStream;
import java.lang.instrument.ClassFileTransformer;
import java.security.ProtectionDomain;
import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;

/**
 * Patches the classes of the Java producer, all or none for each class loader.
 *
 * <p>Before the first class of a loader is patched, all are read through the loader and tried. If
 * one does not match, its name is logged once and nothing is patched: the producer is a stock one.
 * The classes call each other only through interfaces that they are tested for, so that a class
 * which another agent has changed in the meantime stays as that agent left it, without harm.
 */
final class Transformer implements ClassFileTransformer {
    private final Map<ClassLoader, Map<String, Patches.Patch>> byLoader = new WeakHashMap<>();
    private final Map<String, Boolean> names = new HashMap<>();
    private final String active;

    /** @param active what the status says after {@code active: } */
    Transformer(String active) {
        this.active = active;
        for (String records : Patches.PACKAGES)
            for (String name : Patches.of(records).keySet())
                names.put(name, true);
    }

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> redefined,
                            ProtectionDomain domain, byte[] bytes) {
        if (loader == null || name == null || redefined != null || !names.containsKey(name))
            return null;
        try {
            Patches.Patch patch = patches(loader).get(name);
            return patch == null ? null : patched(patch, bytes);
        } catch (Mismatch mismatch) {
            inactive(name, mismatch.getMessage());
        } catch (Throwable failure) {
            inactive(name, failure.toString());
        }
        return null;
    }

    private static byte[] patched(Patches.Patch patch, byte[] bytes) throws Mismatch {
        KafkaClass kafka = new KafkaClass(bytes);
        patch.apply(kafka);
        return kafka.bytes();
    }

    /** Return the changes for this loader's Kafka, none where a class does not match. */
    private synchronized Map<String, Patches.Patch> patches(ClassLoader loader) {
        Map<String, Patches.Patch> known = byLoader.get(loader);
        if (known == null) {
            known = check(loader);
            byLoader.put(loader, known);
        }
        return known;
    }

    private Map<String, Patches.Patch> check(ClassLoader loader) {
        String at = "the class loader of Kafka";
        try {
            if (Class.forName(Hooks.class.getName(), false, loader) != Hooks.class) {
                inactive(at, "it has another copy of the agent");
                return Map.of();
            }
        } catch (ClassNotFoundException absent) {
            inactive(at, "it does not see the agent's classes");
            return Map.of();
        }
        for (String records : Patches.PACKAGES) {
            if (loader.getResource(Patches.builder(records) + ".class") == null)
                continue;
            Map<String, Patches.Patch> patches = Patches.of(records);
            for (Map.Entry<String, Patches.Patch> patch : patches.entrySet()) {
                try {
                    patched(patch.getValue(), read(loader, patch.getKey()));
                } catch (Mismatch mismatch) {
                    inactive(patch.getKey(), mismatch.getMessage());
                    return Map.of();
                } catch (IOException | RuntimeException failure) {
                    inactive(patch.getKey(), failure.toString());
                    return Map.of();
                }
            }
            Agent.log("active: " + active);
            Counters.status("active: " + active);
            return patches;
        }
        inactive(Patches.builder(Patches.PACKAGES.get(0)), "not found");
        return Map.of();
    }

    private static byte[] read(ClassLoader loader, String name) throws IOException, Mismatch {
        try (InputStream in = loader.getResourceAsStream(name + ".class")) {
            if (in == null)
                throw new Mismatch("not found");
            return in.readAllBytes();
        }
    }

    private static void inactive(String name, String reason) {
        String text = "inactive: " + name.replace('/', '.') + ": " + reason;
        Agent.log(text + "; the producer is not patched");
        Counters.status(text);
    }
}
