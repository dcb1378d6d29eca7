/* What the bench needs in C inside a Python process: the probe, the decompressors alone, a plain read of memory.
 *
 * The decompressors come as addresses of the very functions that the core calls, and the blocks of
 * a payload as pairs (start, size), found before the clock runs: what is timed is decompression
 * into memory that is used again. */
#define _GNU_SOURCE
#include "probe.h"
#include <stddef.h>
#include <string.h>

double probe(void) { return probe_ns(); }

typedef int (*lz4_block)(const char *, char *, int, int);
typedef _Bool (*snappy_block)(const uint8_t *, size_t, uint8_t *, size_t);
typedef size_t (*zstd_frame)(void *, void *, size_t, const void *, size_t);
typedef void (*inflate_open)(void *, const uint8_t *, const uint8_t *);
typedef int (*inflate_on)(void *, uint8_t *, size_t *, size_t);
typedef uint32_t (*crc32_of)(uint32_t, const uint8_t *, size_t);

/* blocks: start, size of the input, size of the output or 0 where it is as long (stored) */
int64_t run_lz4(lz4_block decode, const uint8_t *p, const int64_t *blocks, int count,
                uint8_t *to, int64_t capacity)
{
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        const int64_t *b = blocks + 3 * i;
        if (b[2] == 0) {
            memcpy(to + at, p + b[0], (size_t)b[1]);
            at += b[1];
            continue;
        }
        int64_t most = capacity - at < 65536 ? capacity - at : 65536;
        int n = decode((const char *)p + b[0], (char *)to + at, (int)b[1], (int)most);
        if (n < 0) return -1;
        at += n;
    }
    return at;
}

int64_t run_snappy(snappy_block decode, const uint8_t *p, const int64_t *blocks, int count, uint8_t *to)
{
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        const int64_t *b = blocks + 3 * i;
        if (!decode(p + b[0], (size_t)b[1], to + at, (size_t)b[2])) return -1;
        at += b[2];
    }
    return at;
}

int64_t run_zstd(zstd_frame decode, void *context, const uint8_t *p, int64_t size, uint8_t *to,
                 int64_t capacity)
{
    return (int64_t)decode(context, to, (size_t)capacity, p, (size_t)size);
}

/* one member whose deflate data are p..p+size; its CRC-32 is part of decoding it, as it is for gzip libraries */
int64_t run_inflate(inflate_open open, inflate_on on, crc32_of crc, void *state,
                    const uint8_t *p, int64_t size, uint8_t *to, int64_t capacity)
{
    size_t at = 0;
    open(state, p, p + size);
    on(state, to, &at, (size_t)capacity);
    uint32_t sum = crc(0, to, at), stored;
    memcpy(&stored, p + size, 4);
    return sum == stored ? (int64_t)at : -1;
}

/* The new CRC of a batch whose header has become another, as claims.pxd makes it: two headers, and a shift. Against it,
 * a pass over all the bytes, and a copy of them; n times over. */
typedef uint32_t (*crc32c_of)(uint32_t, const uint8_t *, size_t);
typedef uint32_t (*crc32c_moved)(uint32_t, uint64_t);

uint32_t patch_crc(crc32c_of of, crc32c_moved moved, uint32_t crc, const uint8_t *before, int64_t size_before,
    const uint8_t *after, int64_t size_after, uint64_t tail, int64_t n)
{
    uint32_t out = 0;
    for (int64_t i = 0; i < n; i++) {
        __asm__ volatile("" : : : "memory");
        out = crc ^ moved(of(0, before, (size_t)size_before) ^ of(0, after, (size_t)size_after), tail);
    }
    return out;
}

uint32_t whole_crc(crc32c_of of, const uint8_t *p, int64_t size, int64_t n)
{
    uint32_t out = 0;
    for (int64_t i = 0; i < n; i++) {
        __asm__ volatile("" : : : "memory");
        out = of(0, p, (size_t)size);
    }
    return out;
}

int64_t copy(uint8_t *to, const uint8_t *p, int64_t size, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(to, p, (size_t)size);
        __asm__ volatile("" : : "r"(to) : "memory");
    }
    return n;
}

/* ns for reading count blocks of `size` bytes, each `stride` after the one before, by a call or
 * by plain loads */
typedef uint32_t (*crc32c_kernel)(uint32_t, const uint8_t *, size_t);

__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) static uint64_t read_all(const uint8_t *p, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        sum ^= w;
    }
    return sum;
}

double walk_memory(crc32c_kernel kernel, const uint8_t *p, int64_t size, int64_t stride, int64_t count)
{
    uint64_t sum = 0;
    int64_t start = now_ns(CLOCK_MONOTONIC);
    for (int64_t i = 0; i < count; i++) sum += kernel ? kernel(0, p + i * stride, (size_t)size) : read_all(p + i * stride, (size_t)size);
    int64_t took = now_ns(CLOCK_MONOTONIC) - start;
    __asm__ volatile("" : : "r"(sum));
    return (double)took;
}
