/* How fast is this core just now? A fixed piece of work, timed.
 *
 * A virtual core flips between two speeds (a neighbour on the other hyperthread, a lower clock).
 * Every sample of a bench has the probe's time with it, so that samples taken in the slow state
 * can be distinguished from a slow program. All times are of this thread's CPU clock, so that other
 * processes on the core do not count. The work is what a validator's is like: four short chains,
 * loads that hit the L1 cache, branches that are foreseen. */
#ifndef BATCHVAL_BENCH_PROBE_H
#define BATCHVAL_BENCH_PROBE_H
#include <stdint.h>
#include <time.h>

static inline int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double probe_once(void)
{
    static uint32_t table[1024];
    uint32_t a = 1, b = 2, c = 3, d = 4;
    int64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < 10000; i++) {
        a = a * 5 + table[a >> 22];
        b = b * 7 + table[b >> 22];
        c = (c ^ c >> 3) + table[i & 1023];
        d = (d ^ d >> 5) + i;
        if (__builtin_expect(a == 0xdeadbeef, 0)) table[0]++;
    }
    int64_t took = now_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    __asm__ volatile("" : : "r"(a), "r"(b), "r"(c), "r"(d));
    return (double)took;
}

/* the better of two: a timer interrupt in one of them does not mean a slow core */
static inline double probe_ns(void)
{
    double first = probe_once(), second = probe_once();
    return first < second ? first : second;
}
#endif
