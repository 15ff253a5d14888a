/* The outcomes of several tries at one thing: hosts, ports, addresses, transports. A loop over them
 * adds each try. Its error message has the most telling cause, with its errno, and the number of
 * tries with each outcome:
 *
 *     the process that listens at 10.0.0.5:29502 cannot prove ...; 16 tries: 1 another secret,
 *     14 refused, 1 no answer
 *
 * enum tried is ordered by how much an outcome explains. From the most telling, its last value, to
 * the least:
 * - A call was denied to this process, or it lacks a resource (EPERM, EACCES, EMFILE, ENOBUFS): no
 *   peer, port or secret is to blame, and no other try matters.
 * - A process has proved the secret, but serves another meeting: the address is right.
 * - A port to listen on is taken.
 * - A process does not know the secret; it accepts the connection and hangs up; no process listens;
 *   nothing answers. Each says less about where the right process is.
 * - A name has no address; an address has no route. All addresses of a loop, such as those of a
 *   URL, are one machine's: one that answered, even with a refusal, explains more than, say, an
 *   IPv6 address on a machine without IPv6.
 *
 * A host with several addresses counts as one try, with the most telling of their outcomes
 * (net_connect). */
#ifndef CORE_TRIES_H
#define CORE_TRIES_H

#include <stddef.h>

enum tried {
	TRIED_UNREACHABLE,
	TRIED_UNRESOLVED,
	TRIED_SILENT,
	TRIED_REFUSED,
	TRIED_HUNG_UP,
	TRIED_OTHER_SECRET,
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
	enum tried most;           /* the most telling outcome so far */
	int error;                 /* of the first try that had it: errno, or 0, and ... */
	char why[TRIES_WHY_BYTES]; /* ... its message */
};

/* The outcome for an errno of a socket call (socket, bind, connect, send, recv and so on). Errors
 * that are not the network's or the other end's are TRIED_DENIED. */
enum tried tried_of(int error);
/* error: errno, or 0. Keeps errno. */
void tries_add(struct tries *tries, enum tried end, int error, const char *why);
/* Writes the message, and after several tries their counts, to text; "" without a try. Returns
 * text. */
const char *tries_text(const struct tries *tries, char *text, size_t bytes);

#endif
