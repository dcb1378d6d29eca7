/* What the loops of C share: librdkafka opened by its path (the confluent-kafka wheel carries one), so that no headers
 * of it are needed; its configuration from NAME=VALUE; the clock. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void open_library(int count, char **argv, int least, const char *usage) {
    if (count < least || !(library = dlopen(argv[1], RTLD_NOW))) {
        fprintf(stderr, "usage: %s [NAME=VALUE...]\n%s\n", usage, count < least ? "" : dlerror());
        exit(2);
    }
}

static void set(void *conf, const char *name, const char *value) {
    int (*conf_set)(void *, const char *, const char *, char *, size_t) = symbol("rd_kafka_conf_set");
    char error[512] = "";
    if (conf_set(conf, name, value, error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        exit(2);
    }
}

static void *configuration(const char *bootstrap) {
    void *(*conf_new)(void) = symbol("rd_kafka_conf_new");
    void *conf = conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    return conf;
}

/* A consumer or producer (kind), with the NAME=VALUEs that are left. */
static void *new_client(int kind, void *conf, char **pairs, int count) {
    void *(*client_new)(int, void *, char *, size_t) = symbol("rd_kafka_new");
    char error[512] = "";
    for (int i = 0; i < count; i++) {
        char *value = strchr(pairs[i], '=');
        if (!value) {
            fprintf(stderr, "%s is not NAME=VALUE\n", pairs[i]);
            exit(2);
        }
        *value++ = 0;
        set(conf, pairs[i], value);
    }
    void *client = client_new(kind, conf, error, sizeof error);
    if (!client) {
        fprintf(stderr, "%s\n", error);
        exit(2);
    }
    return client;
}

static const char *version(void) {
    return ((const char *(*)(void))symbol("rd_kafka_version_str"))();
}
