/* Ends a process whose callback was unwound: see callback.h. */
#include "core/callback.h"

#include "core/log.h"

#include <stdlib.h>

_Thread_local bool callback_in_done;

void callback_keep(const char *function, const char *why)
{
	log_notice("%s destroys nothing: %s", function, why);
}

bool callback_refuses(const char *function)
{
	if (callback_in_done)
		callback_keep(function, "it was called in a done function: call it in another "
					"thread, or later");
	return callback_in_done;
}

void callback_done(const char *function, const char *of, int rank, tutti_done_fn done, void *arg,
		   tutti_status status)
{
	bool before = callback_in_done; /* a done function may end an empty group with another */

	callback_in_done = true;
	callback_call(function, of, rank, done(arg, status));
	callback_in_done = before;
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
