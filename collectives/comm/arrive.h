/* How ranks that meet at a place come to a communicator. */
#ifndef COLLECTIVES_COMM_ARRIVE_H
#define COLLECTIVES_COMM_ARRIVE_H

#include "collectives/comm/join.h"
#include "rendezvous/rendezvous.h"

/* The meeting of ranks that have arrived, until comm_conclude. */
struct arrival {
	struct rendezvous *meeting; /* NULL: it is over */
	uint64_t deadline;
};

/* comm, which is empty (comm_new), by the deadline that its timeout gives: OK on all ranks, or an error on all that have
 * not died. parent_rank: this rank's in the communicator that grows; -1: it comes anew. */
tutti_status comm_arrive(struct tutti_comm *comm, const struct job *job, int parent_rank,
			 struct arrival *arrival);
/* The end of the meeting, also after an error. Where the communicator has grown, those who were there (parent_rank) say what
 * they have agreed on, and that is what is returned to them; new ranks give OK, and get the error if any of those has one,
 * or is not there to say it: so nobody has joined what the others have given up. */
tutti_status comm_conclude(struct tutti_comm *comm, struct arrival *arrival, tutti_status verdict);

/* What a new communicator's member says of itself (comm_describe), if it can use what its environment names. */
tutti_status arrive_describe(struct tutti_comm *comm, struct member *member);

#endif
