/* Sends and receives of ranks over the simulated network, and random numbers for them. */
#ifndef TESTS_COLLECTIVES_P2P_SIM_MESSAGES_H
#define TESTS_COLLECTIVES_P2P_SIM_MESSAGES_H

#include "tests/collectives/sim_ranks.h"

/* What random programs draw from; sim_messages_open seeds it. */
uint64_t sim_draw(uint64_t n);
/* n ranks whose messages are delivered in any order, as the seed says. */
void sim_messages_open(struct sim_ranks *ranks, int n, uint64_t seed);

/* One send or recv of u8 or of elements of 4 bytes. */
struct sim_call {
	enum p2p_side side;
	void *buf;
	size_t count;
	tutti_dtype dtype;
	int peer, tag, *source, timeout_ms; /* 0: long */
	bool proof;                         /* in memory of the proof kind */
};
struct tutti_work *sim_issue(struct engine *e, const struct sim_call *c);
struct tutti_work *sim_send(struct engine *e, void *buf, size_t bytes, int peer, int tag);
struct tutti_work *sim_recv(struct engine *e, void *buf, size_t bytes, int peer, int tag);
bool sim_is_done(struct tutti_work *work);
/* Gives it back: its status, or IN_PROGRESS; INVALID for NULL. */
tutti_status sim_ended(struct tutti_work *work);

#endif
