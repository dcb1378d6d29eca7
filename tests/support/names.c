/* For LD_PRELOAD: every host below RESOLVED_DOMAIN (".gate.example") is at 127.0.0.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

typedef int resolve(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    static resolve *real;
    if (!real)
        real = (resolve *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *domain = getenv("RESOLVED_DOMAIN");
    size_t size = host ? strlen(host) : 0, end = domain ? strlen(domain) : 0;
    if (end && size > end && !strcmp(host + size - end, domain))
        host = "127.0.0.1";
    return real(host, service, hints, found);
}
