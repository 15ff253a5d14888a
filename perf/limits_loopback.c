/* TCP over loopback between two processes that never sleep: a byte to and fro, and as much as goes
 * in one direction and in both. Cubic, which Tutti's sockets take over loopback too: what paces by
 * timers is slower there. */
#include "limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRIES  21
#define TRIPS  500 /* to and fro; a tenth of them where every one takes a change of ranks */
#define PIECE  ((size_t)256 << 10)
#define STREAM ((size_t)16 << 20)

enum { LATENCY, ONE_WAY, BOTH_WAYS, WHATS };

/* Of each rank, what and try; a try that was not made has ended at 0. */
struct times {
	int listener; /* for rank 0; rank 1 asks it for the address */
	struct {
		double start, end;
	} of[2][WHATS][TRIES];
};

static int limits_loopback_fail(const char *what)
{
	fprintf(stderr, "limits: %s: %s.\n", what, strerror(errno));
	return -1;
}

static int limits_loopback_open_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		return limits_loopback_fail("socket");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5); /* where the system has it */
	return fd;
}

static int limits_loopback_listen(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = limits_loopback_open_socket();

	if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0)
		return fd;
	return limits_loopback_fail("listening on loopback");
}

static int limits_loopback_connect(int listener)
{
	struct sockaddr_in at;
	socklen_t bytes = sizeof at;
	int fd = limits_loopback_open_socket();

	if (fd >= 0 && getsockname(listener, (struct sockaddr *)&at, &bytes) == 0 &&
	    connect(fd, (struct sockaddr *)&at, bytes) == 0)
		return fd;
	return limits_loopback_fail("connect");
}

/* Both directions at once, as far as each goes: what a rank of a ring does. */
static bool limits_loopback_move(const struct trial *t, int fd, size_t out, size_t in)
{
	static unsigned char piece[PIECE], place[PIECE];

	for (int look = 0; out || in; look++) {
		ssize_t sent = out ? send(fd, piece, out < PIECE ? out : PIECE, MSG_DONTWAIT) : 0;
		ssize_t got = in ? recv(fd, place, in < PIECE ? in : PIECE, MSG_DONTWAIT) : 0;

		if ((sent < 0 && errno != EAGAIN) || (got < 0 && errno != EAGAIN) ||
		    (got == 0 && in))
			return false;
		out -= sent > 0 ? (size_t)sent : 0;
		in -= got > 0 ? (size_t)got : 0;
		if (sent > 0 || got > 0)
			look = 0;
		else if (look >= t->looks)
			sched_yield();
	}
	return true;
}

static int limits_loopback_trips(bool shares_cores)
{
	return shares_cores ? TRIPS / 10 : TRIPS;
}

static bool limits_loopback_ping(const struct trial *t, int fd)
{
	size_t mine = t->rank == 0;

	for (int i = limits_loopback_trips(t->looks == 0); i > 0; i--) {
		if (!limits_loopback_move(t, fd, mine, !mine) ||
		    !limits_loopback_move(t, fd, !mine, mine))
			return false;
	}
	return true;
}

static bool limits_loopback_once(const struct trial *t, int fd, int what)
{
	if (what == LATENCY)
		return limits_loopback_ping(t, fd);
	if (what == ONE_WAY)
		return limits_loopback_move(t, fd, t->rank == 0 ? STREAM : 0,
					    t->rank == 0 ? 0 : STREAM);
	return limits_loopback_move(t, fd, STREAM, STREAM);
}

static int limits_loopback_body(struct trial *t)
{
	struct times *times = t->arg;
	int fd = t->rank == 0 ? accept(times->listener, NULL, NULL)
			      : limits_loopback_connect(times->listener);

	if (fd < 0)
		return 1;
	for (int try = 0; limits_again(t, try, TRIES); try++) {
		for (int what = LATENCY; what <= BOTH_WAYS; what++) {
			limits_meet(t);
			times->of[t->rank][what][try].start = limits_now();
			if (!limits_loopback_once(t, fd, what)) {
				limits_loopback_fail("the connection over loopback");
				return 1;
			}
			times->of[t->rank][what][try].end = limits_now();
		}
	}
	close(fd);
	return 0;
}

/* From when the first rank began until the last was done: a late rank finds what the other has
 * sent. */
static struct spread limits_loopback_seconds_of(const struct times *times, int what)
{
	double seconds[TRIES];
	int n = 0;

	for (int try = 0; try < TRIES && times->of[0][what][try].end > 0; try++) {
		double start = times->of[0][what][try].start, end = times->of[0][what][try].end;

		if (times->of[1][what][try].start < start)
			start = times->of[1][what][try].start;
		if (times->of[1][what][try].end > end)
			end = times->of[1][what][try].end;
		seconds[n++] = end - start;
	}
	return limits_lowest(seconds, n);
}

static void limits_loopback_report(const struct times *times)
{
	bool shares_cores = limits_share_cores(2);
	double one_ways = 2 * limits_loopback_trips(shares_cores) / 1e6;
	struct spread latency = limits_loopback_seconds_of(times, LATENCY);
	struct spread one_way =
		limits_rate(limits_loopback_seconds_of(times, ONE_WAY), (double)STREAM / 1e9);
	struct spread both_ways =
		limits_rate(limits_loopback_seconds_of(times, BOTH_WAYS), 2 * (double)STREAM / 1e9);

	latency = (struct spread){latency.best / one_ways, latency.low / one_ways,
				  latency.middle / one_ways, latency.high / one_ways};
	printf("loopback TCP%s: %.2f us one way at the least (median %.2f); %.2f GB/s at the most "
	       "in one direction (%.2f), %.2f in both together (%.2f)\n",
	       shares_cores ? ", both ends on one core" : "", latency.best, latency.middle,
	       one_way.best, one_way.middle, both_ways.best, both_ways.middle);
	limits_figure_spread("loopback_latency_us", latency);
	limits_figure_spread("loopback_one_way_GBps", one_way);
	limits_figure_spread("loopback_GBps", both_ways);
}

int limits_loopback(struct trial *t)
{
	struct times *times = limits_map(sizeof *times);
	int failed;

	t->ranks = 2;
	t->is_pinned = true;
	t->arg = times;
	if (!times || (times->listener = limits_loopback_listen()) < 0)
		return 1;
	failed = limits_run(t, limits_loopback_body);
	if (!failed)
		limits_loopback_report(times);
	close(times->listener);
	munmap(times, sizeof *times);
	return failed;
}
