package batchval.broker;

/** A pattern where {@code *} is any text and {@code ?} one character; all of a text must match. */
final class Glob {
    private Glob() { }

    static boolean matches(String glob, String text) {
        int g = 0;
        int t = 0;
        int star = -1;
        int starText = 0;
        while (t < text.length()) {
            if (g < glob.length() && glob.charAt(g) == '*') {
                star = g++;
                starText = t;
            } else if (g < glob.length()
                && (glob.charAt(g) == '?' || glob.charAt(g) == text.charAt(t))) {
                g++;
                t++;
            } else if (star >= 0) {
                g = star + 1;
                t = ++starText;
            } else {
                return false;
            }
        }
        while (g < glob.length() && glob.charAt(g) == '*')
            g++;
        return g == glob.length();
    }
}
