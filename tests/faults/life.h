/* What a rank of a job with faults does from tutti_init to the end of its process, and what it
 * looks at itself: every element of every result, who is in a group, descriptors, buffers that a
 * failed call must not touch any more. What takes several ranks to see is judge.h's. */
#ifndef TESTS_FAULTS_LIFE_H
#define TESTS_FAULTS_LIFE_H

#include "tests/api/part.h"
#include "tests/faults/board.h"
#include "tests/faults/inject.h"

#define FLIGHT_MOST 3

struct life {
	const struct scenario *scenario;
	struct seat *seat;
	struct inject inject;
	int id, generation, segment;
	struct api api;                /* .comm: the present communicator */
	int ids[RANKS_MOST];           /* of its ranks */
	bool failed;                   /* in this segment */
	bool has_grown;                /* or tried to */
	struct part left[FLIGHT_MOST]; /* of calls that failed, their buffers spoiled */
	int left_count;
};

/* Returns the process's exit code; what is wrong is on stderr. */
int life_run(const struct scenario *scenario, struct board *board, int id, int doorbell);

/* steps.c: false: a call has failed, and its event is written. */
bool steps_roll_call(struct life *life);
bool steps_run(struct life *life, int step);
void steps_settle(struct life *life); /* the buffers of calls that failed */
/* The failure of a call on comm, whose ranks are ids. */
void life_note_failure(struct life *life, tutti_comm *comm, tutti_status status, const int *ids,
		       int size, const char *call);

#endif
