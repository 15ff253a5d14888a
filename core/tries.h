/* How several tries at one thing ended: hosts, ports, addresses, transports. A loop over them adds
 * each try, and its error is the most telling cause with its errno, and how many tries ended how:
 *
 *     the process that listens at 10.0.0.5:29502 cannot prove ...; 16 tries: 1 another secret,
 *     14 refused, 1 no answer
 *
 * The ends stand in the order in which they explain a failure, the most telling last:
 * - This process was denied a call, or lacks something (EPERM, EACCES, EMFILE, ENOBUFS): nothing
 *   elsewhere matters, and no peer, port or secret is to blame.
 * - A process has proved the secret, but serves another meeting: the place is right.
 * - A port to listen on is taken; a name has no address; an address has no route: what the user
 *   wrote is wrong, or the network is down, whatever another host of the list says.
 * - A process does not know the secret; it takes the connection and hangs up; no process listens;
 *   nothing answers. Each says less about where the right one is.
 * Of the addresses of one host only the best counts (net_connect): one that a machine has answered
 * says more than one without a route, which many have for IPv6. */
#ifndef CORE_TRIES_H
#define CORE_TRIES_H

#include <stddef.h>

enum tried {
	TRIED_SILENT,
	TRIED_REFUSED,
	TRIED_HUNG_UP,
	TRIED_OTHER_SECRET,
	TRIED_UNREACHABLE,
	TRIED_UNRESOLVED,
	TRIED_TAKEN,
	TRIED_OTHER_MEETING,
	TRIED_DENIED,
	TRIED_ENDS
};

#define TRIES_WHY_BYTES  280
#define TRIES_TEXT_BYTES (TRIES_WHY_BYTES + 120)

/* All 0: no try yet. */
struct tries {
	int count, ended[TRIED_ENDS];
	enum tried most;           /* the most telling so far; of its first try: */
	int error;                 /* errno, or 0                                        */
	char why[TRIES_WHY_BYTES]; /* its message                                        */
};

/* The end that an errno of socket, bind, connect, send, recv and their like stands for. Those that
 * do not concern the other end are TRIED_DENIED. */
enum tried tried_of(int error);
/* error: errno, or 0. errno survives. */
void tries_add(struct tries *tries, enum tried end, int error, const char *why);
/* The message, and the counts of several tries, into text; "" without a try. Returns text. */
const char *tries_text(const struct tries *tries, char *text, size_t bytes);

#endif
