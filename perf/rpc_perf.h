/* The contenders of perf/rpc_perf.c: calls of rank 0 on rank 1, by the rpc and by peers. */
#ifndef PERF_RPC_PERF_H
#define PERF_RPC_PERF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RPC_PERF_SHORT     64   /* bytes of a short call and of its answer */
#define RPC_PERF_SAMPLES   64   /* words of a long payload that change from call to call */
#define RPC_PERF_IN_FLIGHT 64   /* at most */
#define RPC_PERF_ADDRESS   4096 /* bytes, at most, by which rank 0 finds rank 1 */

/* All return 0, or print why not and return -1. The answer of RPC_PERF_SHORT bytes are these, and of a
 * longer payload rpc_perf_digest of it. */
struct rpc_contender {
	const char *name;
	const char *(*version)(void);
	/* Rank 1 writes its address; then rank 0 connects to it. */
	int (*listen)(void *address);
	int (*connect)(const void *address);
	/* Rank 0: one call, to its answer. NULL: begin and end do. */
	int (*call)(const void *data, size_t bytes, void *answer);
	/* Rank 0: a call of those that are in flight, in one of RPC_PERF_IN_FLIGHT slots; they end in
	 * the order in which they began. data stay until then. NULL: one call at a time. */
	int (*begin)(int slot, const void *data, size_t bytes);
	int (*end)(int slot, void *answer);
	/* Rank 1: serves so many; NULL: threads of its own do. */
	int (*serve)(int calls, size_t bytes);
	void (*close)(void);
	int is_short_only;
};

extern const struct rpc_contender rpc_perf_ucx, rpc_perf_grpc; /* where they are built */

/* Of some of the bytes, so that it costs little; they differ from call to call. */
uint64_t rpc_perf_digest(const uint8_t *data, size_t bytes);

static inline size_t rpc_perf_answer_bytes(size_t bytes)
{
	return bytes > RPC_PERF_SHORT ? sizeof(uint64_t) : RPC_PERF_SHORT;
}

#ifdef __cplusplus
}
#endif
#endif
