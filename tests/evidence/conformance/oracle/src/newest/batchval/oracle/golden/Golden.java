package batchval.oracle.golden;

import batchval.oracle.Json;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * golden DIR: one folder for each rule, extra and finding, DIR/SLUG/cases.jsonl. Three members of
 * the rule table have none: rule 17 (valid bytes below 0: no input gets there), rule 20 (zstd under
 * an old inter-broker protocol: gone in Kafka 4), and L7 (lying claims), which is about claims and
 * not about what Kafka's format can hold.
 */
public final class Golden {
    private final Path folder;

    private Golden(Path folder) {
        this.folder = folder;
    }

    public static void run(Path folder) {
        Golden g = new Golden(folder);
        RequestRules.write(g);
        ValidatorRules.write(g);
        AppendRules.write(g);
        Extras.write(g);
        Findings.write(g);
    }

    /**
     * Writes one rule's file. stage: request, analyze, validate, or append (the whole way into a
     * log), "log" for findings.
     */
    void rule(String id, String slug, String stage, Line... lines) {
        try (ByteArrayOutputStream o = new ByteArrayOutputStream()) {
            for (Line line : List.of(lines))
                Json.line(o, line.toJson(id, slug, stage));
            Path file = Files.createDirectories(folder.resolve(slug)).resolve("cases.jsonl");
            Files.write(file, o.toByteArray());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
