/* Ends a process whose callback was unwound: see callback.h. */
#include "core/callback.h"

#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>

_Thread_local bool callback_in_done;
_Thread_local callback_place callback_now;

void callback_keep(const char *function, const char *why)
{
	log_notice("%s destroys nothing: %s", function, why);
}

bool callback_refuses(const char *function)
{
	char why[128];

	if (!callback_in_done)
		return false;
	snprintf(why, sizeof why, "it was called in %s: call it in another thread, or later",
		 atomic_load_explicit(&callback_now, memory_order_relaxed));
	callback_keep(function, why);
	return true;
}

const char *callback_enter(const char *place)
{
	const char *before = atomic_load_explicit(&callback_now, memory_order_relaxed);

	atomic_store_explicit(&callback_now, place, memory_order_relaxed);
	return before;
}

void callback_done_at(const struct callback *names, const char *place, tutti_done_fn done,
		      void *arg, tutti_status status)
{
	bool was_in_done = callback_in_done; /* it may end an empty group with another */
	const char *before = callback_enter(place);

	callback_in_done = true;
	callback_call(names->function, names->of, names->rank, done(arg, status));
	callback_in_done = was_in_done;
	callback_enter(before);
}

void callback_unwound(const struct callback *callback)
{
	if (callback->rank >= 0)
		log_set_rank(callback->rank);
	log_line("an exception, pthread_exit or the thread's cancellation left %s of %s; callbacks "
		 "must return normally. Aborting.",
		 callback->function, callback->of);
	abort();
}
