package batchval.broker;

import batchval.claims.Ledger;
import batchval.claims.Policy;

import java.io.IOException;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

/**
 * The agent's options: a properties file, or properties separated by semicolons.
 * <pre>
 * policy                  ignore | verify | audit:RATE | trust, where no rule matches
 * rule.N                  POLICY[,topic=GLOB][,principal=GLOB][,listener=NAME]; the lowest N counts
 * secret                  the key of the sample: 32 to 128 hexadecimal digits
 * demotion.ms             how long all batches of a sender are verified once it has lied
 * first.checked           how many batches of a new sender are all verified under audit
 * max.decompressed.bytes  claims of more than that are not believed; a batch of more is a lie
 * measure.header          topics (a GLOB) whose batches are believed by their header, without
 *                         claims: to measure that alternative, never in production
 * </pre>
 */
public final class Options {
    private static final long MAX_DECOMPRESSED = 64L << 20;
    private static final String NAMES =
        "policy, rule.N, secret, demotion.ms, first.checked, max.decompressed.bytes,"
            + " measure.header";
    private static final String RULE =
        "RULE is POLICY[,topic=GLOB][,principal=GLOB][,listener=NAME]";

    /** Whose claims are treated how; null matches all. */
    public record Rule(String name, Policy policy, String topic, String principal,
                       String listener) {
        /** Return whether the rule names one listener, so that it may believe ANONYMOUS. */
        public boolean namesListener() {
            return listener != null;
        }

        boolean matches(String ofTopic, String ofPrincipal, String ofListener) {
            return (topic == null || Glob.matches(topic, ofTopic))
                && (principal == null || Glob.matches(principal, ofPrincipal))
                && (listener == null || listener.equals(ofListener));
        }
    }

    private final List<Rule> rules = new ArrayList<>();
    private final Rule otherwise;
    private final long demotionMs;
    private final long maxDecompressedBytes;
    private final Ledger ledger;
    /** Null: none. */
    private final String measuredTopics;

    private Options(Map<String, String> properties) {
        TreeMap<Integer, Rule> numbered = new TreeMap<>();
        byte[] secret = null;
        long demotion = Ledger.DEMOTION_MS;
        long maxDecompressed = MAX_DECOMPRESSED;
        int firstChecked = Ledger.FIRST_CHECKED;
        Policy policy = Policy.IGNORE;
        String measured = null;
        for (Map.Entry<String, String> entry : properties.entrySet()) {
            String name = entry.getKey();
            String value = entry.getValue();
            switch (name) {
                case "policy" -> policy = Policy.parse(value);
                case "secret" -> secret = hex(value);
                case "demotion.ms" -> demotion = number(name, value, 0, Long.MAX_VALUE / 2);
                case "first.checked" ->
                    firstChecked = (int) number(name, value, 0, Integer.MAX_VALUE);
                case "max.decompressed.bytes" ->
                    maxDecompressed = number(name, value, 1, Integer.MAX_VALUE);
                case "measure.header" -> measured = value;
                default -> {
                    if (!name.startsWith("rule."))
                        throw new IllegalArgumentException("unknown option '" + name
                            + "': expected one of " + NAMES);
                    Rule rule = rule(name, value);
                    int n = (int) number(name, name.substring("rule.".length()), 0, 9999);
                    if (numbered.put(n, rule) != null)
                        throw new IllegalArgumentException("rule " + n + " is there twice");
                }
            }
        }
        rules.addAll(numbered.values());
        otherwise = new Rule("policy", policy, null, null, null);
        demotionMs = demotion;
        maxDecompressedBytes = maxDecompressed;
        measuredTopics = measured;
        ledger = new Ledger(secret, firstChecked, demotion, Ledger.MOST_SENDERS);
    }

