/* See network.h. A reset is the kernel's SOCK_DESTROY, what `ss -K` does. */
#include "tests/transport/network.h"

#include <arpa/inet.h>
#include <assert.h>
#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ESTABLISHED 1 /* as the kernel's states say */
#define SOCKETS     512

/* The cookie says which socket is meant: without it the kernel would take the listener of that port
 * where the connection has just gone. */
struct target {
	uint8_t family;
	struct inet_diag_sockid id;
};

void network_up(bool is_up)
{
	struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = is_up ? IFF_UP : 0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert(ioctl(fd, SIOCSIFFLAGS, &loopback) == 0);
	close(fd);
}

struct request {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

static struct request request_of(uint16_t type, uint16_t flags, struct target target)
{
	return (struct request){.head = {.nlmsg_len = sizeof(struct request),
					 .nlmsg_type = type,
					 .nlmsg_flags = NLM_F_REQUEST | flags},
				.body = {.sdiag_family = target.family,
					 .sdiag_protocol = IPPROTO_TCP,
					 .idiag_states = 1u << ESTABLISHED,
					 .id = target.id}};
}

static int ask(struct request request)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	assert(fd >= 0);
	assert(send(fd, &request, sizeof request, 0) == (ssize_t)sizeof request);
	return fd;
}

static bool destroy(struct target target)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
	} reply = {.error = {.error = -1}};
	char bytes[1024];
	int fd = ask(request_of(SOCK_DESTROY, NLM_F_ACK, target));

	assert(recv(fd, bytes, sizeof bytes, 0) >= (ssize_t)sizeof reply);
	memcpy(&reply, bytes, sizeof reply);
	close(fd);
	return reply.head.nlmsg_type == NLMSG_ERROR && reply.error.error == 0;
}

static uint16_t port_of(const struct sockaddr_storage *address)
{
	return ntohs(address->ss_family == AF_INET6
			     ? ((const struct sockaddr_in6 *)(const void *)address)->sin6_port
			     : ((const struct sockaddr_in *)(const void *)address)->sin_port);
}

/* Both addresses are 127.0.0.1. */
bool network_reset(int fd)
{
	struct sockaddr_storage from = {0}, to = {0};
	socklen_t from_bytes = sizeof from, to_bytes = sizeof to, cookie_bytes = sizeof(uint64_t);
	struct target target = {.family = AF_INET};
	uint64_t cookie;

	if (getsockname(fd, (struct sockaddr *)&from, &from_bytes) != 0 ||
	    getpeername(fd, (struct sockaddr *)&to, &to_bytes) != 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &cookie_bytes) != 0)
		return false;
	target.id.idiag_sport = htons(port_of(&from));
	target.id.idiag_dport = htons(port_of(&to));
	target.id.idiag_src[0] = target.id.idiag_dst[0] = htonl(INADDR_LOOPBACK);
	target.id.idiag_cookie[0] = (uint32_t)cookie;
	target.id.idiag_cookie[1] = (uint32_t)(cookie >> 32);
	return destroy(target);
}

/* Whether this kernel can reset connections, tried on one. */
static bool can_reset(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool is_reset;

	assert(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
	assert(getsockname(listener, (struct sockaddr *)&at, &bytes) == 0);
	assert(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
	is_reset = network_reset(fd);
	close(fd);
	close(listener);
	return is_reset;
}

bool network_enter(void)
{
	if (unshare(CLONE_NEWNET) != 0) {
		puts("a network of one's own needs root");
		return false;
	}
	network_up(true);
	if (can_reset())
		return true;
	puts("the kernel cannot reset sockets (INET_DIAG_DESTROY)");
	return false;
}

/* Adds what one datagram of the kernel's says; false: it was the last. */
static bool take_list(const void *bytes, ssize_t n, struct target *targets, int *count)
{
	size_t left = n > 0 ? (size_t)n : 0;

	for (const struct nlmsghdr *m = bytes; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
		const struct inet_diag_msg *found = NLMSG_DATA(m);
		if (m->nlmsg_type != SOCK_DIAG_BY_FAMILY)
			return false;
		if (*count < SOCKETS)
			targets[(*count)++] = (struct target){found->idiag_family, found->id};
	}
	return n > 0;
}

static int list_all(struct target targets[SOCKETS])
{
	static const uint8_t families[] = {AF_INET, AF_INET6};
	_Alignas(struct nlmsghdr) char bytes[16384];
	int count = 0;

	for (int i = 0; i < 2; i++) {
		int fd = ask(request_of(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP,
					(struct target){.family = families[i]}));
		while (take_list(bytes, recv(fd, bytes, sizeof bytes, 0), targets, &count))
			;
		close(fd);
	}
	return count;
}

int network_reset_all(void)
{
	struct target targets[SOCKETS];
	int count = list_all(targets), resets = 0;

	for (int i = 0; i < count; i++)
		resets += destroy(targets[i]);
	return resets;
}

bool network_reset_any(uint64_t random)
{
	struct target targets[SOCKETS];
	int count = list_all(targets);

	return count > 0 && destroy(targets[random % (uint64_t)count]);
}

int network_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	assert(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}
