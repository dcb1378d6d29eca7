"""The system calls of ``receive_loop``, on descriptors that Python has made."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <errno.h>
    #include <poll.h>
    #include <sys/socket.h>
    #include <time.h>
    #include <unistd.h>

    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif

    enum { BATCHVAL_LATER = -1, BATCHVAL_ENDED = -2 };

    /* As Python's time.monotonic_ns. */
    static long long batchval_now_ns(void) {
    #ifdef __APPLE__
        return (long long)clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
    #else
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    #endif
    }

    static long batchval_outcome(ssize_t size) {
        if (size > 0) return (long)size;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return BATCHVAL_LATER;
        return BATCHVAL_ENDED;
    }

    static long batchval_recv(int socket, void *to, size_t size) {
        return batchval_outcome(recv(socket, to, size, 0));
    }

    static long batchval_send(int socket, const void *from, size_t size) {
        return batchval_outcome(send(socket, from, size, MSG_NOSIGNAL));
    }

    /* A poll ends when so many bytes have come. Without that it ends earlier. */
    static void batchval_await(int socket, int bytes) {
        (void)setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
    }

    /* A full pipe has a byte already. */
    static void batchval_ring(int pipe) { if (write(pipe, "", 1) < 0) return; }

    static void batchval_drain(int pipe) {
        char bytes[64];
        while (read(pipe, bytes, sizeof bytes) == (ssize_t)sizeof bytes) {}
    }
    """
    enum:
        LATER "BATCHVAL_LATER"
        ENDED "BATCHVAL_ENDED"
        POLLIN
        POLLOUT
    ctypedef struct PollEntry "struct pollfd":
        int fd
        short events
        short revents
    int poll(PollEntry *entries, unsigned long count, int timeout_ms) noexcept nogil
    int64_t now_ns "batchval_now_ns"() noexcept nogil
    long receive "batchval_recv"(int socket, void *to, size_t size) noexcept nogil
    long transmit "batchval_send"(int socket, const void *source, size_t size) noexcept nogil
    void await_bytes "batchval_await"(int socket, int bytes) noexcept nogil
    void ring "batchval_ring"(int pipe) noexcept nogil
    void drain "batchval_drain"(int pipe) noexcept nogil
