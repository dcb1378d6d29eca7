package batchval.broker.hook;

import java.io.IOException;
import java.io.InputStream;

/** The stream that Kafka reads records from; a walk sees the same bytes. */
final class WatchedStream extends InputStream {
    private final InputStream in;
    private final Call call;

    WatchedStream(InputStream in, Call call) {
        this.in = in;
        this.call = call;
    }

    @Override
    public int read() throws IOException {
        int b = in.read();
        if (call.hasFailed())
            return b;
        try {
            if (b < 0)
                call.walk().ended();
            else
                call.walk().read((byte) b);
        } catch (Throwable e) {
            call.failed(e);
        }
        return b;
    }

    @Override
    public int read(byte[] bytes, int from, int size) throws IOException {
        int n = in.read(bytes, from, size);
        if (call.hasFailed())
            return n;
        try {
            if (n > 0)
                call.walk().read(bytes, from, n);
            else if (n < 0)
                call.walk().ended();
        } catch (Throwable e) {
            call.failed(e);
        }
        return n;
    }

    /** Skip where the walk needs no byte, else read one: callers repeat until all is skipped. */
    @Override
    public long skip(long bytes) throws IOException {
        if (call.hasFailed())
            return in.skip(bytes);
        long most = Math.min(bytes, call.walk().skippable());
        if (most <= 0)
            return bytes <= 0 || read() < 0 ? 0 : 1;
        long n = in.skip(most);
        try {
            if (n > 0)
                call.walk().skipped((int) n);
        } catch (Throwable e) {
            call.failed(e);
        }
        return n;
    }

    @Override
    public int available() throws IOException {
        return in.available();
    }

    @Override
    public void close() throws IOException {
        in.close();
    }
}
