/* Runs a program and refuses its Nth write to the kernel's configuration: netlink messages, files below /proc/sys, and
 * the options of sockets that say which of them gets what arrives at a UDP port.
 *
 *   refuse FILE PROGRAM ARGUMENT...
 *
 * FILE holds four 32-bit numbers that its user may change at any time: which call to refuse (0 for none), by which error
 * (AND_KILL: the program is killed instead, and the call never made), how many there were, how many were refused. The kernel
 * asks before each send and write (seccomp user notification); what goes elsewhere goes on as it is. What the program runs
 * itself is counted with it. SIGTERM and SIGINT are passed on to it, and SIGUSR1 kills it. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define AND_KILL UINT32_MAX

struct order { volatile uint32_t call, error, counted, refused; };

static pid_t child;

static void die(const char *what) { perror(what); exit(125); }

static void pass_on(int number) { kill(child, number == SIGUSR1 ? SIGKILL : number); }

static int listen_to_own_calls(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		die("no_new_privs");
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

/* Whether the call configures the kernel. */
static int is_configuration(pid_t thread, const struct seccomp_data *call)
{
	char path[64], target[64] = "";
	int nr = call->nr, fd = call->args[0], level = call->args[1], option = call->args[2];
	if (nr == SYS_setsockopt)
		return (level == IPPROTO_UDP && option == UDP_ENCAP) ||
			(level == SOL_SOCKET && option == SO_ATTACH_REUSEPORT_CBPF);
	snprintf(path, sizeof path, "/proc/%d/fd/%d", thread, fd);
	ssize_t len = readlink(path, target, sizeof target - 1);
	if (len <= 0)
		return 0;
	if (nr == SYS_write)
		return !strncmp(target, "/proc/sys/", 10);
	unsigned long wanted, inode;
	if (sscanf(target, "socket:[%lu]", &wanted) != 1)
		return 0;
	snprintf(path, sizeof path, "/proc/%d/net/netlink", thread);
	FILE *sockets = fopen(path, "re");
	if (!sockets)
		return 0;
	char line[256];
	int found = 0;
	while (!found && fgets(line, sizeof line, sockets))
		found = sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %lu", &inode) == 1 && inode == wanted;
	fclose(sockets);
	return found;
}

static void answer(int listener, struct order *order)
{
	struct seccomp_notif asked = { 0 };
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked))
		return;
	struct seccomp_notif_resp said = { .id = asked.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
	if (is_configuration(asked.pid, &asked.data) && ++order->counted == order->call) {
		order->refused++;
		said.flags = 0;
		said.error = order->error == AND_KILL ? -EPERM : -(int)order->error;
		if (order->error == AND_KILL)
			kill(child, SIGKILL);
	}
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &said);
}

/* The listener is made by the child, and handed over through a socket. */
static void give(int socket, int fd)
{
	char byte = 0, room[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec one = { &byte, 1 };
	struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	*header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	if (syscall(SYS_sendmmsg, socket, &(struct mmsghdr){ .msg_hdr = message }, 1, 0) != 1)
		die("hand over");
}

static int take(int socket)
{
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec one = { &byte, 1 };
	struct msghdr message = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	int fd = -1;
	if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

int main(int count, char **words)
{
	if (count < 3)
		die("refuse FILE PROGRAM ARGUMENT...");
	int file = open(words[1], O_RDWR | O_CLOEXEC), pair[2];
	struct order *order = mmap(NULL, sizeof *order, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (order == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		die(words[1]);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int listener = listen_to_own_calls();
		if (listener < 0)
			die("seccomp");
		give(pair[1], listener);
		close(listener);
		execvp(words[2], words + 2);
		_exit(127);
	}
	close(pair[1]);
	int listener = take(pair[0]), status;
	if (listener < 0)
		die("listener");
	signal(SIGTERM, pass_on);
	signal(SIGINT, pass_on);
	signal(SIGUSR1, pass_on);
	while (waitpid(child, &status, WNOHANG) == 0) {
		struct pollfd wait = { listener, POLLIN, 0 };
		if (poll(&wait, 1, 100) > 0 && wait.revents & POLLIN)
			answer(listener, order);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
