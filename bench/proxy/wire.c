/*
 * The two ends of the path that a proxy stands in: a client that sends prebuilt requests, and a
 * broker that answers at once with prebuilt answers. Neither is meant to be the bound.
 *
 *   frame, either way      int32 length (big-endian), then so many bytes
 *   request                int16 api_key, int16 api_version, int32 correlation_id, ...
 *   answer                 int32 correlation_id, body
 *   FRAMES  (file)         whole requests, one after the other, their lengths included
 *   ANSWERS (file)         int16 api_key, int16 api_version, int32 size, body: what is answered to that request
 *
 *   wire broker ANSWERS                                     prints "listening PORT"; what is not in ANSWERS ends the
 *                                                           connection. A request's bytes are dropped in the kernel.
 *   wire client PORT FRAMES ANSWERS CONNECTIONS WINDOW SECONDS
 *                                                           one line of JSON. Each answer must have the next
 *                                                           correlation id and the body that ANSWERS has, else it stops.
 *   wire paced PORT FRAMES ANSWERS MASK CONNECTIONS WINDOW REQUESTS BYTES_PER_SECOND
 *                            so many requests at this pace, then one line of JSON. Bits of an
 *                            answer that are 0 in MASK (a file as long as its body) may differ:
 *                            offsets that a broker assigns.
 *   wire open PORT FRAMES ANSWERS CONNECTIONS RATE SECONDS
 *                            an open loop: RATE requests a second, one connection after the other,
 *                            whatever the answers do. A latency counts from when its request was due.
 *   wire client-tls ..., wire paced-tls ...                 the same over TLS 1.3 with AES-128-GCM, where it was built
 *                                                           with -DTLS and OpenSSL. No certificate is verified.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#ifdef TLS
#include <openssl/ssl.h>
#endif

enum { MAX_ANSWERS = 64, MAX_WINDOW = 4096, EVENTS = 256 };

struct bytes {
    uint8_t *data;
    size_t size;
};

struct answer {
    int16_t key, version;
    struct bytes body;
};

static struct answer answers[MAX_ANSWERS];
static int answers_count;

static void die(const char *what)
{
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint32_t be32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return ntohl(v);
}

static void put32(uint8_t *p, uint32_t v)
{
    v = htonl(v);
    memcpy(p, &v, 4);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct bytes whole_file(const char *path)
{
    struct bytes file = {0};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END))
        die(path);
    file.size = (size_t)ftell(f);
    rewind(f);
    file.data = malloc(file.size + 1);
    if (!file.data || fread(file.data, 1, file.size, f) != file.size)
        die(path);
    fclose(f);
    return file;
}

static void read_answers(const char *path)
{
    struct bytes file = whole_file(path);
    for (size_t at = 0; at + 8 <= file.size && answers_count < MAX_ANSWERS;) {
        struct answer *a = &answers[answers_count++];
        a->key = (int16_t)(file.data[at] << 8 | file.data[at + 1]);
        a->version = (int16_t)(file.data[at + 2] << 8 | file.data[at + 3]);
        a->body.size = be32(file.data + at + 4);
        a->body.data = file.data + at + 8;
        at += 8 + a->body.size;
    }
}

static const struct bytes *answer_to(const uint8_t *request)
{
    int16_t key = (int16_t)(request[0] << 8 | request[1]), version = (int16_t)(request[2] << 8 | request[3]);
    for (int i = 0; i < answers_count; i++)
        if (answers[i].key == key && answers[i].version == version)
            return &answers[i].body;
    return NULL;
}

static void watch(int poll, int fd, void *of, uint32_t events, int how)
{
    struct epoll_event e = {.events = events, .data.ptr = of};
    if (epoll_ctl(poll, how, fd, &e))
        die("epoll_ctl");
}

/* ---- broker ---- */

struct owed {
    const struct bytes *body;
    uint32_t correlation_id;
};

struct peer {
    int fd;
    uint8_t head[12]; /* length, key, version, correlation id */
    size_t got;       /* of the head */
    size_t rest;      /* of the request after it */
    struct owed *queue;
    size_t first, count, capacity;
    size_t sent; /* of the first */
    int waits;
};

