/* The engines that the helper serves, and waking it, from any thread. */
#include "collectives/engine/helper.h"

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

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct engine *first, *at; /* at: the engine that the helper is using now */
} list = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int helper_for_each(bool (*is_one)(struct engine *e), void (*visit)(struct engine *e, void *arg),
		    void *arg)
{
	int found = 0;
	pthread_mutex_lock(&list.lock);
	for (struct engine *e = list.first; e; e = e->help.next) {
		if (!is_one(e))
			continue;
		found++;
		list.at = e;
		pthread_mutex_unlock(&list.lock);
		visit(e, arg);
		pthread_mutex_lock(&list.lock);
		list.at = NULL;
		pthread_cond_broadcast(&list.changed);
	}
	pthread_mutex_unlock(&list.lock);
	return found;
}

void helper_list_add(struct engine *e)
{
	pthread_mutex_lock(&list.lock);
	e->help.next = list.first;
	e->help.resend.is_due = true;
	list.first = e;
	e->help.is_attached = true;
	pthread_mutex_unlock(&list.lock);
}

bool helper_list_has(const struct engine *e)
{
	pthread_mutex_lock(&list.lock);
	bool is_there = e->help.is_attached;
	pthread_mutex_unlock(&list.lock);
	return is_there;
}

bool helper_list_is_empty(void)
{
	pthread_mutex_lock(&list.lock);
	bool is_empty = list.first == NULL;
	pthread_mutex_unlock(&list.lock);
	return is_empty;
}

void helper_list_remove(struct engine *e)
{
	struct engine **at = &list.first;

	pthread_mutex_lock(&list.lock);
	while (list.at == e || atomic_load(&e->help.async_works) > 0)
		pthread_cond_wait(&list.changed, &list.lock);
	while (*at != e)
		at = &(*at)->help.next;
	*at = e->help.next;
	e->help.is_attached = false;
	pthread_mutex_unlock(&list.lock);
}
