/* A simulated world for rpc/, whose objects are the product's: what they call of the library and of
 * the system is replaced (tests.cmake: --wrap). Threads take turns, one runs at a time, and a seed
 * decides which, how long each message takes, and how the clock goes on. Messages between two ranks
 * stay in order, as p2p keeps them; what they cause does not, since done functions run in a thread
 * of each rank and waits end in others. */
#ifndef TESTS_RPC_SIM_RPC_SIM_H
#define TESTS_RPC_SIM_RPC_SIM_H

#include <tutti/tutti.h>

#include <stddef.h>
#include <stdint.h>

enum {
	WORLD_RANKS = 3,
	WORLD_COPY_BYTES = 8192, /* longer sends read their memory until they end */
};

/* A message as p2p has it. */
struct world_message {
	int from, to, tag;
	const void *data;
	size_t bytes;
};

/* Runs body(arg) as a thread of a new world, and the threads that it starts, until all have ended.
 * pthread_create, tutti_send and the like are the world's in these. */
void world_run(uint64_t seed, void (*body)(void *arg), void *arg);
tutti_comm *world_comm(int rank); /* of a world of WORLD_RANKS */
uint64_t world_random(uint64_t n);
uint64_t world_now_ns(void);
void world_sleep_us(uint64_t us);
/* Messages and transfers that are on their way, and works that nobody has released. */
int world_left(void);
void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The test's: a message is sent; and has been dealt with by its recv's done function, or received
 * without one. data of a long message is not to be read. */
void world_on_send(const struct world_message *m);
void world_on_dealt(const struct world_message *m);

#endif
