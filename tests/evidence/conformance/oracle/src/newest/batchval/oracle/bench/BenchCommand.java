package batchval.oracle.bench;

import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.format.ResultFormatType;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.ChainedOptionsBuilder;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

import java.io.IOException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.PathMatcher;
import java.util.stream.Stream;

/**
 * bench [--benchmark NAME] [--files GLOB] [--forks N] [--warmups N] [--iterations N] [--ms N] DIR
 * OUT.json: JMH over the files of a folder of bench batches. Forks run on the JDK that runs this.
 */
public final class BenchCommand {
    /** What is asked on the command line. */
    public record Plan(String benchmark, String files, int forks, int warmups, int iterations, long ms) { }

    public static void run(Plan plan, Path folder, Path out) throws IOException, RunnerException {
        String[] files = matching(folder, plan.files());
        if (files.length == 0)
            throw new IOException("no file in " + folder + " matches " + plan.files());
        ChainedOptionsBuilder options = new OptionsBuilder()
            .include("KafkaBench\\.(" + plan.benchmark() + ")$")
            .param("folder", folder.toAbsolutePath().toString())
            .param("file", files)
            .forks(plan.forks())
            .warmupIterations(plan.warmups()).warmupTime(TimeValue.milliseconds(plan.ms()))
            .measurementIterations(plan.iterations()).measurementTime(TimeValue.milliseconds(plan.ms()))
            .jvmArgsAppend("-Xms2g", "-Xmx2g")
            .addProfiler(GCProfiler.class)
            .verbosity(VerboseMode.SILENT)
            .shouldFailOnError(true)
            .resultFormat(ResultFormatType.JSON)
            .result(out.toString());
        new Runner(options.build()).run();
    }

    private static String[] matching(Path folder, String glob) throws IOException {
        PathMatcher matcher = FileSystems.getDefault().getPathMatcher("glob:" + glob);
        try (Stream<Path> all = Files.list(folder)) {
            return all.map(Path::getFileName).filter(matcher::matches).map(Path::toString).sorted().toArray(String[]::new);
        }
    }

    private BenchCommand() { }
}
