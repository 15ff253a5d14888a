/* The part that both kinds of control share, and calls of the one that it is. */
#include "collectives/control/control_internal.h"

void control_bind(struct control *c, void (*on_failure)(void *arg, const struct failure *failure),
		  void (*wake)(void), void *arg)
{
	c->on_failure = on_failure;
	c->wake = wake;
	c->arg = arg;
	c->member = (struct job_member){.tell = c->kind->tell_first, .arg = c};
	job_join(c->job.job, &c->member);
}

tutti_status control_wait(struct control *c, uint64_t deadline_ns, bool (*is_over)(void *arg),
			  void *arg)
{
	return c->kind->wait ? c->kind->wait(c, deadline_ns, is_over, arg) : TUTTI_OK;
}

void control_leave(struct control *c)
{
	c->kind->leave(c);
}

void control_destroy(struct control *c)
{
	if (!c)
		return;
	job_leave(c->job.job, &c->member);
	c->kind->destroy(c);
}

void control_check(struct control *c, const struct control_wait *wait)
{
	const struct failure *suspected = control_suspicion(c);

	c->kind->check(c, wait);
	/* Behind the records of this call, so that the answer says whether all ranks agree. */
	if (suspected && suspected->status == TUTTI_ERR_MISMATCH && suspected->sequence != NO_CALL)
		control_ask(c, suspected->sequence, 0);
}

bool control_suspect(struct control *c, const struct failure *failure, uint64_t now_ns)
{
	if (!suspicion_may_be_explained(failure->status))
		return false;
	if (suspicion_note(&c->suspicion, failure, now_ns))
		control_check(c, &(struct control_wait){failure->sequence, true});
	return true;
}

const struct failure *control_suspicion(const struct control *c)
{
	return suspicion_is_open(&c->suspicion) ? &c->suspicion.failure : NULL;
}

const struct failure *control_unexplained(struct control *c, uint64_t now_ns)
{
	const struct failure *suspected = control_suspicion(c);

	if (!suspected)
		return NULL;
	bool all_agree = suspected->status == TUTTI_ERR_MISMATCH && c->kind->all_agree &&
			 suspected->sequence != NO_CALL &&
			 c->kind->all_agree(c, suspected->sequence);
	return suspicion_is_over(&c->suspicion, all_agree, now_ns) ? suspected : NULL;
}

bool control_has_news(const struct control *c)
{
	return c->kind->has_news && c->kind->has_news(c);
}

void control_look(struct control *c)
{
	c->kind->look(c);
}

bool control_ask(struct control *c, uint64_t sequence, uint64_t deadline_ns)
{
	return c->kind->ask(c, sequence, deadline_ns);
}

const char *control_missing(struct control *c, uint64_t sequence, char *text, size_t text_bytes)
{
	return c->kind->missing(c, sequence, text, text_bytes);
}

const struct failure *control_found(struct control *c)
{
	return c->kind->found ? c->kind->found(c) : NULL;
}

void control_fail(struct control *c, const struct failure *failure, int pending)
{
	c->kind->fail(c, failure, pending);
}

void control_hear_first(struct control *c, int rank)
{
	if (c->kind->hear_first)
		c->kind->hear_first(c, rank);
}

const struct job_view *control_job(const struct control *c)
{
	return &c->job;
}

bool control_needs_helper(const struct control *c)
{
	return c->kind->progress != NULL;
}

void control_progress(struct control *c)
{
	c->kind->progress(c);
}

int control_arm(struct control *c, struct pollfd *fd, int *timeout_ms)
{
	return c->kind->arm(c, fd, timeout_ms);
}
