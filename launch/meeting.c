/* Which port and which secret a job has: the user's, or fresh ones. */
#include "meeting.h"

#include "core/words/netaddr.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Ports of --hosts: below those that systems hand out themselves. */
#define HOSTS_FIRST_PORT 29600
#define HOSTS_PORTS      880
/* The default with several machines: torchrun's. */
#define NODES_PORT 29500

/* The other machines of the job know this port only. */
static int meeting_reserve_given(struct meeting *m)
{
	if (fresh_port_keep(&m->reserved, m->port) == 0)
		return 0;
	fprintf(stderr,
		"tuttirun: port %d cannot be used: %s. Choose another one, the same on all "
		"machines.\n",
		m->port, strerror(errno));
	return 1;
}

/* On one machine no other program has to know the port, so the system can choose it. A range that
 * is searched for a free one could be exhausted. */
static int meeting_reserve_any(struct meeting *m)
{
	int error = 0, asked = m->port;

	if (asked && fresh_port_keep(&m->reserved, asked) == 0)
		return 0;
	if (asked)
		error = errno;
	if (fresh_port_keep(&m->reserved, 0) != 0) {
		fprintf(stderr, "tuttirun: cannot bind a TCP port that the system chooses: %s.\n",
			strerror(errno));
		return 1;
	}
	m->port = m->reserved.number;
	if (asked)
		fprintf(stderr, "tuttirun: port %d cannot be used (%s); the job uses port %d\n",
			asked, strerror(error), m->port);
	return 0;
}

static int meeting_make_secret(char secret[FRESH_SECRET_BYTES])
{
	if (fresh_secret(secret) == 0)
		return 0;
	fprintf(stderr, "tuttirun: no random bits for the job's secret: %s.\n", strerror(errno));
	return 1;
}

/* A port of another machine, where it cannot be reserved. It may be taken there. */
static void meeting_choose_elsewhere(struct meeting *m)
{
	uint16_t bits = 0;

	if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
		bits = (uint16_t)getpid();
	m->port = HOSTS_FIRST_PORT + bits % HOSTS_PORTS;
}

int meeting_renew(struct meeting *m)
{
	if (m->is_chosen)
		meeting_choose_elsewhere(m);
	return m->secret[0] ? meeting_make_secret(m->secret) : 0;
}

static bool meeting_was_chosen(void)
{
	const char *chosen = getenv(MEETING_CHOSEN);

	return chosen && strcmp(chosen, "1") == 0;
}

static int meeting_meet_on_hosts(struct meeting *m)
{
	m->is_chosen = !m->port;
	if (m->is_chosen)
		meeting_choose_elsewhere(m);
	return 0;
}

/* The first machine of several. No rank serves at a port that was chosen, so that it does no harm
 * where it is taken; the program may use it. */
static int meeting_meet_here(struct meeting *m)
{
	if (!m->is_chosen)
		return meeting_reserve_given(m);
	fresh_port_keep(&m->reserved, m->port);
	return 0;
}

int meeting_prepare(struct meeting *m, const struct options *o)
{
	*m = (struct meeting){.reserved = FRESH_PORT_NONE, .port = o->master_port};
	m->host = o->master_host ? o->master_host : netaddr_loopback();
	m->is_chosen = o->is_agent && meeting_was_chosen();
	if ((o->nodes == 1 || options_start_hosts(o)) && !options_have_secret() &&
	    meeting_make_secret(m->secret) != 0)
		return 1;
	if (options_start_hosts(o))
		return meeting_meet_on_hosts(m);
	if (o->nodes > 1 && !m->port)
		m->port = NODES_PORT;
	if (o->node_rank > 0)
		return 0;
	return o->nodes == 1 && !m->is_chosen ? meeting_reserve_any(m) : meeting_meet_here(m);
}
