/* Sends IKE_SA_INIT requests from addresses that change, at a steady rate, until it is ended.
 *
 *   initflood DEVICE RATE COUNTERS PORT ADDRESSES < FRAME
 *
 * FRAME is one such request in hexadecimal, an Ethernet frame with IPv4 and UDP without options. PORT is where the flood
 * goes. With ADDRESSES 0 every request comes from a random address, to which answers are lost. Otherwise the requests
 * come from so many addresses of 198.18.0.0/15 (RFC 2544), and each answer that asks for a cookie gets the request again
 * with the cookie. COUNTERS is a file of two 64-bit numbers that it keeps: requests sent, and cookies answered. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 64, LONGEST = 2048, IP = 14, UDP = IP + 20, IKE = UDP + 8, HEADER = 28, NOTIFY = 41, COOKIE = 16390 };
enum { TICK_NS = 1000000, MAX_LATE_TICKS = 20 };
static const uint32_t FIRST_ADDRESS = 0xc6120000;

static unsigned char template[LONGEST];
static size_t template_length;
static struct { unsigned char bytes[LONGEST]; size_t length; } frames[AT_ONCE];
static int sock, port, waiting;
static volatile uint64_t *counters;
static uint64_t state = 88172645463325252ull;

static void die(const char *what) { perror(what); exit(1); }

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void put16(unsigned char *at, unsigned value) { at[0] = value >> 8; at[1] = value; }
static void put32(unsigned char *at, uint32_t value) { put16(at, value >> 16); put16(at + 2, value); }
static unsigned get16(const unsigned char *at) { return at[0] << 8 | at[1]; }

/* Lengths and the checksum of IP; UDP may have none. */
static void finish(unsigned char *frame, size_t length)
{
	put16(frame + IP + 2, length - IP);
	put16(frame + UDP + 4, length - UDP);
	put16(frame + UDP + 6, 0);
	put32(frame + IKE + 24, length - IKE);
	put16(frame + IP + 10, 0);
	uint32_t sum = 0;
	for (int i = 0; i < 20; i += 2)
		sum += get16(frame + IP + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	put16(frame + IP + 10, ~sum & 0xffff);
}

static void flush(void)
{
	struct mmsghdr messages[AT_ONCE] = { 0 };
	struct iovec parts[AT_ONCE];
	for (int i = 0; i < waiting; i++) {
		parts[i] = (struct iovec){ frames[i].bytes, frames[i].length };
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	for (int done = 0; done < waiting;) {
		int sent = sendmmsg(sock, messages + done, waiting - done, 0);
		done += sent > 0 ? sent : 1;
	}
	waiting = 0;
}

static void request(uint32_t source, unsigned source_port, const unsigned char *spi)
{
	unsigned char *frame = frames[waiting].bytes;
	memcpy(frame, template, template_length);
	put32(frame + IP + 12, source);
	put16(frame + UDP, source_port);
	put16(frame + UDP + 2, port);
	memcpy(frame + IKE, spi, 8);
	finish(frame, template_length);
	frames[waiting++].length = template_length;
	if (waiting == AT_ONCE)
		flush();
}

/* RFC 7296 2.6: the cookie comes first, and the rest of the request is the same. */
static void answer(const unsigned char *frame, size_t length)
{
	const unsigned char *ike = frame + IKE, *notify = ike + HEADER;
	if (length < IKE + HEADER + 8 || ike[16] != NOTIFY || get16(notify + 6) != COOKIE)
		return;
	size_t bytes = get16(notify + 2);
	if (bytes < 8 || IKE + HEADER + bytes > length || template_length + bytes > LONGEST)
		return;
	uint32_t to;
	memcpy(&to, frame + IP + 16, 4);
	if (waiting == AT_ONCE)
		flush();
	unsigned char *out = frames[waiting].bytes, first = template[IKE + 16];
	memcpy(out, template, IKE + HEADER);
	put32(out + IP + 12, ntohl(to));
	put16(out + UDP, get16(frame + UDP + 2));
	put16(out + UDP + 2, port);
	memcpy(out + IKE, ike, 8);
	out[IKE + 16] = NOTIFY;
	memcpy(out + IKE + HEADER, notify, bytes);
	out[IKE + HEADER] = first;
	memcpy(out + IKE + HEADER + bytes, template + IKE + HEADER, template_length - IKE - HEADER);
	frames[waiting].length = template_length + bytes;
	finish(out, frames[waiting++].length);
	counters[1]++;
	if (waiting == AT_ONCE)
		flush();
}

static void answers(void)
{
	unsigned char frame[LONGEST];
	struct sockaddr_ll from;
	socklen_t room = sizeof from;
	ssize_t length;
	for (int n = 0; n < 4 * AT_ONCE; n++, room = sizeof from) {
		length = recvfrom(sock, frame, sizeof frame, MSG_DONTWAIT, (void *)&from, &room);
		if (length < 0)
			return;
		if (from.sll_pkttype != PACKET_OUTGOING && length > IKE)
			answer(frame, length);
	}
}

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* Answers to the flood's addresses alone. A bridge takes frames before those who want one protocol see them. */
static void filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, IP + 16),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FIRST_ADDRESS >> 24, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, LONGEST),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	if (setsockopt(sock, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program))
		die("filter");
}

static void open_device(const char *device, int listens)
{
	int yes = 1, bytes = 8 << 20;
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(device),
		.sll_protocol = listens ? htons(ETH_P_ALL) : 0 };
	sock = socket(AF_PACKET, SOCK_RAW, 0);
	if (sock < 0 || !at.sll_ifindex || bind(sock, (void *)&at, sizeof at))
		die(device);
	filter();
	setsockopt(sock, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes);
	setsockopt(sock, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes);
	setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
}

static void read_template(void)
{
	char text[2 * LONGEST + 2];
	unsigned int byte;
	if (!fgets(text, sizeof text, stdin))
		die("no frame");
	while (template_length < LONGEST && sscanf(text + 2 * template_length, "%2x", &byte) == 1)
		template[template_length++] = byte;
	if (template_length < IKE + HEADER + 8)
		die("the frame is too short");
}

int main(int count, char **words)
{
	if (count != 6)
		die("initflood DEVICE RATE COUNTERS PORT ADDRESSES");
	double rate = atof(words[2]);
	uint32_t addresses = strtoul(words[5], NULL, 10);
	int file = open(words[3], O_RDWR);
	counters = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file < 0 || counters == MAP_FAILED)
		die(words[3]);
	port = atoi(words[4]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	state ^= now();
	open_device(words[1], addresses > 0);
	read_template();
	for (int64_t started = now(), sent = 0;;) {
		int64_t due = (now() - started) / 1e9 * rate;
		int64_t most = rate / 1e9 * TICK_NS * MAX_LATE_TICKS;
		if (due - sent > most)
			started += (due - sent - most) / rate * 1e9, due = sent + most;
		for (; sent < due; sent++, counters[0]++) {
			uint64_t spi = draw();
			uint32_t source = addresses ? FIRST_ADDRESS + draw() % addresses : 0x0b000000 + (draw() >> 40);
			request(source, 1024 + (draw() & 0x7fff), (unsigned char *)&spi);
		}
		answers();
		if (waiting)
			flush();
		usleep(TICK_NS / 2000);
	}
}