static int pay(int poll, struct peer *p)
{
    while (p->count) {
        struct owed *o = &p->queue[p->first];
        uint8_t head[8];
        struct iovec parts[2];
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
        size_t skip = p->sent < 8 ? p->sent : 8;
        put32(head, (uint32_t)(4 + o->body->size));
        put32(head + 4, o->correlation_id);
        parts[0] = (struct iovec){head + skip, 8 - skip};
        parts[1] = (struct iovec){o->body->data + (p->sent - skip), o->body->size - (p->sent - skip)};
        ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN)
                return -1;
            if (!p->waits)
                watch(poll, p->fd, p, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            p->waits = 1;
            return 0;
        }
        p->sent += (size_t)n;
        if (p->sent == 8 + o->body->size) {
            p->sent = 0;
            p->first++;
            p->count--;
        }
    }
    p->first = 0;
    if (p->waits)
        watch(poll, p->fd, p, EPOLLIN, EPOLL_CTL_MOD);
    p->waits = 0;
    return 0;
}

static int owe(struct peer *p)
{
    const struct bytes *body = answer_to(p->head + 4);
    if (!body)
        return -1;
    if (p->first + p->count == p->capacity) {
        p->capacity = p->capacity ? 2 * p->capacity : 16;
        p->queue = realloc(p->queue, p->capacity * sizeof *p->queue);
        if (!p->queue)
            die("memory");
    }
    p->queue[p->first + p->count++] = (struct owed){body, be32(p->head + 8)};
    return 0;
}

static int take(int poll, struct peer *p)
{
    uint8_t some[16 << 10];
    for (int turns = 0; turns < 16; turns++) {
        ssize_t n;
        if (p->rest > sizeof some) {
            n = recv(p->fd, NULL, p->rest, MSG_TRUNC | MSG_DONTWAIT);
            if (n > 0) {
                p->rest -= (size_t)n;
                if (!p->rest && owe(p))
                    return -1;
                continue;
            }
        } else {
            n = recv(p->fd, some, sizeof some, MSG_DONTWAIT);
        }
        if (n == 0)
            return -1;
        if (n < 0)
            return errno == EAGAIN ? pay(poll, p) : -1;
        for (size_t at = 0, end = (size_t)n; at < end;) {
            size_t piece = p->rest ? p->rest : sizeof p->head - p->got;
            if (piece > end - at)
                piece = end - at;
            if (p->rest) {
                p->rest -= piece;
            } else {
                memcpy(p->head + p->got, some + at, piece);
                p->got += piece;
                if (p->got == sizeof p->head) {
                    if (be32(p->head) < 8)
                        return -1;
                    p->got = 0;
                    p->rest = be32(p->head) - 8;
                    at += piece;
                    if (!p->rest && owe(p))
                        return -1;
                    continue;
                }
            }
            at += piece;
            if (!p->rest && !p->got && owe(p))
                return -1;
        }
        if ((size_t)n < sizeof some && !p->rest)
            break;
    }
    return pay(poll, p);
}

static void broker(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0), one = 1;
    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&at, &size))
        die("listen");
    watch(poll, listener, NULL, EPOLLIN, EPOLL_CTL_ADD);
    printf("listening %d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            struct peer *p = events[i].data.ptr;
            if (!p) {
                int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (fd < 0)
                    continue;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                p = calloc(1, sizeof *p);
                p->fd = fd;
                watch(poll, fd, p, EPOLLIN, EPOLL_CTL_ADD);
            } else if (take(poll, p)) {
                close(p->fd);
                free(p->queue);
                free(p);
            }
        }
    }
}

/* ---- client ---- */

struct conn {
    int fd;
    size_t frame; /* the next one of the file */
    size_t sent;  /* of it */
    uint8_t head[12];
    uint32_t next, answered; /* correlation ids */
    const struct bytes *wanted[MAX_WINDOW];
    double since[MAX_WINDOW];
    uint8_t *in;
    size_t got;
    int waits;
#ifdef TLS
    SSL *tls;
#endif
};

/* Both as the system calls: -1 and EAGAIN where nothing can be done now. */

