/* The communicators of a job on one rank, and the rank that failed first. */
#include "collectives/control/job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct job_record {
	atomic_int holders;
	int size;
	atomic_int first;     /* 1 + the rank that failed first, or 0 */
	pthread_mutex_t lock; /* of members; before a ring's */
	struct job_member *members;
};

struct job_record *job_new(int size)
{
	struct job_record *job = calloc(1, sizeof *job);

	if (!job)
		return NULL;
	atomic_init(&job->holders, 1);
	job->size = size;
	pthread_mutex_init(&job->lock, NULL);
	return job;
}

struct job_record *job_hold(struct job_record *job)
{
	if (job)
		atomic_fetch_add(&job->holders, 1);
	return job;
}

void job_drop(struct job_record *job)
{
	if (!job || atomic_fetch_sub(&job->holders, 1) > 1)
		return;
	pthread_mutex_destroy(&job->lock);
	free(job);
}

void job_join(struct job_record *job, struct job_member *member)
{
	if (!job)
		return;
	pthread_mutex_lock(&job->lock);
	member->next = job->members;
	job->members = member;
	if (atomic_load(&job->first))
		member->tell(member->arg, atomic_load(&job->first));
	pthread_mutex_unlock(&job->lock);
}

void job_leave(struct job_record *job, struct job_member *member)
{
	if (!job)
		return;
	pthread_mutex_lock(&job->lock);
	for (struct job_member **at = &job->members; *at; at = &(*at)->next)
		if (*at == member) {
			*at = member->next;
			break;
		}
	pthread_mutex_unlock(&job->lock);
}

int job_number(const struct job_view *view, int rank)
{
	return view->ranks ? view->ranks[rank] : rank;
}

int job_first(const struct job_view *view)
{
	return view->job ? atomic_load(&view->job->first) : 0;
}

void job_note(const struct job_view *view, int first)
{
	struct job_record *job = view->job;
	int none = 0;

	if (!job || first < 1 || first > job->size ||
	    !atomic_compare_exchange_strong(&job->first, &none, first))
		return;
	pthread_mutex_lock(&job->lock);
	for (struct job_member *m = job->members; m; m = m->next)
		m->tell(m->arg, first);
	pthread_mutex_unlock(&job->lock);
}

const char *job_who(const struct job_view *view, int rank, char text[JOB_WHO_BYTES])
{
	text[0] = '\0';
	if (view->job && view->ranks && view->ranks[rank] != rank)
		snprintf(text, JOB_WHO_BYTES, "rank %d of %d, ", view->ranks[rank],
			 view->job->size);
	return text;
}

const char *job_say_first(const struct job_view *view, int rank, char text[JOB_FIRST_BYTES])
{
	int first = job_first(view);

	text[0] = '\0';
	if (first && (rank < 0 || job_number(view, rank) != first - 1))
		snprintf(text, JOB_FIRST_BYTES, "Rank %d of %d" JOB_HAS_FAILED_FIRST, first - 1,
			 view->job->size);
	return text;
}
