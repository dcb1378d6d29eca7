/* A fixed number of records through librdkafka's C API, acknowledged one by one; one line of JSON.
 * A stamp of the monotonic clock is in each message's opaque, the latency of each is taken in the
 * delivery report.
 *
 *   produce_loop LIBRDKAFKA.so BOOTSTRAP TOPIC RECORDS PARTITION PARTITIONS [NAME=VALUE...]
 *
 * PARTITION -1: round robin over PARTITIONS. */
#include "rdkafka.h"

enum { PRODUCER = 0, COPY = 2, QUEUE_FULL = -184 };

static const char *(*words)(int);
static long done, failed, highest, widest;
static int64_t *latencies;
static const char *why = "";

static void delivered(void *client, const message *m, void *opaque) {
    (void)client, (void)opaque;
    latencies[done++] = now_us() - (int64_t)(intptr_t)m->own;
    if (m->err) {
        failed++;
        why = words(m->err);
    }
}

/* Requests written and not yet answered, of every broker; a bootstrap connection has none while records are sent. */
static int on_statistics(void *client, char *json, size_t size, void *opaque) {
    static const char word[] = "\"waitresp_cnt\":";
    long total = 0;
    (void)client, (void)size, (void)opaque;
    for (const char *at = json; (at = strstr(at, word)) != NULL;) {
        at += sizeof word - 1;
        long open = strtol(at, NULL, 10);
        total += open;
        highest = open > highest ? open : highest;
    }
    widest = total > widest ? total : widest;
    return 0;
}

int main(int count, char **argv) {
    char value[1000];
    open_library(count, argv, 7,
                 "produce_loop LIBRDKAFKA.so BOOTSTRAP TOPIC RECORDS PARTITION PARTITIONS");
    void (*on_delivery)(void *, void (*)(void *, const message *, void *)) = symbol("rd_kafka_conf_set_dr_msg_cb");
    void (*on_stats)(void *, int (*)(void *, char *, size_t, void *)) = symbol("rd_kafka_conf_set_stats_cb");
    void *(*topic_new)(void *, const char *, void *) = symbol("rd_kafka_topic_new");
    int (*produce)(void *, int32_t, int, void *, size_t, const void *, size_t, void *) = symbol("rd_kafka_produce");
    int (*last_error)(void) = symbol("rd_kafka_last_error");
    int (*poll)(void *, int) = symbol("rd_kafka_poll");
    words = symbol("rd_kafka_err2str");

    long records = atol(argv[4]);
    int partition = atoi(argv[5]), partitions = atoi(argv[6]);
    void *conf = configuration(argv[2]);
    on_delivery(conf, delivered);
    on_stats(conf, on_statistics);
    void *client = new_client(PRODUCER, conf, argv + 7, count - 7);
    void *topic = topic_new(client, argv[3], NULL);
    for (size_t i = 0; i < sizeof value; i++) value[i] = (char)('a' + i % 26);
    latencies = malloc((size_t)(records + 1) * sizeof *latencies);
    if (!latencies) return 2;
    int64_t began = now_us();
    for (long i = 0; i < records; i++) {
        int32_t to = partition >= 0 ? partition : (int32_t)(i % partitions);
        while (produce(topic, to, COPY, value, sizeof value, NULL, 0, (void *)(intptr_t)now_us())) {
            if (last_error() != QUEUE_FULL) return fprintf(stderr, "%s\n", words(last_error())), 1;
            poll(client, 10);
        }
        if ((i & 127) == 0) poll(client, 0);
    }
    for (int64_t last = now_us(), before = 0; done < records;) {
        poll(client, 50);
        if (done > before) last = now_us(), before = done;
        if (now_us() - last > 60000000) return fprintf(stderr, "no answer for 60 s\n"), 1;
    }
    double took = (double)(now_us() - began) / 1e6;
    printf("{\"records\": %ld, \"failed\": %ld, \"why\": \"%s\", \"seconds\": %.6f, \"in_flight\": %ld, "
           "\"in_flight_total\": %ld}\n", records, failed, why, took, highest, widest);
    fflush(stdout);
    _Exit(failed > 0);
}
