/* The end of a process whose callback did not return: see callback.h. */
#include "core/callback.h"

#include "core/log.h"

#include <stdlib.h>

void callback_unwound(const struct callback *callback)
{
	if (callback->rank >= 0)
		log_set_rank(callback->rank);
	log_line("an exception, pthread_exit or the thread's cancellation left %s of %s; callbacks "
		 "must return normally. Aborting.",
		 callback->function, callback->of);
	abort();
}
