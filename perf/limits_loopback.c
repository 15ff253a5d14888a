/* TCP over loopback between two processes that never sleep: a byte to and fro, and as much as goes
 * in one direction and in both. Cubic, which Tutti's sockets take over loopback too: what paces by
 * timers is slower there. */
#include "limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRIES  21
#define TRIPS  500
#define PIECE  ((size_t)256 << 10)
#define STREAM ((size_t)16 << 20)

enum { LATENCY, ONE_WAY, BOTH_WAYS };

static int fail(const char *what)
{
	fprintf(stderr, "limits: %s: %s.\n", what, strerror(errno));
	return -1;
}

static int open_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		return fail("socket");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5); /* where the system has it */
	return fd;
}

static int serve(struct trial *t)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof at;
	int listener = open_socket(), fd;

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &bytes) != 0 || listen(listener, 1) != 0)
		return fail("listening on loopback");
	atomic_store(&t->shared->port, (int)ntohs(at.sin_port));
	limits_meet(t, 0);
	fd = accept(listener, NULL, NULL);
	close(listener);
	return fd >= 0 ? fd : fail("accept");
}

static int reach(struct trial *t)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = open_socket();

	limits_meet(t, 0);
	at.sin_port = htons((uint16_t)atomic_load(&t->shared->port));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
		return fd;
	return fail("connect");
}

/* Both directions at once, as far as each goes: what a rank of a ring does. */
static bool move(int fd, size_t out, size_t in)
{
	static unsigned char piece[PIECE], place[PIECE];

	while (out || in) {
		ssize_t sent = out ? send(fd, piece, out < PIECE ? out : PIECE, MSG_DONTWAIT) : 0;
		ssize_t got = in ? recv(fd, place, in < PIECE ? in : PIECE, MSG_DONTWAIT) : 0;

		if ((sent < 0 && errno != EAGAIN) || (got < 0 && errno != EAGAIN) ||
		    (got == 0 && in))
			return false;
		out -= sent > 0 ? (size_t)sent : 0;
		in -= got > 0 ? (size_t)got : 0;
	}
	return true;
}

static bool ping(int fd, int rank)
{
	for (int i = 0; i < TRIPS; i++) {
		if (!move(fd, rank == 0, rank != 0) || !move(fd, rank != 0, rank == 0))
			return false;
	}
	return true;
}

static bool once(int fd, int rank, int what)
{
	if (what == LATENCY)
		return ping(fd, rank);
	if (what == ONE_WAY)
		return move(fd, rank == 0 ? STREAM : 0, rank == 0 ? 0 : STREAM);
	return move(fd, STREAM, STREAM);
}

static int body(struct trial *t)
{
	static double seconds[3][TRIES];
	int fd = t->rank == 0 ? serve(t) : reach(t);

	if (fd < 0)
		return 1;
	for (int try = 0; try < TRIES; try++) {
		for (int what = LATENCY; what <= BOTH_WAYS; what++) {
			double start;

			limits_meet_again(t);
			start = limits_now();
			if (!once(fd, t->rank, what))
				return 1;
			seconds[what][try] = limits_now() - start;
		}
	}
	for (int what = LATENCY; what <= BOTH_WAYS; what++)
		t->shared->figures[t->rank][what] = limits_middle(seconds[what], TRIES, 0.5);
	close(fd);
	return 0;
}

int limits_loopback(void)
{
	struct trial t = {.ranks = 2, .shared = limits_shared()};
	const double *found;
	double latency, one_way, both_ways;

	if (!t.shared || limits_run_pinned(t, body) != 0)
		return 1;
	found = t.shared->figures[1];
	latency = found[LATENCY] / TRIPS / 2 * 1e6;
	one_way = (double)STREAM / found[ONE_WAY] / 1e9;
	both_ways = 2 * (double)STREAM / found[BOTH_WAYS] / 1e9;
	printf("loopback TCP: %.2f us one way; %.2f GB/s in one direction, %.2f in both together\n",
	       latency, one_way, both_ways);
	limits_figure("loopback_latency_us", latency);
	limits_figure("loopback_one_way_GBps", one_way);
	limits_figure("loopback_GBps", both_ways);
	munmap(t.shared, sizeof *t.shared);
	return 0;
}
