/* The flight recorder: the last calls of one rank on one communicator, each with a fingerprint of
 * itself and of all calls before it.
 *
 * One thread at a time writes. Any thread may read at any time, of another process as well if the
 * recorder is in shared memory: a reader gets a whole entry or none. An entry costs a few stores
 * and no clock. */
#ifndef COLLECTIVES_TRACE_RECORDER_H
#define COLLECTIVES_TRACE_RECORDER_H

#include "collectives/plan/plan.h"
#include "core/memory/ops.h"

#include <stdatomic.h>
#include <stdbool.h>

#define NO_CALL UINT64_MAX /* a sequence number that no call has                          */

#define RECORDER_CALLS 1024u /* a power of two */

/* A call record, as it is compared and as it travels; four words. */
struct call_record {
	uint64_t what;        /* collective << 48 | is_on_device << 47 | dtype << 40 | root, or
	                       * purpose                                                       */
	uint32_t op, counts;  /* op_identity(); a hash of the counts of a v-call, or 0           */
	uint64_t count;
	uint32_t sequence;    /* its low bits: enough among RECORDER_CALLS                       */
	uint32_t fingerprint; /* of this call and of all before it                               */
};

struct recorder {
	_Alignas(128) _Atomic uint64_t issued; /* calls recorded, the sequence of the next */
	_Atomic uint32_t has_left;             /* there will be none any more                    */
	_Alignas(128) struct {
		_Atomic uint64_t words[4];
	} entries[RECORDER_CALLS];
};

/* A zero-filled one. NULL when out of memory. */
struct recorder *recorder_new(void);
void recorder_free(struct recorder *recorder); /* NULL is fine */

/* Of a v-call's counts, or 0 if they are not compared. */
uint32_t hash_of_counts(const struct call_args *args, int size);

/* The record of a call of size ranks. previous: the fingerprint of the call before it, 0 for the
 * first. So ranks whose histories differ never have a fingerprint in common again. */
static inline struct call_record call_record_of(const struct call_args *a, int size,
						uint32_t previous)
{
	struct call_record n = {
		.what = (uint64_t)a->collective << 48 | (uint64_t)a->is_on_device << 47 |
			(uint64_t)(a->dtype & 127) << 40 | (uint32_t)a->root | a->purpose,
		.op = (int)a->op < OPS_FIRST ? (uint32_t)a->op : op_identity(a->op),
		.count = a->count,
		.sequence = (uint32_t)a->sequence};
	if (__builtin_expect(a->counts[RECV_SIDE] || a->counts[SEND_SIDE], 0))
		n.counts = hash_of_counts(a, size);
	uint64_t h = (n.what * 0xbf58476d1ce4e5b9u) ^
		     (((uint64_t)n.op << 32 | n.counts) * 0x94d049bb133111ebu);
	h = (h ^ h >> 29) + (n.count ^ a->sequence << 40) * 0xff51afd7ed558ccdu;
	h = (h ^ h >> 31 ^ previous) * 0x9e3779b97f4a7c15u;
	n.fingerprint = (uint32_t)(h >> 32) | 1;
	return n;
}

/* Invalid while its words are written: partner is recorder_find, which looks at the last word
 * before and after the others. */
static inline void recorder_add(struct recorder *r, uint64_t sequence, const struct call_record *n)
{
	_Atomic uint64_t *words = r->entries[sequence % RECORDER_CALLS].words;

	atomic_store_explicit(&words[3], 0, memory_order_relaxed);
	atomic_store_explicit(&words[0], n->what, memory_order_release);
	atomic_store_explicit(&words[1], (uint64_t)n->op << 32 | n->counts, memory_order_release);
	atomic_store_explicit(&words[2], n->count, memory_order_release);
	atomic_store_explicit(&words[3], (uint64_t)n->sequence << 32 | n->fingerprint,
			      memory_order_release);
	atomic_store_explicit(&r->issued, sequence + 1, memory_order_release);
}

/* False: it was not called yet, or too long ago. */
bool recorder_find(const struct recorder *recorder, uint64_t sequence, struct call_record *record);
static inline uint64_t recorder_issued(const struct recorder *recorder)
{
	return atomic_load_explicit(&((struct recorder *)(uintptr_t)recorder)->issued,
				    memory_order_acquire);
}

/* The first calls in which two ranks differ, of those that both recorders still have. */
bool recorders_differ(const struct recorder *a, const struct recorder *b, uint64_t *sequence);

struct call_summary call_record_summary(const struct call_record *record, uint64_t sequence);
#define CALL_MISMATCH "The ranks did not make the same call: "
/* "The ranks did not make the same call: rank 0 called ..., rank 2 called ....". Returns text. */
const char *call_record_mismatch(int rank_a, const struct call_record *a, int rank_b,
				 const struct call_record *b, uint64_t sequence, char *text,
				 size_t text_bytes);

#endif
