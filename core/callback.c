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
		callback_keep(function, "it was called in the done function of a tutti_call: call "
					"it in another thread, or later");
	return callback_in_done;
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
