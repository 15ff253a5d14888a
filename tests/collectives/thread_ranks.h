/* Ranks as threads of this process, and what each of them finds wrong. */
#ifndef TESTS_COLLECTIVES_THREAD_RANKS_H
#define TESTS_COLLECTIVES_THREAD_RANKS_H

#include <tutti/tutti.h>

#include <pthread.h>
#include <stdint.h>

#define RANKS_MAX 8

struct rank {
	tutti_comm *comm, *other; /* two communicators of the same ranks */
	int rank, size;
	uint64_t seed;
	pthread_t thread;
	void (*body)(struct rank *);
	char why[300]; /* the first thing that was wrong */
};

void report_wrong(struct rank *r, const char *what, tutti_status status);
void expect(struct rank *r, const char *what, tutti_status status);
/* Runs body on n ranks, a thread each, over the given transports (NULL: all, with the window). */
void with_ranks(int n, const char *transports, uint64_t seed, void (*body)(struct rank *));
/* On 1, 2, 3, 5 and 8 ranks, over tcp, over shm and with the window. */
void everywhere(void (*body)(struct rank *));

#endif
