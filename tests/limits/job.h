/* A small whole job: joins, makes collectives of several kinds and sizes, asynchronous ones,
 * messages, shared memory, a split, and leaves. For tests in which something is refused on the way.
 */
#ifndef TESTS_LIMITS_JOB_H
#define TESTS_LIMITS_JOB_H

#include <tutti/tutti.h>

#include <stdbool.h>

struct job_of {
	int rank, size, port, timeout_ms;
	const char *transports; /* NULL: all */
	const char *where;      /* the call that failed; NULL: none has */
	bool in_child;          /* in which the ranks are numbered the other way round */
	tutti_status status;
	char error[512]; /* its message */
	int wrong;       /* values that were not right */
	long kept;       /* blocks that note memory which other ranks may still use: they are
			  * freed when the next such memory is */
};

/* From init to destroy. Stops at the first failure, and takes apart what there is. */
void job_run(struct job_of *job);
/* The same without joining and leaving. */
void job_use(struct job_of *job, tutti_comm *comm);
/* Descriptors of this process. Not while another thread asks for one: the limit is lifted for a
 * moment. */
int job_open_files(void);
/* A port that no process listens on. */
int job_free_port(void);

#endif
