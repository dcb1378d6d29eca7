package batchval.oracle;

/** This release has no command of its own. */
final class More {
    static boolean run(String command, String[] rest) {
        return false;
    }

    private More() { }
}
