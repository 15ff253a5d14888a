/* Waking the helper thread (helper.c), from any thread. */
#include "collectives/engine/engine_internal.h"

#include <sys/eventfd.h>
#include <unistd.h>

static int wake_fd = -1;
static atomic_int is_asleep;

int wake_open(void)
{
	return wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void wake_close(void)
{
	close(wake_fd);
	wake_fd = -1;
}

/* Partner: helper_wake after async_works grew. Both sides write, then look at the other's. */
void wake_may_sleep(bool may)
{
	atomic_store(&is_asleep, may);
}

void helper_wake(void)
{
	uint64_t one = 1;
	/* Partner: wake_may_sleep. Full eventfds wake just as well. */
	if (atomic_load(&is_asleep) && atomic_exchange(&is_asleep, 0))
		if (write(wake_fd, &one, sizeof one) < 0)
			return;
}
