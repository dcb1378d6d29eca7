/* For LD_PRELOAD: connections by IP may be opened to the ports of CAGE_PORTS ("9092,9093") alone; others are refused.
 * Where network namespaces may not be made, this is how a client is kept away from the brokers' own
 * ports. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

int connect(int fd, const struct sockaddr *to, socklen_t size)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real)
        real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    int port = -1;
    if (to->sa_family == AF_INET)
        port = ntohs(((const struct sockaddr_in *)to)->sin_port);
    else if (to->sa_family == AF_INET6)
        port = ntohs(((const struct sockaddr_in6 *)to)->sin6_port);
    if (port >= 0) {
        const char *at = getenv("CAGE_PORTS");
        int allowed = 0;
        while (at && *at && !allowed) {
            char *end;
            allowed = strtol(at, &end, 10) == port;
            at = *end ? end + 1 : end;
        }
        if (!allowed) {
            errno = ECONNREFUSED;
            return -1;
        }
    }
    return real(fd, to, size);
}
