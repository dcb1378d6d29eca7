package batchval.oracle;

/** The command that only the oracle of a release with Fetch 0 to 3 has. */
final class More {
    /** Return whether this is the command, with arguments that it takes; it has run. */
    static boolean run(String command, String[] rest) throws Exception {
        if (!command.equals("down-convert") || rest.length != 0)
            return false;
        DownConvertCommand.run(System.out);
        return true;
    }

    private More() { }
}
