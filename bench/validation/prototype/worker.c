/* The C prototype as a peer: a request a line on stdin, an answer a line of JSON on stdout.
 *
 *   PATH tab OPERATION tab SAMPLES tab SAMPLE_NS tab FAST     FAST: see worker.py, 0 for any sample
 *
 *   header      header fields and CRC of one batch
 *   deep        header, CRC, decompression, walk of the records; the same batch again and again
 *   header100   headers and CRCs of 100 copies, one after the other, each to a row
 *   deep100     the same, and their records walked
 *   decompress  the decompressor alone
 *
 * Times are nanoseconds of this thread's CPU clock a batch; `busy` is the share of a sample that it
 * was running. */
#define _GNU_SOURCE
#define WITH_ISAL
#include "core.h"
#include "../probe.h"
#include <stdio.h>

enum { MOST_SAMPLES = 1000, COPIES = 100 };
static ctx_t context;
static row_t rows[COPIES];
static uint8_t *batch, *copies;
static size_t size;
static volatile int64_t sink;

static void header(void) { sink += (int64_t)bv_header(batch, size, rows, 1); }
static void deep(void) { bv_header(batch, size, rows, 1); sink += bv_deep(&context, batch, rows); }
static void header100(void) { sink += (int64_t)bv_walk(copies, size * COPIES, rows, COPIES, 1); }
static void deep100(void)
{
    size_t n = bv_walk(copies, size * COPIES, rows, COPIES, 1);
    for (size_t i = 0; i < n; i++) sink += bv_deep(&context, copies + rows[i].pos, &rows[i]);
}
static void decompress(void) { sink += bv_decompress(&context, rows[0].attributes & 7, batch + 61, size - 61); }

static const struct { const char *name; void (*run)(void); int batches; } OPERATIONS[] = {
    {"header", header, 1}, {"deep", deep, 1}, {"header100", header100, COPIES}, {"deep100", deep100, COPIES}, {"decompress", decompress, 1}};

static int load(const char *path)
{
    static char loaded[4096];
    if (!strcmp(loaded, path)) return 1;
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    free(batch);
    free(copies);
    batch = malloc(16 << 20);
    size = fread(batch, 1, 16 << 20, f);
    fclose(f);
    copies = malloc(size * COPIES);
    for (int i = 0; i < COPIES; i++) memcpy(copies + i * size, batch, size);
    snprintf(loaded, sizeof loaded, "%s", path);
    return 1;
}

int main(void)
{
    char line[8192], path[4096], name[32];
    static double took[MOST_SAMPLES], busy[MOST_SAMPLES], probes[MOST_SAMPLES];
    int samples;
    double sample_ns, fast;
    ctx_init(&context, 64 << 20);
    while (fgets(line, sizeof line, stdin)) {
        unsigned chosen = 0;
        if (sscanf(line, "%4095[^\t]\t%31[^\t]\t%d\t%lf\t%lf", path, name, &samples, &sample_ns, &fast) != 5 || samples * 4 > MOST_SAMPLES || !load(path)) {
            puts("{\"error\": \"bad request\"}");
            fflush(stdout);
            continue;
        }
        while (chosen < 5 && strcmp(OPERATIONS[chosen].name, name)) chosen++;
        memset(rows, 0, sizeof rows);
        bv_header(batch, size, rows, 1);
        if (chosen == 5 || rows[0].error || bv_deep(&context, batch, rows)) {
            printf("{\"error\": \"prototype answers %d\"}\n", chosen == 5 ? -1 : rows[0].error);
            fflush(stdout);
            continue;
        }
        int records = rows[0].count;
        int64_t highest = rows[0].scan_max_ts, start = now_ns(CLOCK_MONOTONIC), once;
        void (*run)(void) = OPERATIONS[chosen].run;
        for (int i = 0; i < 3; i++) run();
        once = (now_ns(CLOCK_MONOTONIC) - start) / 3;
        long again = (long)(sample_ns / (double)(once > 10 ? once : 10)) + 1;
        int taken = 0, fast_ones = 0;
        for (int s = 0; s < 4 * samples && fast_ones < samples; s++) {
            double before = probe_ns();
            int64_t cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
            start = now_ns(CLOCK_MONOTONIC);
            for (long i = 0; i < again; i++) {
                run();
                __asm__ volatile("" ::: "memory");
            }
            double wall = (double)(now_ns(CLOCK_MONOTONIC) - start);
            cpu = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
            busy[s] = (double)cpu / wall;
            took[s] = (double)cpu / (double)again / OPERATIONS[chosen].batches;
            double after = probe_ns();
            probes[s] = before > after ? before : after;
            fast_ones += fast == 0 || probes[s] <= fast;
            taken++;
        }
        printf("{\"records\": %d, \"max_timestamp\": %lld, \"ns\": [", records, (long long)highest);
        for (int s = 0; s < taken; s++) printf("%s%.2f", s ? ", " : "", took[s]);
        printf("], \"busy\": [");
        for (int s = 0; s < taken; s++) printf("%s%.3f", s ? ", " : "", busy[s]);
        printf("], \"probe\": [");
        for (int s = 0; s < taken; s++) printf("%s%.0f", s ? ", " : "", probes[s]);
        printf("]}\n");
        fflush(stdout);
    }
    return 0;
}
