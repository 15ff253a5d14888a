/* The flight recorder: the last calls of one rank on one communicator, and the fingerprint that a call has
 * after all calls before it.
 *
 * One thread at a time writes. Anybody reads at any time, another process as well when the recorder lies in
 * shared memory: a reader gets an entry whole or not at all. An entry costs a few stores and no clock. */
#ifndef COLLECTIVES_RECORDER_H
#define COLLECTIVES_RECORDER_H

#include "collectives/calls.h"

#include <stdatomic.h>
#include <stdbool.h>

#define RECORDER_NOTES 1024u /* a power of two */

/* A call as it is compared and as it travels; four words. */
struct noted {
	uint64_t what;        /* collective << 48 | dtype << 40 | root                           */
	uint32_t op, counts;  /* op_identity(); a hash of the counts of a v-call, or 0           */
	uint64_t count;
	uint32_t sequence;    /* its low bits: enough among RECORDER_NOTES                       */
	uint32_t fingerprint; /* of this call and of all before it                               */
};

struct recorder {
	_Alignas(128) _Atomic uint64_t issued; /* calls noted: the next one's sequence           */
	_Atomic uint32_t has_left;             /* there will be none any more                    */
	_Alignas(128) struct {
		_Atomic uint64_t words[4];
	} entries[RECORDER_NOTES];
};

/* A zero-filled one. NULL when out of memory. */
struct recorder *recorder_new(void);
void recorder_free(struct recorder *recorder); /* NULL is fine */

/* What is to be noted of a call of size ranks. previous: the fingerprint of the call before it, 0 for the
 * first. So ranks whose histories differ never have a fingerprint in common again, whatever they call. */
struct noted noted_of(const struct call_args *args, int size, uint32_t previous);
void recorder_note(struct recorder *recorder, uint64_t sequence, const struct noted *noted);

/* False: it was not called yet, or too long ago. */
bool recorder_find(const struct recorder *recorder, uint64_t sequence, struct noted *noted);
static inline uint64_t recorder_issued(const struct recorder *recorder)
{
	return atomic_load_explicit(&((struct recorder *)(uintptr_t)recorder)->issued,
				    memory_order_acquire);
}

/* The first calls in which two ranks differ, of those that both recorders still have. */
bool recorders_differ(const struct recorder *a, const struct recorder *b, uint64_t *sequence);

struct call_note noted_note(const struct noted *noted, uint64_t sequence);
/* "The ranks did not make the same call: rank 0 called ..., rank 2 called ....". Returns text. */
const char *noted_mismatch(int rank_a, const struct noted *a, int rank_b, const struct noted *b,
			   uint64_t sequence, char *text, size_t text_bytes);

#endif
