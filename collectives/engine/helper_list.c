/* The engines that the helper serves. */
#include "collectives/engine/helper.h"

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