    /**
     * Return the options of the agent's argument.
     *
     * @throws IllegalArgumentException an option is wrong, or the file cannot be read
     */
    public static Options parse(String argument) {
        if (argument == null || argument.isBlank())
            return new Options(Map.of());
        Map<String, String> properties = new TreeMap<>();
        if (!Files.isRegularFile(Path.of(argument)) && argument.contains("=")) {
            for (String part : argument.split(";")) {
                int equals = part.indexOf('=');
                if (equals < 0)
                    throw new IllegalArgumentException("invalid option '" + part
                        + "': expected NAME=VALUE, separated by ';'");
                if (properties.put(part.substring(0, equals), part.substring(equals + 1)) != null)
                    throw new IllegalArgumentException("option '" + part.substring(0, equals)
                        + "' is there twice");
            }
            return new Options(properties);
        }
        Properties file = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(argument), StandardCharsets.UTF_8)) {
            file.load(reader);
        } catch (IOException e) {
            throw new IllegalArgumentException("cannot read the options file '" + argument + "': "
                + e);
        }
        for (String name : file.stringPropertyNames())
            properties.put(name, file.getProperty(name).strip());
        return new Options(properties);
    }

    private static Rule rule(String name, String value) {
        // a principal may be a distinguished name, which has commas
        String[] parts = value.split(",(?=(topic|principal|listener)=)");
        String topic = null;
        String principal = null;
        String listener = null;
        for (int i = 1; i < parts.length; i++) {
            String condition = parts[i].substring(parts[i].indexOf('=') + 1);
            boolean again;
            if (parts[i].startsWith("topic=")) {
                again = topic != null;
                topic = condition;
            } else if (parts[i].startsWith("principal=")) {
                again = principal != null;
                principal = condition;
            } else {
                again = listener != null;
                listener = condition;
            }
            if (again || condition.isEmpty())
                throw new IllegalArgumentException("invalid " + name + " '" + value + "': "
                    + parts[i] + (again ? " is a second one; " : " is empty; ") + RULE);
        }
        try {
            return new Rule(name, Policy.parse(parts[0]), topic, principal, listener);
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("invalid " + name + " '" + value + "': "
                + e.getMessage() + "; " + RULE);
        }
    }

    private static long number(String name, String value, long least, long most) {
        try {
            long number = Long.parseLong(value);
            if (number >= least && number <= most)
                return number;
        } catch (NumberFormatException e) {
            // the same message
        }
        throw new IllegalArgumentException("invalid " + name + " '" + value
            + "': expected a number from " + least + " to " + most);
    }

    private static byte[] hex(String value) {
        try {
            byte[] secret = HexFormat.of().parseHex(value);
            if (secret.length >= 16 && secret.length <= 64)
                return secret;
        } catch (IllegalArgumentException e) {
            // the same message
        }
        throw new IllegalArgumentException("invalid secret of " + value.length()
            + " characters: expected 32 to 128 hexadecimal digits");
    }

    /** Return the first rule that matches, else that of the option policy. */
    public Rule rule(String topic, String principal, String listener) {
        for (Rule rule : rules)
            if (rule.matches(topic, principal, listener))
                return rule;
        return otherwise;
    }

    /** Return whether a topic's batches are believed by their header, for a measurement. */
    public boolean measuresHeader(String topic) {
        return measuredTopics != null && Glob.matches(measuredTopics, topic);
    }

    /** Return whether no claims are ever read. */
    public boolean ignoresAll() {
        return measuredTopics == null && otherwise.policy.word() == Policy.Word.IGNORE
            && rules.stream().allMatch(rule -> rule.policy.word() == Policy.Word.IGNORE);
    }

    public Ledger ledger() {
        return ledger;
    }

    public long demotionMs() {
        return demotionMs;
    }

    public long maxDecompressedBytes() {
        return maxDecompressedBytes;
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder("policy " + otherwise.policy);
        for (Rule rule : rules) {
            text.append("; ").append(rule.name).append(' ').append(rule.policy);
            if (rule.topic != null)
                text.append(" topic ").append(rule.topic);
            if (rule.principal != null)
                text.append(" principal ").append(rule.principal);
            if (rule.listener != null)
                text.append(" listener ").append(rule.listener);
        }
        if (measuredTopics != null)
            text.append("; MEASUREMENT: headers of topic ").append(measuredTopics)
                .append(" are believed without claims");
        return text.toString();
    }
}
