package batchval.oracle.generate;

import batchval.oracle.Json;
import batchval.oracle.Kafka;

import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * generate --seed N [--cases N] [--families PREFIX] OUT. Without --cases one whole pass through all
 * families. With fewer cases every family keeps its share, and at least one case; with more,
 * further passes follow, each with other random content. --families keeps those whose names start
 * so.
 */
public final class GenerateCommand {
    /** Passes of one seed are this many numbers apart from those of the next. */
    private static final long PASSES = 4096;

    public static void run(long seed, int wanted, String families, String out) throws IOException {
        int left = wanted;
        int number = 0;
        try (OutputStream to = Json.create(out)) {
            for (long pass = 0; pass < PASSES && (left > 0 || wanted < 0); pass++) {
                List<Case> cases = Pass.of(seed * PASSES + pass, pass == 0).stream()
                    .filter(c -> c.family().startsWith(families)).toList();
                if (cases.isEmpty())
                    break;
                if (wanted >= 0 && cases.size() > left)
                    cases = sample(cases, left, new Random(seed));
                for (Case c : cases)
                    Json.line(to, c.toJson(id(seed, number++)));
                left -= cases.size();
                if (wanted < 0)
                    break;
            }
        }
    }

    /** The passes of other releases hold other cases, so these have other ids. */
    private static String id(long seed, int number) {
        String release = Kafka.RELEASE.equals(Kafka.DEFAULT_RELEASE) ? "" : Kafka.RELEASE + "-";
        return String.format("k%d-%s%06d", seed, release, number);
    }

    /** As many of the cases, in their order, each family with its share. */
    private static List<Case> sample(List<Case> all, int wanted, Random r) {
        Map<String, List<Integer>> families = new LinkedHashMap<>();
        for (int i = 0; i < all.size(); i++)
            families.computeIfAbsent(all.get(i).family(), f -> new ArrayList<>()).add(i);
        List<Integer> kept = new ArrayList<>();
        List<Integer> spare = new ArrayList<>();
        for (List<Integer> members : families.values()) {
            Collections.shuffle(members, r);
            boolean slow = all.get(members.get(0)).slow();
            int share = slow ? 1 : Math.max(1, (int) ((long) members.size() * wanted / all.size()));
            kept.addAll(members.subList(0, share));
            if (!slow)
                spare.addAll(members.subList(share, members.size()));
        }
        Collections.shuffle(spare, r);
        if (kept.size() < wanted)
            kept.addAll(spare.subList(0, Math.min(spare.size(), wanted - kept.size())));
        else
            kept.subList(wanted, kept.size()).clear();
        Collections.sort(kept);
        return kept.stream().map(all::get).toList();
    }

    private GenerateCommand() { }
}
