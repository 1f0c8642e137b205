/* Sends packets of several kinds in turn, at a steady rate, until it is ended.
 *
 *   flood RATE COUNTERS < ITEMS
 *
 * RATE is in packets a second, all items together. COUNTERS is a file of two 64-bit numbers that it keeps: packets sent, and
 * packets refused (no route, no device, no permission), which is no end. Each line of ITEMS is one kind:
 *
 *   frame DEVICE HEX                 an Ethernet frame out of a device; those of one device are one stream
 *   udp SOURCE|- DESTINATION PORT BYTES
 *   raw PROTOCOL SOURCE|- DESTINATION HEX      the kernel writes the IP header
 *   header DESTINATION HEX                     the IP header is in HEX (IP_HDRINCL)
 *   connect SOURCE|- DESTINATION PORT          a TCP connection is begun and given up, at most CONNECTS times a second
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 64, FRAMES = 64, AT_ONCE = 64, LONGEST = 4096, CONNECTS = 50 };
#define TICK_NS 1000000
/* After a pause at most so much is made up for. */
#define MOST_LATE_NS (20 * TICK_NS)

struct stream {
	char device[64];
	int fd, kinds, next;
	double due;
	struct sockaddr_storage to;
	socklen_t to_len;
	struct iovec data[FRAMES];
};

struct knock { struct sockaddr_storage from, to; double due; };

static struct stream streams[STREAMS];
static struct knock knocks[STREAMS];
static int stream_count, knock_count;
static volatile uint64_t *counters;

static void die(const char *what) { perror(what); exit(1); }

static socklen_t address(const char *text, int port, struct sockaddr_storage *out)
{
	struct sockaddr_in *four = (void *)out;
	struct sockaddr_in6 *six = (void *)out;
	memset(out, 0, sizeof *out);
	if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
		return sizeof *four;
	}
	if (inet_pton(AF_INET6, text, &six->sin6_addr) != 1)
		die(text);
	six->sin6_family = AF_INET6;
	six->sin6_port = htons(port);
	return sizeof *six;
}

static struct iovec bytes(const char *hex)
{
	size_t len = strlen(hex) / 2;
	unsigned char *out = malloc(len + 1);
	unsigned int byte;
	for (size_t i = 0; i < len && sscanf(hex + 2 * i, "%2x", &byte) == 1; i++)
		out[i] = byte;
	return (struct iovec){ out, len };
}

static struct stream *new_stream(int family, int type, int protocol)
{
	struct stream *stream = &streams[stream_count++];
	if (stream_count > STREAMS)
		die("too many streams");
	stream->fd = socket(family, type, protocol);
	if (stream->fd < 0)
		die("socket");
	return stream;
}

static void add_frame(const char *device, const char *hex)
{
	struct stream *stream = NULL;
	for (int i = 0; i < stream_count; i++)
		if (!strcmp(streams[i].device, device))
			stream = &streams[i];
	if (!stream) {
		int yes = 1;
		stream = new_stream(AF_PACKET, SOCK_RAW, 0);
		snprintf(stream->device, sizeof stream->device, "%s", device);
		struct sockaddr_ll *to = (void *)&stream->to;
		*to = (struct sockaddr_ll){ .sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(device) };
		stream->to_len = sizeof *to;
		if (!to->sll_ifindex || bind(stream->fd, (void *)to, sizeof *to))
			die(device);
		setsockopt(stream->fd, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes);
	}
	if (stream->kinds == FRAMES)
		die("too many frames");
	stream->data[stream->kinds++] = bytes(hex);
}

static void from(struct stream *stream, const char *source)
{
	struct sockaddr_storage own;
	if (strcmp(source, "-")) {
		socklen_t len = address(source, 0, &own);
		if (bind(stream->fd, (void *)&own, len))
			die(source);
	}
}

static void add_packet(int type, int protocol, const char *source, const char *destination, int port, struct iovec data)
{
	struct sockaddr_storage to;
	int dont = IP_PMTUDISC_DONT;
	socklen_t len = address(destination, port, &to);
	struct stream *stream = new_stream(to.ss_family, type, protocol);
	stream->to = to;
	stream->to_len = len;
	/* What is too large goes in fragments. */
	setsockopt(stream->fd, IPPROTO_IP, IP_MTU_DISCOVER, &dont, sizeof dont);
	from(stream, source);
	stream->kinds = 1;
	stream->data[0] = data;
}

