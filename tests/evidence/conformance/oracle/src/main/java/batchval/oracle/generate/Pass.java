package batchval.oracle.generate;

import batchval.oracle.Json;
import batchval.oracle.LogClasses;

import com.fasterxml.jackson.databind.node.ObjectNode;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.function.Supplier;

/** One walk through all families: everything random in it follows from its number. Equal cases are kept once. */
final class Pass {
    private final long number;
    private final List<Case> cases = new ArrayList<>();
    private final Set<List<Object>> seen = new HashSet<>();

    Pass(long number) {
        this.number = number;
    }

    /** The whole pass. Bombs say the same in every pass, so only the first has them. */
    static List<Case> of(long number, boolean first) {
        Pass p = new Pass(number);
        Valid.make(p);
        MultiBatch.make(p);
        Control.make(p);
        Timestamps.make(p);
        Compacted.make(p);
        HeaderFields.make(p);
        RecordFields.make(p);
        Damage.make(p);
        Streams.make(p);
        Legacy.make(p);
        Follower.make(p);
        Mixtures.make(p);
        if (LogClasses.ADMITS_PRODUCE_V0)
            OldRequests.make(p);
        if (!LogClasses.CHECKS_LENGTHS)
            StatedLengths.make(p, first);
        Appends.make(p);
        if (first) {
            Large.make(p);
            Bombs.make(p);
        }
        return p.cases;
    }

    /** The cases so far. */
    List<Case> cases() {
        return List.copyOf(cases);
    }

    /** What every case starts from. */
    static ObjectNode cfg() {
        return Json.object().put("now", Content.NOW).put("first_offset", 1000).put("leader_epoch", 7);
    }

    /** A seed of its own for each family and its parts. */
    long seed(String family, Object... parts) {
        return number * 1_000_003L + (family + Arrays.deepToString(parts)).hashCode();
    }

    Random random(String family, Object... parts) {
        return new Random(seed(family, parts));
    }

    void add(String family, long seed, ObjectNode cfg, byte[] batch) {
        if (seen.add(List.of(cfg, Arrays.hashCode(batch), batch.length)))
            cases.add(new Case(family, seed, cfg, () -> batch, false));
    }

    void addSlow(String family, long seed, ObjectNode cfg, Supplier<byte[]> batch) {
        cases.add(new Case(family, seed, cfg, batch, true));
    }
}
