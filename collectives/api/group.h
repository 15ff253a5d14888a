/* Groups: the calls that a thread makes between tutti_group_begin and tutti_group_end are
 * collected, and started together at the outermost end. (A plan's struct group is another matter:
 * some ranks.) */
#ifndef COLLECTIVES_API_GROUP_H
#define COLLECTIVES_API_GROUP_H

#include "collectives/comm/comm.h"

#define GROUP_CALLS_MAX 16384

extern atomic_bool group_was_begun; /* some thread has begun a group */
bool group_is_mine(void);

/* Whether this thread is collecting: one load in a process without groups. */
static inline bool group_is_open(void)
{
	return __builtin_expect(atomic_load_explicit(&group_was_begun, memory_order_relaxed), 0) &&
	       group_is_mine();
}

/* INVALID while this thread is collecting: for a call that cannot be in a group. */
tutti_status group_refuse(const char *name);
/* The checks of a call that may be a member begin: their first error is kept for group_end. */
void group_note_errors(void);
/* Collects a call whose checks have passed. Tables that its arguments point to are copied, buffers
 * are not. */
tutti_status group_add_call(struct tutti_comm *comm, const struct call_args *args,
			    const tutti_call *call);
tutti_status group_add_message(struct tutti_comm *comm, const struct send_recv *message,
			       const tutti_call *call);

#endif
