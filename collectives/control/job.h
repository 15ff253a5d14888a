/* The communicators on this rank that come from one: it, and those that were split from it or from
 * each other. They know their ranks by its numbers, the job's, and together which rank failed
 * first.
 *
 * A rank that hears of a death often gives up other communicators, too. Ranks that wait there find
 * that it is gone; so it tells them whose failure came before. */
#ifndef COLLECTIVES_CONTROL_JOB_H
#define COLLECTIVES_CONTROL_JOB_H

#include <stdatomic.h>
#include <stddef.h>

struct job_record;

/* As a communicator sees it. It lives as long as that. job NULL: nothing is known. */
struct job_view {
	struct job_record *job;
	const int *ranks; /* by rank of the communicator: the job's number; NULL: the same */
};

/* Where a communicator's other ranks are told of a first failure. tell has no lock of a control's
 * or an engine's to wait for that may itself wait in this file. */
struct job_member {
	struct job_member *next;
	void (*tell)(void *arg, int first); /* 1 + the job's number */
	void *arg;
};

/* NULL: no memory. */
struct job_record *job_new(int size);
struct job_record *job_hold(struct job_record *job); /* returns it; NULL is fine */
void job_drop(struct job_record *job);

/* Its members are told, at once if a rank has failed already. */
void job_join(struct job_record *job, struct job_member *member);
void job_leave(struct job_record *job, struct job_member *member);

int job_number(const struct job_view *view, int rank);
/* 1 + the job's number of the rank that failed first, as far as this rank knows; 0: none has. */
int job_first(const struct job_view *view);
/* The first one stays. Out of range: nothing happens. No lock of a control's is held. */
void job_note(const struct job_view *view, int first);

/* "rank 5 of 8, ", or "" where the job's number is rank itself. Returns text. */
#define JOB_WHO_BYTES 40
const char *job_who(const struct job_view *view, int rank, char text[JOB_WHO_BYTES]);
#define JOB_HAS_FAILED_FIRST " has failed first. "
/* "Rank 5 of 8 has failed first. ", or "" if none has, or it is rank. Returns text. */
#define JOB_FIRST_BYTES 56
const char *job_say_first(const struct job_view *view, int rank, char text[JOB_FIRST_BYTES]);

#endif
