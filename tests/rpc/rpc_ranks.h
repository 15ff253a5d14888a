/* Ranks with an rpc, and functions that tests call. */
#ifndef TESTS_RPC_RPC_RANKS_H
#define TESTS_RPC_RPC_RANKS_H

#include "tests/collectives/thread_ranks.h"

#include <tutti/rpc.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* A rank of a test, with the state of its functions. */
struct rpc_rank {
	struct rank *rank;
	tutti_rpc *rpc;
	atomic_int echoed;     /* calls of "echo" and "short"                     */
	atomic_int waiting;    /* calls of "wait" that have begun                  */
	atomic_int is_open;    /* they may go on                                   */
	atomic_int cancelled;  /* of them have seen that they are cancelled        */
	atomic_int released;   /* answers of "pieces" that were released          */
	atomic_ulong sum;      /* of the numbers of "add"                         */
	tutti_rpc_reply *kept; /* of "later"                                      */
	atomic_int has_kept;
};

/* Every rank has the same functions:
 *   echo, short  the payload is the answer; short is TUTTI_RPC_SHORT
 *   room         the same by tutti_rpc_reply_room
 *   pieces       the same in three pieces, which are released
 *   wait         until is_open, or cancelled, which is then its error: ABORTED
 *   error        SYSTEM, with the payload as message
 *   later        keeps its reply for the test
 *   back         calls "echo" of its caller with the payload
 *   add          adds the number in the payload to sum
 *   context      the number of its thread's context */
void rpc_open(struct rpc_rank *r, struct rank *rank, const tutti_rpc_config *config);
/* Shuts down, and destroys. */
void rpc_close(struct rpc_rank *r);

/* Bytes of a payload that no other has: of that seed. */
void rpc_pattern(uint8_t *data, size_t bytes, uint64_t seed);
bool rpc_has_pattern(const void *data, size_t bytes, uint64_t seed);
/* Calls name on rank with bytes in up to three pieces, and compares what comes back. */
void rpc_check_echo(struct rpc_rank *r, int rank, const char *name, size_t bytes, uint64_t seed);
/* A call that must fail so, with that text in its message. */
void rpc_expect_error(struct rpc_rank *r, tutti_status got, tutti_status status, const char *text);
/* Waits until the counter has come to n. */
void rpc_until(struct rpc_rank *r, const atomic_int *counter, int n);

/* As everywhere of thread_ranks.h; with sanitizers on fewer ranks. */
void rpc_everywhere(void (*body)(struct rank *));

#define RPC_OK(r, call) expect((r)->rank, #call, call)
#define RPC_TRUE(r, what)                                                                          \
	do {                                                                                       \
		if (!(what))                                                                       \
			report_wrong((r)->rank, #what, TUTTI_OK);                                  \
	} while (0)

#endif
