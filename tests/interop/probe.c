/* Many datagrams to many addresses, each of which has to come back byte for byte.
 *
 *   probe echo                       answers from the address that was asked
 *   probe ask FILE TRIES SIZE...     lines "NUMBER SOURCE DESTINATION" in FILE; every size to each, and for each
 *                                    line "NUMBER SENT/RECEIVED SENT/RECEIVED ..." in the order of the sizes
 *
 * A size that is not answered is asked again, up to TRIES times in all, if it is larger than SMALL: a host that
 * learns the path MTU loses a packet by it. Smaller ones get one chance. Nothing here sets DF. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 7777
#define SMALL 1200
#define LARGEST 16384
#define MOST_LINES 1024
#define MOST_SIZES 128
#define IN_FLIGHT 12
#define ANSWER_TIMEOUT_MS 250
#define LAST_WAIT_MS 1500

struct line {
    uint32_t number;
    int family;
    struct in6_addr source, destination; /* IPv4 in the first four bytes */
};

static struct line lines[MOST_LINES];
static uint8_t sent[MOST_LINES][MOST_SIZES], received[MOST_LINES][MOST_SIZES];
static int sizes[MOST_SIZES], line_count, size_count, tries, sockets[2], in_flight;
static unsigned char buffer[LARGEST + 1];

static int open_port(int family, int port) {
    int on = 1, off = 0, room = 4 << 20, s = socket(family, SOCK_DGRAM, 0);
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    if (family == AF_INET) {
        setsockopt(s, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
        setsockopt(s, IPPROTO_IP, IP_MTU_DISCOVER, &off, sizeof off);
    } else {
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        setsockopt(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
        setsockopt(s, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &off, sizeof off);
    }
    int bad = family == AF_INET ? bind(s, (struct sockaddr *)&four, sizeof four)
                                : bind(s, (struct sockaddr *)&six, sizeof six);
    if (s < 0 || bad) {
        perror("probe: socket");
        exit(1);
    }
    return s;
}

/* Sends `buffer` from one address to another, which is also how an answer finds its way back. */
static int send_from(int s, int family, const struct in6_addr *from, const struct in6_addr *to, int port, int size) {
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    } control = {0};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = *to};
    struct iovec piece = {buffer, size};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.room};
    struct cmsghdr *note = &control.align;
    if (family == AF_INET) {
        struct in_pktinfo info = {0};
        memcpy(&info.ipi_spec_dst, from, 4);
        memcpy(&four.sin_addr, to, 4);
        *note = (struct cmsghdr){CMSG_LEN(sizeof info), IPPROTO_IP, IP_PKTINFO};
        memcpy(CMSG_DATA(note), &info, sizeof info);
        message.msg_controllen = CMSG_SPACE(sizeof info);
        message.msg_name = &four, message.msg_namelen = sizeof four;
    } else {
        struct in6_pktinfo info = {.ipi6_addr = *from};
        *note = (struct cmsghdr){CMSG_LEN(sizeof info), IPPROTO_IPV6, IPV6_PKTINFO};
        memcpy(CMSG_DATA(note), &info, sizeof info);
        message.msg_controllen = CMSG_SPACE(sizeof info);
        message.msg_name = &six, message.msg_namelen = sizeof six;
    }
    return sendmsg(s, &message, 0) == size;
}

/* Receives into `buffer`; gives the length, who sent it, and the address it was sent to. */
static int receive(int s, int family, struct in6_addr *from, struct in6_addr *to, int *port) {
    char control[256];
    struct sockaddr_in6 peer;
    struct iovec piece = {buffer, sizeof buffer};
    struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &piece, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    int size = recvmsg(s, &message, MSG_DONTWAIT);
    if (size < 0)
        return -1;
    memset(from, 0, sizeof *from), memset(to, 0, sizeof *to);
    if (family == AF_INET)
        memcpy(from, &((struct sockaddr_in *)&peer)->sin_addr, 4);
    else
        *from = peer.sin6_addr;
    *port = ntohs(peer.sin6_port); /* at the same place in both families */
    for (struct cmsghdr *note = CMSG_FIRSTHDR(&message); note; note = CMSG_NXTHDR(&message, note)) {
        if (note->cmsg_level == IPPROTO_IP && note->cmsg_type == IP_PKTINFO)
            memcpy(to, &((struct in_pktinfo *)CMSG_DATA(note))->ipi_addr, 4);
        if (note->cmsg_level == IPPROTO_IPV6 && note->cmsg_type == IPV6_PKTINFO)
            *to = ((struct in6_pktinfo *)CMSG_DATA(note))->ipi6_addr;
    }
    return size;
}

