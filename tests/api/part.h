/* One call of a random program: any collective of the header, or a letter from one rank to another,
 * in any of the ways its buffers can lie. What the ranks agree on is drawn from a seed that they
 * share. */
#ifndef TESTS_API_PART_H
#define TESTS_API_PART_H

#include "buffer.h"
#include "data.h"

enum part_name {
	PART_ALL_REDUCE,
	PART_REDUCE,
	PART_BROADCAST,
	PART_ALL_GATHER,
	PART_REDUCE_SCATTER,
	PART_GATHER,
	PART_SCATTER,
	PART_ALL_TO_ALL,
	PART_ALL_GATHERV,
	PART_REDUCE_SCATTERV,
	PART_GATHERV,
	PART_SCATTERV,
	PART_ALL_TO_ALLV,
	PART_BARRIER,
	PART_LETTER, /* a send and its recv; nothing for the other ranks */
	PARTS,
};

/* A communicator as a program sees it: id is the same on its ranks and on no others. */
struct place {
	tutti_comm *comm; /* NULL: this rank is not in it */
	int rank, size, level;
	uint64_t id;
};

/* Where one side's blocks lie, in elements. blocks 0: the side is not looked at here. */
struct layout {
	int blocks;
	bool packed; /* NULL offsets will do */
	size_t count[API_RANKS], offset[API_RANKS], span;
};

struct part {
	enum part_name name;
	struct place place;
	struct data data;
	size_t count, counts[API_RANKS]; /* counts: as all ranks know them, not of all_to_allv   */
	int root, from, to, tag;
	uint64_t pairs; /* all_to_allv: the counts of pairs come from it        */
	bool all_in_place, all_shared, from_anybody;
	/* This rank's. */
	bool in_place, op_is_open;
	struct layout send, recv;
	struct buffer send_buffer, recv_buffer; /* in place: recv_buffer has both               */
	char *send_ptr, *recv_ptr;
	tutti_op op;
	int source;
};

/* The call that seed makes at a place; name PARTS: any. Buffers are there and filled then. */
void part_create(struct part *p, struct api *api, const struct place *place, uint64_t seed,
		 enum part_name name);
void part_destroy(struct part *p);
/* Makes the call: a letter's sender and receiver with send_call and recv_call, all others with
 * recv_call. */
tutti_status part_issue(struct part *p, const tutti_call *send_call, const tutti_call *recv_call);
/* Once the call has ended: every byte of both buffers. step is for the messages. */
void part_check(const struct part *p, struct api *api, int step);
bool part_sends(const struct part *p); /* a letter's sender */
bool part_receives(const struct part *p);
/* Its op may go while the call is in flight. */
void part_close_op(struct part *p);
/* The call in words; text has PART_TEXT bytes. */
#define PART_TEXT 400
const char *part_describe(const struct part *p, char *text);

#endif
