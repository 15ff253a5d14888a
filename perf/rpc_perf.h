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

/* All return 0, or print why not and return -1. */
struct rpc_contender {
	const char *name;
	const char *(*version)(void);
	/* Rank 1 writes its address; then rank 0 connects to it. */
	int (*listen)(void *address);
	int (*connect)(const void *address);
	/* Rank 0: so many calls of RPC_PERF_SHORT bytes, of which so many are in flight; the answer
	 * of each is compared with its payload. */
	int (*short_calls)(int calls, int in_flight);
	/* Rank 0: calls with so many bytes; each answer is rpc_perf_digest of them. */
	int (*long_calls)(int calls, const uint8_t *data, size_t bytes);
	/* Rank 1: serves so many; NULL: threads of its own do. */
	int (*serve)(int calls, size_t bytes);
	void (*close)(void);
};

extern const struct rpc_contender rpc_perf_ucx, rpc_perf_grpc; /* where they are built */

/* Of some of the bytes, so that it costs little; they differ from call to call. */
uint64_t rpc_perf_digest(const uint8_t *data, size_t bytes);
/* Fills a short payload, which differs from call to call. */
void rpc_perf_fill(uint8_t *data, uint64_t number);
/* 0, or the program ends. */
int rpc_perf_differs(const char *who, const uint8_t *data, uint64_t number);
void rpc_perf_check_digest(const char *who, uint64_t got, const uint8_t *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
