/* Many attackers at the listeners of a job: port scanners, browsers, noise, giant lengths, the
 * right words with the wrong secret, descriptors that nobody asked for, and those who say nothing
 * at all. */
#ifndef TESTS_SECURITY_FLOOD_H
#define TESTS_SECURITY_FLOOD_H

#include "tests/security/targets.h"

#include <stdint.h>

#define FLOOD_CONNECTIONS 300 /* connections held open at a time */

enum manner {
	MANNER_SCAN,  /* connects, and hangs up */
	MANNER_RESET, /* the same, not politely */
	MANNER_HTTP,
	MANNER_NOISE,
	MANNER_GIANT, /* lengths beyond all bounds */
	MANNER_SILENT,
	MANNER_DRIP,  /* the beginning of a hello */
	MANNER_GUESS, /* a hello, and a guessed proof when it is answered */
	MANNER_PASS,  /* Unix: a hello of shm's, with descriptors */
	MANNERS
};

struct attacker {
	int fd; /* -1: none */
	enum manner manner;
	bool has_guessed;
};

struct flood {
	uint64_t random;
	struct target targets[TARGETS_MOST];
	int count;
	struct attacker connections[FLOOD_CONNECTIONS];
	unsigned next, calls;
	unsigned made[MANNERS], tcp, local; /* connections that came about */
};

void flood_begin(struct flood *flood, uint64_t seed);
/* One more attacker at one of the doors of these processes; the one that has been there for longest
 * goes. */
void flood_step(struct flood *flood, const pid_t *pids, int n);
/* All go. Also for a child that has inherited them. */
void flood_end(struct flood *flood);
unsigned flood_made(const struct flood *flood);

#endif
