/* What a broker gives at most: Fetch v4 requests on bare sockets, the batches' headers looked at, everything dropped.
 *
 *   fetch_and_drop HOST PORT TOPIC PARTITIONS CONNECTIONS RECORDS [KIND]    ->  records seconds bytes cpu-seconds
 *
 * A thread a connection; the partitions are dealt out. Each thread has one buffer, asks for 1 MiB
 * of each partition, and asks again as soon as the answer is there. KIND "keep" (default) receives
 * what comes; "discard" lets the kernel throw away the values (MSG_TRUNC), which no client can do
 * that reads: then only sending costs. The clock starts before the first request and ends with the
 * answer that brings the last record asked for. */
#include <arpa/inet.h>
#include <endian.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FETCH = 1, VERSION = 4, MAX_PARTITIONS = 4096, PARTITION_BYTES = 1 << 20, FRAME_BYTES = 52428800, HEADER = 61 };

static const char *host, *port, *topic;
static int partitions, connections, discard;
static long wanted;
static atomic_long records, bytes;

static void fail(const char *what) {
    perror(what);
    _exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint8_t *put16(uint8_t *p, int v) { uint16_t w = htobe16((uint16_t)v); memcpy(p, &w, 2); return p + 2; }
static uint8_t *put32(uint8_t *p, int v) { uint32_t w = htobe32((uint32_t)v); memcpy(p, &w, 4); return p + 4; }
static uint8_t *put64(uint8_t *p, int64_t v) { uint64_t w = htobe64((uint64_t)v); memcpy(p, &w, 8); return p + 8; }
static int32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)be32toh(v); }
static int64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)be64toh(v); }

static int opened(void) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found)) fail(host);
    int one = 1, s = socket(found->ai_family, found->ai_socktype, 0);
    if (s < 0 || connect(s, found->ai_addr, found->ai_addrlen)) fail("connect");
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    freeaddrinfo(found);
    return s;
}

static void receive(int s, uint8_t *to, size_t size) {
    while (size) {
        ssize_t n = recv(s, to, size, 0);
        if (n <= 0) fail("recv");
        to += n;
        size -= (size_t)n;
    }
}

static void drop(int s, size_t size) {
    while (size) {
        ssize_t n = recv(s, NULL, size, MSG_TRUNC);
        if (n <= 0) fail("recv");
        size -= (size_t)n;
    }
}

/* A request from these offsets on. min_bytes is small, so that the broker answers soon. */
static void ask(int s, int first, const int64_t *offsets) {
    static _Thread_local uint8_t frame[64 + 256 + MAX_PARTITIONS * 16];
    int count = (partitions - first + connections - 1) / connections;
    uint8_t *p = put32(put16(put16(frame + 4, FETCH), VERSION), 0);
    p = put16(p, -1);                                                  /* no client_id */
    p = put32(put32(put32(put32(p, -1), 500), 1), FRAME_BYTES);        /* replica, max_wait_ms, min_bytes, max_bytes */
    *p++ = 0;                                                          /* read_uncommitted */
    p = put16(put32(p, 1), (int)strlen(topic));
    memcpy(p, topic, strlen(topic));
    p = put32(p + strlen(topic), count);
    for (int i = first; i < partitions; i += connections) p = put32(put64(put32(p, i), offsets[i]), PARTITION_BYTES);
    put32(frame, (int)(p - frame) - 4);
    if (send(s, frame, (size_t)(p - frame), 0) != p - frame) fail("send");
}

/* The batches of a partition: their headers are read, the rest goes by. */
static void batches(int s, uint8_t *buffer, int32_t size, int64_t *offset) {
    uint8_t own[HEADER];
    int32_t at = 0;
    if (!discard) receive(s, buffer, (size_t)size);
    while (size - at >= HEADER) {
        const uint8_t *p = discard ? own : buffer + at;
        if (discard) receive(s, own, HEADER);
        int32_t whole = 12 + get32(p + 8), left = size - at - (discard ? HEADER : 0);
        if (whole > size - at) {
            if (discard) drop(s, (size_t)left);
            return;
        }
        *offset = get64(p) + get32(p + 23) + 1; /* base_offset + last_offset_delta */
        atomic_fetch_add(&records, get32(p + 57));
        atomic_fetch_add(&bytes, whole);
        if (discard) drop(s, (size_t)(whole - HEADER));
        at += whole;
    }
    if (discard && at < size) drop(s, (size_t)(size - at));
}

static void *reader(void *first_partition) {
    int first = (int)(intptr_t)first_partition, s = opened();
    int64_t *offsets = calloc((size_t)partitions, sizeof *offsets);
    uint8_t *buffer = malloc(FRAME_BYTES), fixed[64];
    if (!buffer || !offsets) fail("malloc");
    while (atomic_load(&records) < wanted) {
        ask(s, first, offsets);
        receive(s, fixed, 4 + 4 + 4 + 4); /* length, correlation id, throttle, topics */
        int topics = get32(fixed + 12);
        for (int t = 0; t < topics; t++) {
            receive(s, fixed, 2);
            drop(s, (size_t)(fixed[0] << 8 | fixed[1]));
            receive(s, fixed, 4);
            for (int left = get32(fixed); left; left--) {
                receive(s, fixed, 4 + 2 + 8 + 8 + 4); /* index, error, high watermark, last stable offset, aborted */
                int index = get32(fixed), error = fixed[4] << 8 | fixed[5], aborted = get32(fixed + 22);
                if (error || index < 0 || index >= partitions) return fprintf(stderr, "partition %d: error %d\n", index, error), _exit(1), NULL;
                if (aborted > 0) drop(s, 16 * (size_t)aborted);
                receive(s, fixed, 4);
                if (get32(fixed) > 0) batches(s, buffer, get32(fixed), &offsets[index]);
            }
        }
    }
    return NULL;
}

int main(int count, char **argv) {
    pthread_t threads[64];
    if (count < 7) return fprintf(stderr, "usage: fetch_and_drop HOST PORT TOPIC PARTITIONS CONNECTIONS RECORDS [keep|discard]\n"), 2;
    host = argv[1], port = argv[2], topic = argv[3];
    partitions = atoi(argv[4]), connections = atoi(argv[5]), wanted = atol(argv[6]);
    discard = count > 7 && !strcmp(argv[7], "discard");
    if (partitions < 1 || partitions > MAX_PARTITIONS || connections < 1 || connections > 64 || connections > partitions || strlen(topic) > 249)
        return fprintf(stderr, "1 to %d partitions, 1 to 64 connections, no more than partitions\n", MAX_PARTITIONS), 2;
    double began = now();
    for (int i = 0; i < connections; i++)
        if (pthread_create(&threads[i], NULL, reader, (void *)(intptr_t)i)) fail("pthread_create");
    while (atomic_load(&records) < wanted) usleep(200);
    double took = now() - began;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%ld %.6f %ld %.3f\n", atomic_load(&records), took, atomic_load(&bytes),
        (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    fflush(stdout);
    _Exit(0);
}