static ssize_t conn_send(struct conn *c, struct iovec parts[2])
{
#ifdef TLS
    if (c->tls) {
        static uint8_t record[16 << 10];
        size_t head = parts[0].iov_len, body = parts[1].iov_len, sent;
        if (body > sizeof record - head)
            body = sizeof record - head;
        memcpy(record, parts[0].iov_base, head);
        memcpy(record + head, parts[1].iov_base, body);
        if (SSL_write_ex(c->tls, record, head + body, &sent))
            return (ssize_t)sent;
        errno = SSL_get_error(c->tls, 0) == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
        return -1;
    }
#endif
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(c->fd, &m, MSG_NOSIGNAL);
}

static ssize_t conn_recv(struct conn *c, uint8_t *to, size_t capacity)
{
#ifdef TLS
    if (c->tls) {
        size_t all = 0, n;
        /* epoll does not see the bytes that it holds */
        while (all < capacity && SSL_read_ex(c->tls, to + all, capacity - all, &n))
            all += n;
        if (all)
            return (ssize_t)all;
        int error = SSL_get_error(c->tls, 0);
        if (error == SSL_ERROR_ZERO_RETURN)
            return 0;
        errno = error == SSL_ERROR_WANT_READ ? EAGAIN : EPIPE;
        return -1;
    }
#endif
    return recv(c->fd, to, capacity, MSG_DONTWAIT);
}

static void secure(struct conn *c)
{
#ifdef TLS
    static SSL_CTX *context;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) ||
            !SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256"))
            die("TLS");
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    c->tls = SSL_new(context);
    if (!c->tls || !SSL_set_fd(c->tls, c->fd) || SSL_connect(c->tls) != 1)
        die("handshake");
#else
    (void)c;
    errno = ENOTSUP;
    die("built without TLS");
#endif
}

static struct bytes *frames;
static size_t frames_count;
static double *latencies;
static size_t latencies_count, latencies_capacity;
static uint64_t bytes_sent;

/* Limits of a paced run, by bytes, and of an open loop, by requests; all 0 in the other runs. */
static struct {
    double bytes_per_second, rate, start;
    uint64_t requests, requests_started, bytes_started;
    int is_off; /* requests go out at once */
    struct bytes mask;
} pace;

/* Seconds after the start of the run when the next request is due. */
static double due(void)
{
    return pace.rate > 0 ? (double)pace.requests_started / pace.rate
                         : (double)pace.bytes_started / pace.bytes_per_second;
}

static int may_start(void)
{
    if (!pace.requests || pace.is_off)
        return 1;
    return pace.requests_started < pace.requests && due() <= now() - pace.start;
}

static int is_expected(const uint8_t *body, const struct bytes *wanted)
{
    if (!pace.mask.size)
        return !memcmp(body, wanted->data, wanted->size);
    if (wanted->size != pace.mask.size)
        return 0;
    for (size_t i = 0; i < wanted->size; i++)
        if ((body[i] ^ wanted->data[i]) & pace.mask.data[i])
            return 0;
    return 1;
}

static void cut(struct bytes file)
{
    for (size_t at = 0; at + 12 <= file.size;) {
        frames = realloc(frames, (frames_count + 1) * sizeof *frames);
        frames[frames_count++] = (struct bytes){file.data + at, be32(file.data + at) + 4};
        at += be32(file.data + at) + 4;
    }
    if (!frames_count)
        die("no frames");
}

