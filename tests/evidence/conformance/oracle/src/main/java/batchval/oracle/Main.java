package batchval.oracle;

import batchval.oracle.generate.GenerateCommand;

import java.util.Arrays;

/** The oracle's commands; README.md describes them. */
public final class Main {
    private static final String USAGE = """
        usage: java -jar oracle.jar COMMAND
          answer IN OUT                        adds Kafka's answers to cases (JSON lines;
                                               .gz by suffix; - standard streams)
          accepts                              answers batches with error codes alone (binary,
                                               standard streams)
          down-convert                         converts batches down to magic 0 and 1 (binary,
                                               standard streams; the oracle of 3.9.2)
          utf8                                 new String(bytes, UTF_8).getBytes(UTF_8) of each
                                               line of hex
          generate --seed N [--cases N] [--families PREFIX] OUT
                                               makes cases, without answers
          produce IN OUT                       adds Kafka's answers to whole produce requests,
                                               before the append
          error-answers IN OUT                 adds Kafka's answers to requests that fail as a
                                               whole
          errors [OUT]                         Kafka's Errors: name, code, retriable, message
          topic-keys [OUT]                     Kafka's topic configuration keys: name, default,
                                               allowed values
        commands of the newest release alone:
          golden DIR                           writes DIR/SLUG/cases.jsonl for each rule
          bench-batches [--seed N] DIR         writes the batches that are timed
          bench [OPTIONS] DIR OUT.json         times Kafka's classes on them (JMH)
        """;

    public static void main(String[] args) throws Exception {
        String command = args.length == 0 ? "" : args[0];
        String[] rest = args.length == 0 ? args : Arrays.copyOfRange(args, 1, args.length);
        switch (command) {
            case "answer" -> {
                need(rest.length == 2);
                AnswerCommand.run(rest[0], rest[1]);
            }
            case "accepts" -> {
                need(rest.length == 0);
                AcceptsCommand.run(System.out);
            }
            case "utf8" -> {
                need(rest.length == 0);
                Utf8Command.run("-", "-");
            }
            case "generate" -> {
                Options o = Options.parse(rest, "--seed", "--cases", "--families");
                need(o.has("--seed") && o.rest().size() == 1);
                GenerateCommand.run(o.number("--seed", 0), (int) o.number("--cases", -1),
                    o.text("--families", ""), o.rest().get(0));
            }
            case "produce" -> {
                need(rest.length == 2);
                ProduceCommand.run(rest[0], rest[1]);
            }
            case "error-answers" -> {
                need(rest.length == 2);
                ErrorAnswersCommand.run(rest[0], rest[1]);
            }
            case "errors" -> {
                need(rest.length <= 1);
                ErrorsCommand.run(rest.length == 1 ? rest[0] : "-");
            }
            case "topic-keys" -> {
                need(rest.length <= 1);
                TopicKeysCommand.run(rest.length == 1 ? rest[0] : "-");
            }
            default -> need(More.run(command, rest));
        }
    }

    private static void need(boolean asked) {
        if (!asked) {
            System.err.print(USAGE);
            System.exit(2);
        }
    }

    private Main() { }
}
