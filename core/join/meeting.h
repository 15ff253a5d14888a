/* The state of a meeting, as its server knows it: which ranks have come, what they gave in this
 * round, and why it has failed. Pure state: no sockets, no clock; the caller brings the time. */
#ifndef CORE_JOIN_MEETING_H
#define CORE_JOIN_MEETING_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

enum seat { SEAT_EMPTY, SEAT_TAKEN, SEAT_GAVE, SEAT_LEFT, SEAT_LOST }; /* left: with a word */

struct meeting {
	int size, size_said_by;          /* size is 0 until a rank has said it                  */
	int local_ranks, local_said_by;  /* of each process, as the first rank to come said; 0  */
	uint32_t hosts;                  /* hash of the first list of hosts that came, or 0     */
	int hosts_said_by;
	int has_tls, tls_said_by;        /* of the first rank to come, or -1                    */
	uint8_t *seats;                  /* enum seat of every rank                             */
	bool sizes_differ;               /* the failure: how many ranks will come is not known  */
	int joined, left;
	bool is_complete;                /* all have joined; never unset                        */
	uint64_t deadline_ns;            /* of joining, then of the open round: the earliest    */
	const char *hint;                /* why ranks may be missing, or NULL                   */
	uint64_t unproved;               /* connections that did not prove the secret           */
	char unproved_from[64];          /* the last one's address, or ""                       */

	int given, bytes_said_by;        /* records of the open round, if there is one          */
	size_t record_bytes;
	uint8_t *gather, *answer;        /* the open round's; the last closed one's             */
	size_t answer_bytes;

	tutti_status status;             /* the failure of the meeting, for all ranks           */
	char error[ERROR_BYTES];
};

/* If size is 0, the first rank to join says it. */
tutti_status meeting_init(struct meeting *meeting, int size, uint64_t deadline_ns);
void meeting_finish(struct meeting *meeting);

/* Every function below may end in a failure of the meeting (false, status and error are set). */
/* How many ranks the rank's process makes; 0: it does not matter. Before meeting_join, since ranks
 * whose processes differ have wrong numbers, too. */
bool meeting_compare_local_ranks(struct meeting *meeting, int rank, int local_ranks);
bool meeting_join(struct meeting *meeting, int rank, int size, uint64_t deadline_ns);
/* hosts: a hash of the list of all hosts that the rank's launcher gave it, or 0. */
void meeting_compare_hosts(struct meeting *meeting, int rank, uint32_t hosts);
void meeting_compare_tls(struct meeting *meeting, int rank, bool has_tls);
/* Where the rank's record goes; NULL: failed. Then meeting_gave when it is there: true when it
 * was the round's last, and answer holds all. */
uint8_t *meeting_record(struct meeting *meeting, int rank, size_t bytes, uint64_t deadline_ns);
bool meeting_gave(struct meeting *meeting, int rank);
/* The rank has gone, with a word (BYE) or without. */
void meeting_leave(struct meeting *meeting, int rank, bool said_bye);
/* A connection that spoke the protocol has gone without a proof, or with a wrong one. from: the
 * address, or "". */
void meeting_count_unproved(struct meeting *meeting, const char *from);
void meeting_tick(struct meeting *meeting, uint64_t now_ns);
void meeting_fail(struct meeting *meeting, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Lists the ranks whose seat is below limit, as core/rank_list.h does. text has RANK_LIST_LEAST
 * bytes or more. */
void meeting_list(const struct meeting *meeting, enum seat limit, char *text, size_t bytes);

#endif
