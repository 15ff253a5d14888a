/* A rank whose calls end with one of them, whichever it is. For a test whose program is linked with
 * --wrap of these functions (tests.cmake); ranks are threads. */
#ifndef TESTS_TRAIN_LAST_CALL_H
#define TESTS_TRAIN_LAST_CALL_H

#include <tutti/tutti.h>

#include <stdbool.h>

/* This rank's calls come to an end: it aborts its communicators before a call, or after one that
 * the others need from it, and returns an error from there on. */
static _Thread_local struct {
	bool is_counting, is_over, ends_after;
	int calls, ends_at; /* 0: never */
} own;

/* The test's: aborts this rank's communicators. */
static void abort_own(void);

tutti_status __real_tutti_work_wait(tutti_work **work, int timeout_ms);

static void end(void)
{
	own.is_over = true;
	abort_own();
}

/* False: there are no calls any more. *is_last: this is the last one. */
static bool begins_call(bool *is_last)
{
	bool is_end = own.is_counting && !own.is_over && ++own.calls == own.ends_at;

	*is_last = is_end && own.ends_after;
	if (is_end && !own.ends_after)
		end();
	return !own.is_over;
}

/* A call that fails leaves no work. */
static tutti_status ends_call(tutti_status status, tutti_work **work, bool is_last)
{
	if (is_last)
		end();
	if (is_last && work)
		__real_tutti_work_wait(work, 0);
	return own.is_over ? tutti_set_error(TUTTI_ERR_ABORTED, "the end of this rank's calls")
			   : status;
}

/* The calls of a trainer that communicate. */
#define WRAP(name, parameters, arguments)                                                          \
	tutti_status __real_tutti_##name parameters;                                               \
	tutti_status __wrap_tutti_##name parameters;                                               \
	tutti_status __wrap_tutti_##name parameters                                                \
	{                                                                                          \
		bool is_last;                                                                      \
		bool is_made = begins_call(&is_last);                                              \
		tutti_status status = is_made ? __real_tutti_##name arguments : TUTTI_OK;          \
		return ends_call(status, call ? call->work : NULL, is_last);                       \
	}
WRAP(all_reduce,
     (const void *send, void *recv, size_t count, tutti_dtype dtype, tutti_op op, tutti_comm *comm,
      const tutti_call *call),
     (send, recv, count, dtype, op, comm, call))
WRAP(all_gather,
     (const void *send, void *recv, size_t count, tutti_dtype dtype, tutti_comm *comm,
      const tutti_call *call),
     (send, recv, count, dtype, comm, call))
WRAP(all_gatherv,
     (const void *send, void *recv, const size_t *counts, const size_t *offsets, tutti_dtype dtype,
      tutti_comm *comm, const tutti_call *call),
     (send, recv, counts, offsets, dtype, comm, call))
WRAP(reduce_scatterv,
     (const void *send, void *recv, const size_t *counts, const size_t *offsets, tutti_dtype dtype,
      tutti_op op, tutti_comm *comm, const tutti_call *call),
     (send, recv, counts, offsets, dtype, op, comm, call))
WRAP(broadcast,
     (const void *send, void *recv, size_t count, tutti_dtype dtype, int root, tutti_comm *comm,
      const tutti_call *call),
     (send, recv, count, dtype, root, comm, call))

/* A wait that has begun ends with the abort, and lets its work go. Looked at again and again, as
 * time has it, it counts as one call. */
tutti_status __wrap_tutti_work_wait(tutti_work **work, int timeout_ms);
tutti_status __wrap_tutti_work_wait(tutti_work **work, int timeout_ms)
{
	bool is_last;
	tutti_status status;

	begins_call(&is_last);
	do
		status = __real_tutti_work_wait(work, timeout_ms);
	while (is_last && status == TUTTI_IN_PROGRESS);
	if (status != TUTTI_IN_PROGRESS)
		return ends_call(status, NULL, is_last);
	own.calls -= own.is_counting && !own.is_over;
	return status;
}

#endif
