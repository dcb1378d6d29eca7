/* librdkafka's fastest way to read: consume_batch_queue in a loop of C, key and value bytes summed, one line at the end.
 *
 *   consume_loop LIBRDKAFKA.so BOOTSTRAP TOPIC RECORDS [NAME=VALUE...]    ->  records seconds bytes version
 *
 * The clock starts with the first records. */
#include "rdkafka.h"

enum { CONSUMER = 1, BATCH = 10000 };

int main(int count, char **argv) {
    static message *messages[BATCH];
    open_library(count, argv, 5, "consume_loop LIBRDKAFKA.so BOOTSTRAP TOPIC RECORDS");
    int (*poll_set_consumer)(void *) = symbol("rd_kafka_poll_set_consumer");
    void *(*list_new)(int) = symbol("rd_kafka_topic_partition_list_new");
    void *(*list_add)(void *, const char *, int32_t) = symbol("rd_kafka_topic_partition_list_add");
    int (*subscribe)(void *, const void *) = symbol("rd_kafka_subscribe");
    void *(*queue_of)(void *) = symbol("rd_kafka_queue_get_consumer");
    ssize_t (*consume)(void *, int, message **, size_t) = symbol("rd_kafka_consume_batch_queue");
    void (*destroy)(message *) = symbol("rd_kafka_message_destroy");

    char group[64];
    snprintf(group, sizeof group, "consume-loop-%ld", (long)now_us());
    void *conf = configuration(argv[2]);
    set(conf, "group.id", group);
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "enable.auto.commit", "false");
    void *client = new_client(CONSUMER, conf, argv + 5, count - 5);
    poll_set_consumer(client);
    void *topics = list_new(1);
    list_add(topics, argv[3], -1);
    subscribe(client, topics);
    void *queue = queue_of(client);

    long wanted = atol(argv[4]), records = 0;
    uint64_t bytes = 0;
    int64_t began = now_us(), last = began;
    while (records < wanted) {
        ssize_t came = consume(queue, 1000, messages, BATCH);
        if (came <= 0 && now_us() - last > 30000000) return fprintf(stderr, "nothing came for 30 s\n"), 1;
        for (ssize_t i = 0; i < came; i++) {
            if (!messages[i]->err) {
                if (!records) began = now_us();
                records++;
                bytes += messages[i]->len + messages[i]->key_len;
            }
            destroy(messages[i]);
        }
        if (came > 0) last = now_us();
    }
    printf("%ld %.6f %llu %s\n", records, (double)(now_us() - began) / 1e6, (unsigned long long)bytes, version());
    fflush(stdout);
    _Exit(0);
}
