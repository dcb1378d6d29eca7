/* librdkafka's way to send from C: rd_kafka_produce in a loop, a stamp of the monotonic clock in
 * each message's opaque, the latency of each taken in the delivery report.
 *
 *   produce_loop LIBRDKAFKA.so BOOTSTRAP TOPIC RECORDS SIZE [NAME=VALUE...]
 *
 * Prints one line at the end: records seconds p50_us p99_us version */
#include "rdkafka.h"

enum { PRODUCER = 0, COPY = 2 };

static int64_t *latencies;
static long done, failed;

static void delivered(void *client, const message *m, void *opaque) {
    (void)client, (void)opaque;
    if (m->err) failed++;
    latencies[done++] = now_us() - (int64_t)(intptr_t)m->own;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int main(int count, char **argv) {
    open_library(count, argv, 6, "produce_loop LIBRDKAFKA.so BOOTSTRAP TOPIC RECORDS SIZE");
    void (*on_delivery)(void *, void (*)(void *, const message *, void *)) = symbol("rd_kafka_conf_set_dr_msg_cb");
    void *(*topic_new)(void *, const char *, void *) = symbol("rd_kafka_topic_new");
    int (*produce)(void *, int32_t, int, void *, size_t, const void *, size_t, void *) = symbol("rd_kafka_produce");
    int (*poll)(void *, int) = symbol("rd_kafka_poll");

    void *conf = configuration(argv[2]);
    on_delivery(conf, delivered);
    void *client = new_client(PRODUCER, conf, argv + 6, count - 6);
    void *topic = topic_new(client, argv[3], NULL);

    long records = atol(argv[4]), size = atol(argv[5]);
    char *value = malloc((size_t)size + 1);
    latencies = malloc((size_t)(records + 1) * sizeof *latencies);
    if (!value || !latencies) return 2;
    for (long i = 0; i < size; i++) value[i] = (char)('A' + i * 7 % 26);
    int64_t began = now_us();
    for (long i = 0; i < records; i++) {
        while (produce(topic, -1, COPY, value, (size_t)size, NULL, 0, (void *)(intptr_t)now_us())) poll(client, 10);
        if (!(i & 255)) poll(client, 0);
    }
    for (int64_t last = now_us(), before = 0; done < records;) {
        poll(client, 100);
        if (done > before) last = now_us(), before = done;
        if (now_us() - last > 60000000) return fprintf(stderr, "no answer for 60 s\n"), 1;
    }
    double seconds = (double)(now_us() - began) / 1e6;
    if (failed) return fprintf(stderr, "%ld records failed\n", failed), 1;
    qsort(latencies, (size_t)records, sizeof *latencies, ascending);
    printf("%ld %.6f %lld %lld %s\n", records, seconds, (long long)latencies[records / 2],
        (long long)latencies[(long)((double)records * 0.99)], version());
    fflush(stdout);
    _Exit(0);
}
