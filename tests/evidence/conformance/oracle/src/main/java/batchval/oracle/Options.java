package batchval.oracle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** "--name value" pairs and what is left of a command line. */
record Options(Map<String, String> values, List<String> rest) {
    static Options parse(String[] args, String... names) {
        Map<String, String> values = new HashMap<>();
        List<String> rest = new ArrayList<>();
        for (int i = 0; i < args.length; i++) {
            if (List.of(names).contains(args[i]) && i + 1 < args.length)
                values.put(args[i], args[++i]);
            else
                rest.add(args[i]);
        }
        return new Options(values, rest);
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    long number(String name, long otherwise) {
        return has(name) ? Long.parseLong(values.get(name)) : otherwise;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }
}
