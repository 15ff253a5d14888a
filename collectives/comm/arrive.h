/* Inside comm/: how ranks make a communicator at a rendezvous. */
#ifndef COLLECTIVES_COMM_ARRIVE_H
#define COLLECTIVES_COMM_ARRIVE_H

#include "collectives/comm/join.h"
#include "rendezvous/rendezvous.h"

/* The meeting of ranks that have arrived, until comm_conclude. */
struct arrival {
	struct rendezvous *meeting; /* NULL: it is over */
	uint64_t deadline;
};

/* Fills in comm, which is empty (comm_new), within its timeout: OK on all ranks, or an error on
 * all that have not died. parent_rank: this rank's in the communicator that grows; -1 if new. */
tutti_status comm_arrive(struct tutti_comm *comm, const struct job *job, int parent_rank,
			 struct arrival *arrival);
/* Ends the meeting, also after an error. If the communicator has grown, the old ranks (parent_rank)
 * pass what they have agreed on as decided, and get it back. New ranks pass OK, and get the error
 * if an old rank has one or is missing. So no rank has joined what the others have given up. */
tutti_status comm_conclude(struct tutti_comm *comm, struct arrival *arrival, tutti_status decided);

/* comm_describe for a new communicator: an error, too, if the files that the environment names
 * cannot be used. */
tutti_status arrive_describe(struct tutti_comm *comm, struct member *member);

#endif