static void add_knock(const char *source, const char *destination, int port)
{
	struct knock *knock = &knocks[knock_count++];
	if (knock_count > STREAMS)
		die("too many connections");
	address(destination, port, &knock->to);
	if (strcmp(source, "-"))
		address(source, 0, &knock->from);
}

static void read_items(void)
{
	static char line[4 * LONGEST];
	char kind[16], one[64], two[64], hex[3 * LONGEST];
	int number, more;
	while (fgets(line, sizeof line, stdin)) {
		sscanf(line, "%15s", kind);
		if (!strcmp(kind, "frame") && sscanf(line, "%*s %63s %12287s", one, hex) == 2)
			add_frame(one, hex);
		else if (!strcmp(kind, "udp") && sscanf(line, "%*s %63s %63s %d %d", one, two, &number, &more) == 4)
			add_packet(SOCK_DGRAM, 0, one, two, number, (struct iovec){ calloc(1, more), more });
		else if (!strcmp(kind, "raw") && sscanf(line, "%*s %d %63s %63s %12287s", &number, one, two, hex) == 4)
			add_packet(SOCK_RAW, number, one, two, 0, bytes(hex));
		else if (!strcmp(kind, "header") && sscanf(line, "%*s %63s %12287s", two, hex) == 2)
			add_packet(SOCK_RAW, IPPROTO_RAW, "-", two, 0, bytes(hex));
		else if (!strcmp(kind, "connect") && sscanf(line, "%*s %63s %63s %d", one, two, &number) == 3)
			add_knock(one, two, number);
		else
			die(line);
	}
}

/* What the kernel refuses ends the turn: the next one tries again. */
static void send_some(struct stream *stream, int count)
{
	struct mmsghdr messages[AT_ONCE];
	while (count > 0) {
		int now = count < AT_ONCE ? count : AT_ONCE;
		memset(messages, 0, sizeof messages);
		for (int i = 0; i < now; i++) {
			messages[i].msg_hdr.msg_iov = &stream->data[stream->next];
			messages[i].msg_hdr.msg_iovlen = 1;
			messages[i].msg_hdr.msg_name = &stream->to;
			messages[i].msg_hdr.msg_namelen = stream->to_len;
			stream->next = (stream->next + 1) % stream->kinds;
		}
		int sent = sendmmsg(stream->fd, messages, now, MSG_DONTWAIT);
		counters[0] += sent > 0 ? sent : 0;
		if (sent < now) {
			counters[1] += count - (sent > 0 ? sent : 0);
			return;
		}
		count -= now;
	}
}

static void connect_once(struct knock *knock)
{
	int family = knock->to.ss_family;
	socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0), refused = 0;
	if (knock->from.ss_family)
		refused = bind(fd, (void *)&knock->from, len);
	refused = refused || (connect(fd, (void *)&knock->to, len) && errno != EINPROGRESS);
	counters[refused ? 1 : 0]++;
	close(fd);
}

int main(int count, char **words)
{
	if (count != 3)
		die("flood RATE COUNTERS < ITEMS");
	double rate = atof(words[1]), kinds = 0;
	int file = open(words[2], O_RDWR);
	counters = mmap(NULL, 2 * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (counters == MAP_FAILED)
		die(words[2]);
	prctl(PR_SET_PDEATHSIG, 9);
	read_items();
	for (int i = 0; i < stream_count; i++)
		kinds += streams[i].kinds;
	struct timespec tick;
	clock_gettime(CLOCK_MONOTONIC, &tick);
	for (;;) {
		struct timespec before = tick, now;
		tick.tv_nsec += TICK_NS;
		tick.tv_sec += tick.tv_nsec / 1000000000;
		tick.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &tick, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
		double passed = (now.tv_sec - before.tv_sec) * 1e9 + (now.tv_nsec - before.tv_nsec);
		tick = now;
		passed = (passed < MOST_LATE_NS ? passed : MOST_LATE_NS) / 1e9;
		for (int i = 0; i < stream_count; i++) {
			streams[i].due += passed * rate * streams[i].kinds / kinds;
			send_some(&streams[i], (int)streams[i].due);
			streams[i].due -= (int)streams[i].due;
		}
		for (int i = 0; i < knock_count; i++)
			for (knocks[i].due += passed * CONNECTS; knocks[i].due >= 1; knocks[i].due--)
				connect_once(&knocks[i]);
	}
}
