package batchval.oracle;

import batchval.oracle.bench.BenchBatches;
import batchval.oracle.bench.BenchCommand;
import batchval.oracle.golden.Golden;

import java.nio.file.Path;

/** The commands that only the oracle of the newest release has. */
final class More {
    /** Return whether this is one of the commands, with arguments that it takes; it has run. */
    static boolean run(String command, String[] rest) throws Exception {
        switch (command) {
            case "golden":
                return golden(rest);
            case "bench-batches":
                return batches(Options.parse(rest, "--seed"));
            case "bench":
                return bench(Options.parse(rest, "--benchmark", "--files", "--forks", "--warmups",
                    "--iterations", "--ms"));
            default:
                return false;
        }
    }

    private static boolean golden(String[] rest) throws Exception {
        if (rest.length != 1)
            return false;
        Golden.run(Path.of(rest[0]));
        return true;
    }

    private static boolean batches(Options o) throws Exception {
        if (o.rest().size() != 1)
            return false;
        BenchBatches.run(o.number("--seed", 0), Path.of(o.rest().get(0)));
        return true;
    }

    private static boolean bench(Options o) throws Exception {
        if (o.rest().size() != 2)
            return false;
        BenchCommand.Plan plan = new BenchCommand.Plan(o.text("--benchmark", "brokerPath"),
            o.text("--files", "v2-*.bin"), (int) o.number("--forks", 1),
            (int) o.number("--warmups", 3), (int) o.number("--iterations", 3),
            o.number("--ms", 400));
        BenchCommand.run(plan, Path.of(o.rest().get(0)), Path.of(o.rest().get(1)));
        return true;
    }

    private More() { }
}
