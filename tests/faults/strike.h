/* What a rank does to itself when it comes to a point of its program, or asks the driver to do. */
#ifndef TESTS_FAULTS_STRIKE_H
#define TESTS_FAULTS_STRIKE_H

#include "tests/faults/board.h"

#include <pthread.h>

struct strikes {
	const struct scenario *scenario;
	struct board *board;
	int id, doorbell; /* doorbell: an eventfd that the driver listens to                  */
	bool is_struck[FAULTS_MOST];
	pthread_mutex_t lock;
	tutti_comm *comm; /* that may be aborted; NULL: none any more                      */
	pthread_t thread;
	bool has_thread;
	uint64_t abort_ns;
};

void strikes_init(struct strikes *s, const struct scenario *scenario, struct board *board, int id,
		  int doorbell);
/* Nothing is aborted after it. */
void strikes_finish(struct strikes *s);
/* The communicator there is from now on; NULL: it is about to be destroyed. */
void strikes_watch(struct strikes *s, tutti_comm *comm);
/* This rank has come to the point. segment, step: where these mean something. */
void strikes_at(struct strikes *s, enum point point, int segment, int step);

#endif
