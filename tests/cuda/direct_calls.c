/* Bytes that tell ranks and places apart, and sums of words. */
#include "direct_calls.h"

#include "gpu.h"

#include "collectives/comm/comm.h"
#include "collectives/p2p/p2p.h"
#include "core/memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GARBAGE DIRECT_GARBAGE

uint64_t direct_seed;

void direct_must(const struct one *r, bool is_so, const char *what, size_t bytes)
{
	if (is_so)
		return;
	fprintf(stderr, "rank %d of %d, seed %llu, %zu bytes: not so: %s: %s\n", r->rank,
		r->w->size, (unsigned long long)direct_seed, bytes, what,
		tutti_comm_error(r->comm));
	abort();
}

void direct_well(const struct one *r, tutti_status status, const char *what, size_t bytes)
{
	direct_must(r, status == TUTTI_OK, what, bytes);
}

const char *direct_way(const tutti_comm *comm, int peer)
{
	static const char *const ways[] = {[P2P_BY_STAGES] = "stages",
					   [P2P_BY_ADAPTERS] = "adapters",
					   [P2P_BY_COPIES] = "copies"};

	return ways[p2p_way_of(comm->engine, peer, TUTTI_MEMORY_CUDA)];
}

static uint8_t byte_of(int from, int to, size_t i)
{
	return (uint8_t)(from * 31 + to * 17 + (int)(i * 7 % 251) + (int)(i / 4096) +
			 (int)direct_seed);
}

static uint32_t word_of(int from, size_t i)
{
	return (uint32_t)from * 7919u + (uint32_t)i * 2654435761u + (uint32_t)direct_seed;
}

void direct_fill(const struct one *r, enum what what, size_t bytes, size_t at)
{
	uint8_t *host = r->host;

	if (what < COPYING)
		for (int to = 0; to < r->w->size; to++)
			for (size_t i = 0; i < bytes; i++)
				host[(size_t)to * bytes + i] = byte_of(
					r->rank, what == ALL_TO_ALL || what == SCATTER ? to : 0, i);
	else
		for (size_t i = 0; i < (size_t)r->w->size * bytes / 4; i++)
			memcpy(host + 4 * i, &(uint32_t){word_of(r->rank, i)}, 4);
	gpu_write(r->send + at, host, (size_t)r->w->size * bytes);
	memset(host, GARBAGE, (size_t)r->w->size * bytes + SLACK);
	gpu_write(r->recv, host, (size_t)r->w->size * bytes + SLACK);
}

static tutti_status send_round(const struct one *r, const void *send, void *recv, size_t bytes,
			       const tutti_call *call)
{
	int size = r->w->size;

	direct_well(r, tutti_group_begin(), "group_begin", bytes);
	tutti_send(send, bytes, TUTTI_U8, (r->rank + 1) % size, r->comm, NULL);
	tutti_recv(recv, bytes, TUTTI_U8, (r->rank + size - 1) % size, r->comm, NULL);
	return tutti_group_end(call);
}

tutti_status direct_issue(const struct one *r, enum what what, size_t bytes, size_t at,
			  const tutti_call *call)
{
	const void *send = r->send + at;
	void *recv = r->recv + at;
	tutti_comm *comm = r->comm;
	size_t words = bytes / 4;

	switch (what) {
	case ALL_GATHER:
		return tutti_all_gather(send, recv, bytes, TUTTI_U8, comm, call);
	case BROADCAST:
		return tutti_broadcast(send, recv, bytes, TUTTI_U8, 1, comm, call);
	case ALL_TO_ALL:
		return tutti_all_to_all(send, recv, bytes, TUTTI_U8, comm, call);
	case GATHER:
		return tutti_gather(send, recv, bytes, TUTTI_U8, 1, comm, call);
	case SCATTER:
		return tutti_scatter(send, recv, bytes, TUTTI_U8, 1, comm, call);
	case MESSAGES:
		return send_round(r, send, recv, bytes, call);
	case ALL_REDUCE:
		return tutti_all_reduce(send, recv, words, TUTTI_U32, TUTTI_SUM, comm, call);
	case REDUCE_SCATTER:
		return tutti_reduce_scatter(send, recv, words, TUTTI_U32, TUTTI_SUM, comm, call);
	default:
		return tutti_reduce(send, recv, words, TUTTI_U32, TUTTI_SUM, 1, comm, call);
	}
}

/* Bytes that come to this rank: blocks of them. */
static size_t expected_blocks(const struct one *r, enum what what)
{
	switch (what) {
	case ALL_GATHER:
	case ALL_TO_ALL:
		return (size_t)r->w->size;
	case GATHER:
		return r->rank == 1 ? (size_t)r->w->size : 0;
	case REDUCE:
		return r->rank == 1;
	default:
		return 1;
	}
}

static uint8_t expected_byte(const struct one *r, enum what what, size_t block, size_t i)
{
	int size = r->w->size;

	switch (what) {
	case BROADCAST:
		return byte_of(1, 0, i);
	case SCATTER:
		return byte_of(1, r->rank, i);
	case ALL_TO_ALL:
		return byte_of((int)block, r->rank, i);
	case MESSAGES:
		return byte_of((r->rank + size - 1) % size, 0, i);
	default:
		return byte_of((int)block, 0, i);
	}
}

static bool is_sum(const struct one *r, const uint8_t *at, size_t i)
{
	uint32_t sum = 0, found;

	memcpy(&found, at + 4 * i, 4);
	for (int k = 0; k < r->w->size; k++)
		sum += word_of(k, i);
	return found == sum;
}

void direct_check(const struct one *r, enum what what, size_t bytes, size_t at)
{
	size_t blocks = expected_blocks(r, what), all = (size_t)r->w->size * bytes + SLACK;
	size_t first = what == REDUCE_SCATTER ? (size_t)r->rank * (bytes / 4) : 0;
	size_t rounded = what < COPYING ? bytes : bytes / 4 * 4;
	bool is_right = true;

	gpu_read(r->host, r->recv, all);
	for (size_t b = 0; what < COPYING && b < blocks; b++)
		for (size_t i = 0; i < bytes; i++)
			is_right &= r->host[at + b * bytes + i] == expected_byte(r, what, b, i);
	for (size_t i = 0; what >= COPYING && i < blocks * (bytes / 4); i++)
		is_right &= is_sum(r, r->host + at - 4 * first, first + i);
	direct_must(r, is_right, "a result is right", bytes);
	for (size_t i = 0; i < at; i++)
		is_right &= r->host[i] == GARBAGE;
	for (size_t i = at + blocks * rounded; i < all; i++)
		is_right &= r->host[i] == GARBAGE;
	direct_must(r, is_right, "nothing else is written", bytes);
}

const char *const direct_names[] = {"all_gather", "broadcast",      "all_to_all",
				    "gather",     "scatter",        "messages",
				    "all_reduce", "reduce_scatter", "reduce"};
