/* What a rank does to itself when it comes to a point of its program, or asks the driver to do. */
#ifndef TESTS_FAULTS_INJECT_H
#define TESTS_FAULTS_INJECT_H

#include "tests/faults/board.h"

#include <pthread.h>

struct inject {
	const struct scenario *scenario;
	struct board *board;
	int id, doorbell; /* doorbell: an eventfd that the driver listens to                  */
	bool is_injected[FAULTS_MOST];
	pthread_mutex_t lock;
	tutti_comm *comm; /* that may be aborted; NULL: none any more                      */
	pthread_t thread;
	bool has_thread;
	uint64_t abort_ns;
};

void inject_init(struct inject *s, const struct scenario *scenario, struct board *board, int id,
		  int doorbell);
/* Nothing is aborted after it. */
void inject_finish(struct inject *s);
/* The communicator there is from now on; NULL: it is about to be destroyed. */
void inject_watch(struct inject *s, tutti_comm *comm);
/* This rank has come to the point. segment, step: where these mean something. */
void inject_at(struct inject *s, enum point point, int segment, int step);

#endif
