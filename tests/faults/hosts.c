/* See hosts.h. */
#include "tests/faults/hosts.h"

#include "tests/own_folder.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEVICE "tutti0"

static bool set_up(const char *name, bool is_up)
{
	struct ifreq request = {.ifr_flags = is_up ? IFF_UP | IFF_RUNNING : 0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	bool is_done = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
	if (fd >= 0)
		close(fd);
	return is_done;
}

bool hosts_leave_world(bool keeps_network)
{
	if (!own_mounts() || (!keeps_network && unshare(CLONE_NEWNET) != 0))
		return false;
	/* What looks for TMPDIR, which may lie below /tmp, is to use /tmp. */
	return set_up("lo", true) && own_folder("/dev/shm", "size=1g") &&
	       own_folder("/tmp", "size=1g") && unsetenv("TMPDIR") == 0;
}

void hosts_address(int host, char *text, size_t bytes)
{
	snprintf(text, bytes, "10.77.0.%d", host + 1);
}

static bool set_address(const char *name, int host)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	struct ifreq request = {0};
	char text[32];
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	hosts_address(host, text, sizeof text);
	inet_pton(AF_INET, text, &address.sin_addr);
	memcpy(&request.ifr_addr, &address, sizeof address);
	bool is_done = ioctl(fd, SIOCSIFADDR, &request) == 0;
	inet_pton(AF_INET, "255.255.255.0", &address.sin_addr);
	memcpy(&request.ifr_netmask, &address, sizeof address);
	is_done &= ioctl(fd, SIOCSIFNETMASK, &request) == 0;
	close(fd);
	return is_done;
}

/* Its link-local address would be one more that no packet comes from. */
static void forget_ipv6(void)
{
	int fd = open("/proc/sys/net/ipv6/conf/" DEVICE "/disable_ipv6", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "1", 1) != 1)
		perror("disable_ipv6");
	if (fd >= 0)
		close(fd);
}

static int open_device(void)
{
	struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	snprintf(request.ifr_name, sizeof request.ifr_name, DEVICE);
	if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool open_host(struct hosts *h, int host)
{
	if (unshare(CLONE_NEWNET) != 0)
		return false;
	h->spaces[host] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	h->tuns[host] = open_device();
	if (h->spaces[host] < 0 || h->tuns[host] < 0)
		return false;
	forget_ipv6();
	return set_up("lo", true) && set_address(DEVICE, host) && set_up(DEVICE, true);
}

const char *hosts_open(struct hosts *h, int count)
{
	static char why[200];
	bool is_done = true;

	*h = (struct hosts){.count = count};
	h->own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < count; i++)
		h->spaces[i] = h->tuns[i] = -1;
	for (int i = 0; i < count && is_done; i++)
		is_done = h->own >= 0 && open_host(h, i);
	int error = errno;
	if (h->own >= 0 && setns(h->own, CLONE_NEWNET) != 0)
		is_done = false;
	if (is_done)
		return NULL;
	hosts_close(h);
	snprintf(why, sizeof why, "hosts with networks of their own need root and /dev/net/tun: %s",
		 strerror(error));
	return why;
}

void hosts_close(struct hosts *h)
{
	for (int i = 0; i < h->count; i++) {
		if (h->spaces[i] >= 0)
			close(h->spaces[i]);
		if (h->tuns[i] >= 0)
			close(h->tuns[i]);
	}
	if (h->own >= 0)
		close(h->own);
	h->count = 0;
}

bool hosts_enter(const struct hosts *h, int host)
{
	return setns(h->spaces[host], CLONE_NEWNET) == 0;
}

void hosts_link(const struct hosts *h, int host, bool is_up)
{
	if (!hosts_enter(h, host) || !set_up(DEVICE, is_up))
		perror("a host's link");
	if (setns(h->own, CLONE_NEWNET) != 0)
		perror("back from a host");
}