static void echo(void) {
    struct pollfd both[2] = {{open_port(AF_INET, PORT), POLLIN, 0}, {open_port(AF_INET6, PORT), POLLIN, 0}};
    for (;;) {
        poll(both, 2, -1);
        for (int i = 0; i < 2; i++) {
            struct in6_addr from, to;
            int port, size, family = i ? AF_INET6 : AF_INET;
            while ((size = receive(both[i].fd, family, &from, &to, &port)) >= 0)
                send_from(both[i].fd, family, &to, &from, port, size);
        }
    }
}

/* The content of a datagram tells which one it is; its other bytes depend on that and on their place. */
static void fill(uint32_t line, uint32_t size_index) {
    uint32_t name[2] = {line, size_index};
    memcpy(buffer, name, sizeof name);
    for (int i = sizeof name; i < sizes[size_index]; i++)
        buffer[i] = (unsigned char)(line * 31 + size_index * 7 + i * 13 + (i >> 8));
}

static void take(int s, int family) {
    static unsigned char got[LARGEST + 1];
    struct in6_addr from, to;
    int port, size;
    while ((size = receive(s, family, &from, &to, &port)) >= 0) {
        uint32_t name[2];
        memcpy(got, buffer, size);
        memcpy(name, got, sizeof name);
        if (size < (int)sizeof name || name[0] >= (uint32_t)line_count || name[1] >= (uint32_t)size_count)
            continue;
        struct line *line = &lines[name[0]];
        fill(name[0], name[1]);
        if (size != sizes[name[1]] || memcmp(got, buffer, size) || memcmp(&from, &line->destination, sizeof from) ||
            memcmp(&to, &line->source, sizeof to)) {
            fprintf(stderr, "probe: %u: an answer of %d bytes is not what was sent\n", line->number, size);
            continue;
        }
        received[name[0]][name[1]]++;
        in_flight--;
    }
}

static int wait_for_answers(int milliseconds) {
    struct pollfd both[2] = {{sockets[0], POLLIN, 0}, {sockets[1], POLLIN, 0}};
    if (poll(both, 2, milliseconds) == 0)
        return 0;
    take(sockets[0], AF_INET);
    take(sockets[1], AF_INET6);
    return 1;
}

static void ask_once(int attempt) {
    for (int i = 0; i < size_count; i++)
        for (int n = 0; n < line_count; n++) {
            if (received[n][i] || (attempt > 0 && sizes[i] <= SMALL))
                continue;
            /* What does not come back for a while is no longer waited for, but still taken if it does. */
            while (in_flight >= IN_FLIGHT)
                if (!wait_for_answers(ANSWER_TIMEOUT_MS))
                    in_flight = 0;
            fill(n, i);
            struct line *line = &lines[n];
            if (send_from(sockets[line->family == AF_INET6], line->family, &line->source, &line->destination, PORT,
                          sizes[i]))
                in_flight++;
            sent[n][i]++;
            wait_for_answers(0);
        }
    while (wait_for_answers(in_flight > 0 ? LAST_WAIT_MS : 20))
        ;
    in_flight = 0;
}

static void read_lines(const char *path) {
    char source[64], destination[64];
    FILE *file = fopen(path, "r");
    while (file && line_count < MOST_LINES) {
        struct line *line = &lines[line_count];
        if (fscanf(file, "%u %63s %63s", &line->number, source, destination) != 3)
            break;
        line->family = strchr(source, ':') ? AF_INET6 : AF_INET;
        if (inet_pton(line->family, source, &line->source) == 1 &&
            inet_pton(line->family, destination, &line->destination) == 1)
            line_count++;
    }
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "echo"))
        echo();
    if (count < 5 || strcmp(words[1], "ask"))
        return 2;
    read_lines(words[2]);
    tries = atoi(words[3]);
    for (int i = 4; i < count && size_count < MOST_SIZES; i++)
        sizes[size_count++] = atoi(words[i]);
    sockets[0] = open_port(AF_INET, 0);
    sockets[1] = open_port(AF_INET6, 0);
    for (int attempt = 0; attempt < tries; attempt++)
        ask_once(attempt);
    for (int n = 0; n < line_count; n++) {
        printf("%u", lines[n].number);
        for (int i = 0; i < size_count; i++)
            printf(" %d/%d", sent[n][i], received[n][i]);
        printf("\n");
    }
    return 0;
}
