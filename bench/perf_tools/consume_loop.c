/* librdkafka's fastest way to read: consume_batch_queue in a loop of C, key and value bytes summed, one line at the end.
 *
 *   consume_loop LIBRDKAFKA.so BOOTSTRAP TOPIC RECORDS [NAME=VALUE...]    ->  records seconds bytes version
 *
 * The library is opened by its path (the confluent-kafka wheel carries one), so no headers are needed. The clock starts
 * with the first records. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONSUMER = 1, BATCH = 10000 };

typedef struct { /* rd_kafka_message_t, as librdkafka 1 and 2 have it */
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *own;
} message;

static void *library;

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int count, char **given) {
    static message *messages[BATCH];
    char error[512] = "";
    if (count < 5 || !(library = dlopen(given[1], RTLD_NOW))) {
        fprintf(stderr, "usage: consume_loop LIBRDKAFKA.so BOOTSTRAP TOPIC RECORDS [NAME=VALUE...]\n%s\n", count < 5 ? "" : dlerror());
        return 2;
    }
    void *(*conf_new)(void) = symbol("rd_kafka_conf_new");
    int (*conf_set)(void *, const char *, const char *, char *, size_t) = symbol("rd_kafka_conf_set");
    void *(*client_new)(int, void *, char *, size_t) = symbol("rd_kafka_new");
    int (*poll_set_consumer)(void *) = symbol("rd_kafka_poll_set_consumer");
    void *(*list_new)(int) = symbol("rd_kafka_topic_partition_list_new");
    void *(*list_add)(void *, const char *, int32_t) = symbol("rd_kafka_topic_partition_list_add");
    int (*subscribe)(void *, const void *) = symbol("rd_kafka_subscribe");
    void *(*queue_of)(void *) = symbol("rd_kafka_queue_get_consumer");
    ssize_t (*consume)(void *, int, message **, size_t) = symbol("rd_kafka_consume_batch_queue");
    void (*destroy)(message *) = symbol("rd_kafka_message_destroy");
    const char *(*version)(void) = symbol("rd_kafka_version_str");

    char group[64];
    snprintf(group, sizeof group, "consume-loop-%ld", (long)(now() * 1e6));
    const char *fixed[][2] = {{"bootstrap.servers", given[2]}, {"group.id", group},
        {"auto.offset.reset", "earliest"}, {"enable.auto.commit", "false"}};
    void *conf = conf_new();
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (conf_set(conf, fixed[i][0], fixed[i][1], error, sizeof error)) return fprintf(stderr, "%s\n", error), 2;
    for (int i = 5; i < count; i++) {
        char *value = strchr(given[i], '=');
        if (!value) return fprintf(stderr, "%s is not NAME=VALUE\n", given[i]), 2;
        *value++ = 0;
        if (conf_set(conf, given[i], value, error, sizeof error)) return fprintf(stderr, "%s\n", error), 2;
    }
    void *client = client_new(CONSUMER, conf, error, sizeof error);
    if (!client) return fprintf(stderr, "%s\n", error), 2;
    poll_set_consumer(client);
    void *topics = list_new(1);
    list_add(topics, given[3], -1);
    subscribe(client, topics);
    void *queue = queue_of(client);

    long wanted = atol(given[4]), records = 0;
    uint64_t bytes = 0;
    double began = now(), last = began;
    while (records < wanted) {
        ssize_t came = consume(queue, 1000, messages, BATCH);
        if (came <= 0 && now() - last > 30) return fprintf(stderr, "nothing came for 30 s\n"), 1;
        for (ssize_t i = 0; i < came; i++) {
            if (!messages[i]->err) {
                if (!records) began = now();
                records++;
                bytes += messages[i]->len + messages[i]->key_len;
            }
            destroy(messages[i]);
        }
        if (came > 0) last = now();
    }
    printf("%ld %.6f %llu %s\n", records, now() - began, (unsigned long long)bytes, version());
    fflush(stdout);
    _Exit(0);
}
