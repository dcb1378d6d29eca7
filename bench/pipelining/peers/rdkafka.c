/* A fixed number of records through librdkafka's C API, acknowledged one by one; one line of JSON.
 *
 *   rdkafka TOPIC RECORDS PARTITION PARTITIONS [name=value …]      PARTITION -1: round robin over PARTITIONS
 *
 * Linked against the library that the confluent-kafka wheel carries. The wheel has no header: what is used of the
 * library's public interface is declared here.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { PRODUCER = 0, MSG_F_COPY = 2, QUEUE_FULL = -184 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
void rd_kafka_conf_set_stats_cb(rd_kafka_conf_t *, int (*)(rd_kafka_t *, char *, size_t, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_last_error(void);
int rd_kafka_poll(rd_kafka_t *, int);
const char *rd_kafka_err2str(int);

static long delivered, failed, highest, widest;
static const char *why = "";

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    delivered++;
    if (message->err) {
        failed++;
        why = rd_kafka_err2str(message->err);
    }
}

/* Requests written and not yet answered, of every broker; a bootstrap connection has none while records are sent. */
static int on_statistics(rd_kafka_t *client, char *json, size_t size, void *opaque) {
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

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    char error[512], value[1000];
    if (argc < 5) {
        fprintf(stderr, "usage: rdkafka TOPIC RECORDS PARTITION PARTITIONS [name=value …]\n");
        return 2;
    }
    long records = atol(argv[2]);
    int partition = atoi(argv[3]), partitions = atoi(argv[4]);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (int i = 5; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals == NULL) {
            fprintf(stderr, "not name=value: %s\n", argv[i]);
            return 2;
        }
        *equals = 0;
        if (rd_kafka_conf_set(conf, argv[i], equals + 1, error, sizeof error)) {
            fprintf(stderr, "%s\n", error);
            return 2;
        }
    }
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_conf_set_stats_cb(conf, on_statistics);
    rd_kafka_t *client = rd_kafka_new(PRODUCER, conf, error, sizeof error);
    if (client == NULL) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, argv[1], NULL);
    for (size_t i = 0; i < sizeof value; i++) value[i] = 'a' + i % 26;
    double began = seconds();
    for (long i = 0; i < records; i++) {
        int32_t to = partition >= 0 ? partition : (int32_t)(i % partitions);
        while (rd_kafka_produce(topic, to, MSG_F_COPY, value, sizeof value, NULL, 0, NULL)) {
            if (rd_kafka_last_error() != QUEUE_FULL) {
                fprintf(stderr, "%s\n", rd_kafka_err2str(rd_kafka_last_error()));
                return 1;
            }
            rd_kafka_poll(client, 10);
        }
        if ((i & 127) == 0) rd_kafka_poll(client, 0);
    }
    while (delivered < records) rd_kafka_poll(client, 50);
    double took = seconds() - began;
    printf("{\"records\": %ld, \"failed\": %ld, \"why\": \"%s\", \"seconds\": %.6f, \"in_flight\": %ld, "
           "\"in_flight_total\": %ld}\n", records, failed, why, took, highest, widest);
    fflush(stdout);
    _Exit(failed > 0);
}
