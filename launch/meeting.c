/* A port is reserved by binding it and never listening: rank 0 can still bind and listen beside the
 * reservation, since both allow reuse, while another tuttirun's reservation, bound before it allows
 * reuse, finds it taken. So jobs that start at the same moment get different ports. */
#include "meeting.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_PORT 29500 /* torchrun's */
#define PORTS      1000  /* tried upward from the first */
#define PORT_MAX   65535
/* Ports of --hosts: above those that most jobs of one machine reserve. */
#define HOSTS_FIRST_PORT 29600
#define HOSTS_PORTS      880

/* The reservation's descriptor, or -1 with errno. */
static int reserve(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int yes = 1, error;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	address.sin_addr.s_addr = htonl(INADDR_ANY);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* The other machines of the job know this port only. */
static int reserve_given(struct meeting *m)
{
	m->reserved_fd = reserve(m->port);
	if (m->reserved_fd >= 0)
		return 0;
	fprintf(stderr,
		"tuttirun: port %d cannot be used: %s. Choose another one, the same on all "
		"machines.\n",
		m->port, strerror(errno));
	return 1;
}

static int reserve_next(struct meeting *m, int first)
{
	int end = first + PORTS < PORT_MAX + 1 ? first + PORTS : PORT_MAX + 1;

	for (m->port = first; m->port < end; m->port++) {
		m->reserved_fd = reserve(m->port);
		if (m->reserved_fd >= 0)
			return 0;
		if (errno != EADDRINUSE)
			break;
	}
	fprintf(stderr, "tuttirun: no port from %d to %d can be used: %s.\n", first, end - 1,
		strerror(errno));
	return 1;
}

/* A port that was asked for and is taken. On one machine no other program has to know the port. */
static int reserve_near(struct meeting *m)
{
	int asked = m->port, code = reserve_next(m, asked);

	if (code == 0 && m->port != asked)
		fprintf(stderr, "tuttirun: port %d is taken; the job uses port %d\n", asked,
			m->port);
	return code;
}

/* 256 random bits in hexadecimal. */
static int make_secret(char secret[65])
{
	unsigned char bits[32];

	if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
		fprintf(stderr, "tuttirun: no random bits for the job's secret: %s.\n",
			strerror(errno));
		return 1;
	}
	for (size_t i = 0; i < sizeof bits; i++)
		snprintf(secret + 2 * i, 3, "%02x", bits[i]);
	return 0;
}

/* A port of another machine, where it cannot be reserved. It may be taken there. */
static void choose_elsewhere(struct meeting *m)
{
	uint16_t bits = 0;

	if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
		bits = (uint16_t)getpid();
	m->port = HOSTS_FIRST_PORT + bits % HOSTS_PORTS;
}

int meeting_renew(struct meeting *m)
{
	if (m->is_chosen)
		choose_elsewhere(m);
	return m->secret[0] ? make_secret(m->secret) : 0;
}

static bool was_chosen(void)
{
	const char *chosen = getenv(MEETING_CHOSEN);

	return chosen && strcmp(chosen, "1") == 0;
}

static int meet_on_hosts(struct meeting *m)
{
	m->is_chosen = !m->port;
	if (m->is_chosen)
		choose_elsewhere(m);
	return 0;
}

/* The first machine of several. No rank serves at a port that was chosen, so that it does no harm
 * where it is taken; the program may use it. */
static int meet_here(struct meeting *m)
{
	if (!m->is_chosen)
		return reserve_given(m);
	m->reserved_fd = reserve(m->port);
	return 0;
}

int meeting_prepare(struct meeting *m, const struct options *o)
{
	*m = (struct meeting){.reserved_fd = -1, .port = o->master_port};
	m->host = o->master_host ? o->master_host : "127.0.0.1";
	m->is_chosen = o->is_agent && was_chosen();
	if ((o->nodes == 1 || options_start_hosts(o)) && !options_have_secret() &&
	    make_secret(m->secret) != 0)
		return 1;
	if (options_start_hosts(o))
		return meet_on_hosts(m);
	if (o->node_rank > 0)
		return 0;
	if (!m->port)
		return reserve_next(m, FIRST_PORT);
	return o->nodes == 1 && !m->is_chosen ? reserve_near(m) : meet_here(m);
}
