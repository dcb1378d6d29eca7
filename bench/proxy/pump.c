/* What the kernel takes: a relay that reads and writes and looks at nothing, as cheap as one thread gets it.
 *
 *     pump BROKER_PORT        prints "listening PORT"
 *
 * One epoll; 256 kB a read; for each client a connection to the broker. It honours no back-pressure
 * but the blocking write's, which is enough for a bench whose windows are small.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK = 256 << 10, MAX_DESCRIPTORS = 4096 };

static int peer[MAX_DESCRIPTORS];
static char block[BLOCK];

static int write_all(int fd, const char *p, ssize_t n)
{
    while (n > 0) {
        ssize_t wrote = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (wrote < 0 && errno == EAGAIN) {
            struct pollfd writable = {fd, POLLOUT, 0};
            poll(&writable, 1, 1000);
            continue;
        }
        if (wrote <= 0)
            return -1;
        p += wrote;
        n -= wrote;
    }
    return 0;
}

static void end(int fd)
{
    close(peer[fd]);
    close(fd);
    peer[peer[fd]] = 0;
    peer[fd] = 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, broker = at;
    socklen_t size = sizeof at;
    struct epoll_event events[64], want = {.events = EPOLLIN};
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), one = 1;
    if (argc < 2)
        return 2;
    broker.sin_port = htons(atoi(argv[1]));
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 128) || getsockname(listener, (void *)&at, &size))
        return 1;
    want.data.fd = listener;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &want);
    printf("listening %d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                int client = accept(listener, NULL, NULL), server = socket(AF_INET, SOCK_STREAM, 0);
                if (client < 0 || server < 0 || client >= MAX_DESCRIPTORS || server >= MAX_DESCRIPTORS)
                    return 1;
                if (connect(server, (void *)&broker, sizeof broker))
                    return 1;
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                peer[client] = server;
                peer[server] = client;
                want.data.fd = client;
                epoll_ctl(epoll, EPOLL_CTL_ADD, client, &want);
                want.data.fd = server;
                epoll_ctl(epoll, EPOLL_CTL_ADD, server, &want);
            } else if (peer[fd]) {
                ssize_t got = recv(fd, block, BLOCK, MSG_DONTWAIT);
                if (got < 0 && errno == EAGAIN)
                    continue;
                if (got <= 0 || write_all(peer[fd], block, got))
                    end(fd);
            }
        }
    }
}