static void push(int poll, struct conn *c, uint32_t window, int more)
{
    while (c->sent || (more && c->next - c->answered < window && may_start())) {
        struct bytes *f = &frames[c->frame];
        struct iovec parts[2];
        if (!c->sent) {
            memcpy(c->head, f->data, 8);
            put32(c->head + 8, c->next);
            c->wanted[c->next % MAX_WINDOW] = answer_to(f->data + 4);
            c->since[c->next % MAX_WINDOW] = pace.rate > 0 ? pace.start + due() : now();
            c->next++;
        }
        size_t skip = c->sent < 12 ? c->sent : 12, body_sent = c->sent - skip;
        parts[0] = (struct iovec){c->head + skip, 12 - skip};
        parts[1] = (struct iovec){f->data + 12 + body_sent, f->size - 12 - body_sent};
        ssize_t n = conn_send(c, parts);
        if (n < 0) {
            if (errno != EAGAIN)
                die("the proxy ended the connection (send)");
            if (!c->sent) /* it is not under way: not even a byte of it */
                c->next--;
            if (!c->waits)
                watch(poll, c->fd, c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            c->waits = 1;
            return;
        }
        if (!c->sent) {
            pace.requests_started++;
            pace.bytes_started += f->size;
        }
        c->sent += (size_t)n;
        bytes_sent += (uint64_t)n;
        if (c->sent == f->size) {
            c->sent = 0;
            c->frame = (c->frame + 1) % frames_count;
        }
    }
    if (c->waits)
        watch(poll, c->fd, c, EPOLLIN, EPOLL_CTL_MOD);
    c->waits = 0;
}

static void pull(struct conn *c, size_t capacity)
{
    ssize_t n = conn_recv(c, c->in + c->got, capacity - c->got);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        die("the proxy ended the connection (recv)");
    c->got += (size_t)n;
    size_t at = 0;
    while (c->got - at >= 8 && c->got - at >= 4 + (size_t)be32(c->in + at)) {
        size_t size = be32(c->in + at);
        const struct bytes *body = c->wanted[c->answered % MAX_WINDOW];
        if (be32(c->in + at + 4) != c->answered || c->answered == c->next) {
            fprintf(stderr, "wire: an answer out of turn\n");
            exit(1);
        }
        if (!body || size - 4 != body->size || !is_expected(c->in + at + 8, body)) {
            fprintf(stderr, "wire: not the broker's answer: refused?\n");
            exit(1);
        }
        if (latencies_count == latencies_capacity) {
            latencies_capacity = latencies_capacity ? 2 * latencies_capacity : 1 << 16;
            latencies = realloc(latencies, latencies_capacity * sizeof *latencies);
        }
        latencies[latencies_count++] = now() - c->since[c->answered % MAX_WINDOW];
        c->answered++;
        at += 4 + size;
    }
    memmove(c->in, c->in + at, c->got - at);
    c->got -= at;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double q)
{
    return latencies_count ? latencies[(size_t)(q * (double)(latencies_count - 1))] * 1e6 : -1;
}

/* Wait for events; in a paced run no longer than until the next request is due, and not at all where
 * one is, unless it was before this call's last turn, too: then it waits for an answer or for room. */
static int await(int poll_fd, struct epoll_event *events)
{
    static uint64_t overdue = UINT64_MAX; /* the request that was due at the last call */
    struct pollfd one = {poll_fd, POLLIN, 0};
    if (!pace.requests || pace.requests_started == pace.requests)
        return epoll_wait(poll_fd, events, EVENTS, 100);
    double wait = due() - (now() - pace.start);
    if (wait > 0.1)
        return epoll_wait(poll_fd, events, EVENTS, 100);
    if (wait > 0) {
        struct timespec t = {.tv_nsec = (long)(wait * 1e9) + 1};
        ppoll(&one, 1, &t, NULL);
    }
    int is_stuck = wait <= 0 && pace.requests_started == overdue;
    overdue = wait > 0 ? UINT64_MAX : pace.requests_started;
    return epoll_wait(poll_fd, events, EVENTS, is_stuck ? 100 : 0);
}

/* Take what has come, and send on. */
static void serve(int poll, struct epoll_event *events, int count, size_t capacity, uint32_t window, int more)
{
    for (int i = 0; i < count; i++) {
        struct conn *c = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            pull(c, capacity);
        push(poll, c, window, more);
    }
}

static int are_answered(const struct conn *all, int connections)
{
    for (int i = 0; i < connections; i++)
        if (all[i].next != all[i].answered)
            return 0;
    return 1;
}

/* One request on each connection, so that both sides of the proxy are open. It is not counted. */
static void open_whole(int poll, struct conn *all, int connections, size_t capacity)
{
    struct epoll_event events[EVENTS];
    double last = now() + 60;
    pace.is_off = 1;
    for (int i = 0; i < connections; i++)
        push(poll, &all[i], 1, 1);
    while (!are_answered(all, connections)) {
        serve(poll, events, epoll_wait(poll, events, EVENTS, 100), capacity, 1, 0);
        if (now() > last)
            die("answers do not come");
    }
    pace.is_off = 0;
    pace.requests_started = pace.bytes_started = bytes_sent = 0;
    latencies_count = 0;
}

static int client(int port, int connections, uint32_t window, double seconds, int tls)
{
    int poll = epoll_create1(0), one = 1;
    size_t capacity = 64 << 10;
    struct conn *all = calloc((size_t)connections, sizeof *all);
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    for (int i = 0; i < answers_count; i++)
        if (2 * answers[i].body.size + 16 > capacity)
            capacity = 2 * answers[i].body.size + 16;
    if (window > MAX_WINDOW / 2)
        window = MAX_WINDOW / 2;
    for (int i = 0; i < connections; i++) {
        struct conn *c = &all[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->fd, (struct sockaddr *)&to, sizeof to))
            die("connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (tls)
            secure(c);
        c->in = malloc(capacity);
        c->frame = (size_t)i * frames_count / (size_t)connections;
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        watch(poll, c->fd, c, EPOLLIN, EPOLL_CTL_ADD);
    }
    if (pace.rate > 0)
        open_whole(poll, all, connections, capacity);
    double start = pace.start = now(), end = start + seconds, last = end + 20;
    for (int i = 0; i < connections && !pace.requests; i++)
        push(poll, &all[i], window, 1);
    for (int turn = 0;;) {
        struct epoll_event events[EVENTS];
        int count = await(poll, events);
        int more = now() < end && (!pace.requests || pace.requests_started < pace.requests);
        serve(poll, events, count, capacity, window, more && !pace.requests);
        /* in a paced run requests go out on one connection after the other */
        for (int i = 0; pace.requests && more && i < connections && may_start(); i++) {
            push(poll, &all[turn], window, more);
            turn = (turn + 1) % connections;
        }
        if (!more) {
            if (last > now() + 20)
                last = now() + 20;
            if (are_answered(all, connections))
                break;
            if (now() > last) {
                fprintf(stderr, "wire: answers do not come\n");
                return 1;
            }
        }
    }
    double took = now() - start;
    qsort(latencies, latencies_count, sizeof *latencies, ascending);
    printf("{\"requests\": %zu, \"bytes\": %llu, \"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f}\n",
           latencies_count, (unsigned long long)bytes_sent, took, quantile(0.5), quantile(0.99));
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && !strcmp(argv[1], "broker")) {
        read_answers(argv[2]);
        broker();
    }
    if (argc == 8 && (!strcmp(argv[1], "client") || !strcmp(argv[1], "client-tls"))) {
        cut(whole_file(argv[3]));
        read_answers(argv[4]);
        return client(atoi(argv[2]), atoi(argv[5]), (uint32_t)atoi(argv[6]), atof(argv[7]),
                      argv[1][6] != 0);
    }
    if (argc == 10 && (!strcmp(argv[1], "paced") || !strcmp(argv[1], "paced-tls"))) {
        cut(whole_file(argv[3]));
        read_answers(argv[4]);
        pace.mask = whole_file(argv[5]);
        pace.requests = strtoull(argv[8], NULL, 10);
        pace.bytes_per_second = atof(argv[9]);
        if (!pace.requests || pace.bytes_per_second <= 0)
            return 2;
        return client(atoi(argv[2]), atoi(argv[6]), (uint32_t)atoi(argv[7]), 1e9,
                      argv[1][5] != 0);
    }
    if (argc == 8 && !strcmp(argv[1], "open")) {
        cut(whole_file(argv[3]));
        read_answers(argv[4]);
        pace.rate = atof(argv[6]);
        pace.requests = (uint64_t)(pace.rate * atof(argv[7]));
        if (!pace.requests)
            return 2;
        return client(atoi(argv[2]), atoi(argv[5]), MAX_WINDOW / 2, 1e9, 0);
    }
    fprintf(stderr, "usage: wire broker ANSWERS\n"
                    "       wire client PORT FRAMES ANSWERS CONNECTIONS WINDOW SECONDS\n"
                    "       wire paced PORT FRAMES ANSWERS MASK CONNECTIONS WINDOW REQUESTS "
                    "BYTES_PER_SECOND\n"
                    "       wire open PORT FRAMES ANSWERS CONNECTIONS RATE SECONDS\n");
    return 2;
}
