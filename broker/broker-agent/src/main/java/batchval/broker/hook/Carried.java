package batchval.broker.hook;

/** What travels with the records of one partition of a Produce request. */
final class Carried {
    final byte[] tag;
    final String principal;
    final boolean anonymous;
    final String listener;
    /** The validation that watches the records, while it runs. */
    Call call = null;

    Carried(byte[] tag, String principal, boolean anonymous, String listener) {
        this.tag = tag;
        this.principal = principal;
        this.anonymous = anonymous;
        this.listener = listener;
    }
}
