/* The flight recorder: call records, and how to compare them. */
#include "collectives/trace/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recorder *recorder_new(void)
{
	struct recorder *r = aligned_alloc(_Alignof(struct recorder), sizeof *r);
	if (r)
		memset(r, 0, sizeof *r);
	return r;
}

void recorder_free(struct recorder *r)
{
	free(r);
}

/* Two v-calls are one call when all ranks name the same counts, in the same order. */
uint32_t hash_of_counts(const struct call_args *a, int size)
{
	const size_t *counts = a->counts[RECV_SIDE] ? a->counts[RECV_SIDE] : a->counts[SEND_SIDE];
	uint64_t h = 0x9e3779b97f4a7c15u;

	if (a->collective == COLL_ALL_TO_ALLV) /* there each pair has its own */
		return 0;
	for (int i = 0; i < size; i++) {
		h = (h ^ counts[i]) * 0xbf58476d1ce4e5b9u;
		h ^= h >> 31;
	}
	return (uint32_t)(h >> 32) | 1;
}

bool recorder_find(const struct recorder *recorder, uint64_t sequence, struct call_record *n)
{
	struct recorder *r = (struct recorder *)(uintptr_t)recorder;
	_Atomic uint64_t *words = r->entries[sequence % RECORDER_CALLS].words;
	uint64_t issued = recorder_issued(r), last, op;

	if (sequence >= issued || issued - sequence > RECORDER_CALLS)
		return false;
	last = atomic_load_explicit(&words[3], memory_order_acquire);
	n->what = atomic_load_explicit(&words[0], memory_order_acquire);
	op = atomic_load_explicit(&words[1], memory_order_acquire);
	n->count = atomic_load_explicit(&words[2], memory_order_acquire);
	n->op = (uint32_t)(op >> 32);
	n->counts = (uint32_t)op;
	n->sequence = (uint32_t)(last >> 32);
	n->fingerprint = (uint32_t)last;
	return atomic_load_explicit(&words[3], memory_order_relaxed) == last &&
	       n->sequence == (uint32_t)sequence && n->fingerprint != 0;
}

/* A fingerprint covers all calls before, so the first difference is found by halving. */
bool recorders_differ(const struct recorder *a, const struct recorder *b, uint64_t *sequence)
{
	uint64_t ends[2] = {recorder_issued(a), recorder_issued(b)};
	uint64_t end = ends[0] < ends[1] ? ends[0] : ends[1];
	uint64_t newest = ends[0] < ends[1] ? ends[1] : ends[0];
	uint64_t low = newest > RECORDER_CALLS ? newest - RECORDER_CALLS : 0, high;
	struct call_record x, y;

	if (end <= low || !recorder_find(a, end - 1, &x) || !recorder_find(b, end - 1, &y) ||
	    x.fingerprint == y.fingerprint)
		return false;
	for (high = end - 1; low < high;) {
		uint64_t middle = low + (high - low) / 2;
		bool known = recorder_find(a, middle, &x) && recorder_find(b, middle, &y);
		if (known && x.fingerprint != y.fingerprint)
			high = middle;
		else
			low = middle + 1;
	}
	*sequence = high;
	return true;
}

struct call_summary call_record_summary(const struct call_record *n, uint64_t sequence)
{
	enum collective c = (enum collective)(n->what >> 48);
	bool has_root = collective_has_root(collective_pattern(c)) || c >= COLL_SPLIT;
	uint32_t low = (uint32_t)n->what;

	return (struct call_summary){.collective = (int)c,
				     .dtype = (int)(n->what >> 40 & 127),
				     .is_on_device = n->what >> 47 & 1,
				     .op = (int)n->op,
				     .root = has_root ? (int)low : 0,
				     .purpose = has_root ? 0 : low,
				     .count = n->count,
				     .sequence = sequence};
}

const char *call_record_mismatch(int rank_a, const struct call_record *a, int rank_b,
				 const struct call_record *b, uint64_t sequence, char *text,
				 size_t text_bytes)
{
	bool in_order = rank_a < rank_b;
	struct call_summary first = call_record_summary(in_order ? a : b, sequence);
	struct call_summary second = call_record_summary(in_order ? b : a, sequence);
	char one[128], other[128];
	const char *why = "";

	call_in_words(&first, one, sizeof one);
	call_in_words(&second, other, sizeof other);
	if (a->counts != b->counts && strcmp(one, other) == 0)
		why = "; the counts of the single ranks differ";
	else if (strcmp(one, other) == 0)
		why = "; an earlier call differs, too long ago to be shown";
	snprintf(text, text_bytes, CALL_MISMATCH "rank %d called %s, rank %d called %s%s.",
		 in_order ? rank_a : rank_b, one, in_order ? rank_b : rank_a, other, why);
	return text;
}
