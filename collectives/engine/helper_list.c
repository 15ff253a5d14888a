/* The engines that the helper serves, and waking it, from any thread. */
#include "collectives/engine/helper.h"

#include "collectives/engine/engine_internal.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int wake_fd = -1;
static atomic_int state;
static atomic_bool is_used; /* helper_remind was called since the helper last looked */

int wake_open(void)
{
	return wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void wake_close(void)
{
	close(wake_fd);
	wake_fd = -1;
}

/* Partner: helper_wake after async_works grew, and remind after is_used was set. Both sides write,
 * then look at the other's. */
bool wake_set_state(enum helper_state next)
{
	atomic_store(&state, next);
	return atomic_load(&is_used);
}

bool wake_was_used(void)
{
	return atomic_load(&is_used) && atomic_exchange(&is_used, false);
}

void helper_wake(void)
{
	uint64_t one = 1;
	/* Partner: wake_set_state. Full eventfds wake just as well. */
	if (atomic_load(&state) != HELPER_AWAKE && atomic_exchange(&state, HELPER_AWAKE))
		if (write(wake_fd, &one, sizeof one) < 0)
			return;
}

static void helper_list_remind(void)
{
	if (!atomic_load_explicit(&is_used, memory_order_relaxed))
		atomic_store(&is_used, true);
	if (atomic_load(&state) == HELPER_SLEEPS)
		helper_wake();
}

/* So many works in a row must have been waited for soon. */
#define PROMPT_ENOUGH 8

static bool waits_come_soon(const struct engine *e)
{
	return atomic_load_explicit(&((struct engine *)(uintptr_t)e)->help.prompt,
				    memory_order_relaxed) >= PROMPT_ENOUGH;
}

void helper_call_for(struct engine *e, bool is_urgent)
{
	if (is_urgent)
		atomic_store_explicit(&e->help.prompt, 0, memory_order_relaxed);
	if (waits_come_soon(e))
		helper_list_remind();
	else
		helper_wake();
}

/* Soon: the coarse clock has not gone on since the call was submitted. After enough of them it is
 * looked at for every PROMPT_ENOUGH-th. */
void helper_note_wait(const struct tutti_work *work, struct engine *e)
{
	int prompt = 1 + atomic_load_explicit(&e->help.prompt, memory_order_relaxed);

	if (prompt <= PROMPT_ENOUGH || prompt == 2 * PROMPT_ENOUGH) {
		bool is_soon = work->submitted_ns == engine_coarse_now(e);
		prompt = !is_soon ? 0 : prompt > PROMPT_ENOUGH ? PROMPT_ENOUGH : prompt;
	}
	atomic_store_explicit(&e->help.prompt, prompt, memory_order_relaxed);
}

bool helper_has_works(struct engine *e)
{
	return e->works.alone || atomic_load(&e->help.async_works) > 0;
}

bool helper_is_needed(struct engine *e)
{
	if (atomic_load(&e->help.is_dirty) || atomic_load(&e->lists.has_called) ||
	    atomic_load(&e->captured.has_started))
		return true;
	return helper_has_works(e) && atomic_load(&e->help.waiters) == 0 && !waits_come_soon(e);
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

/* Waits until the helper has left e. Each call that ends restarts the timeout. With the list's
 * lock. */
static bool wait_for_helper(const struct engine *e)
{
	int left = atomic_load(&e->help.async_works), error = 0;
	struct timespec until = deadline_timespec(engine_give_up_ns(e));

	while (list.at == e || atomic_load(&e->help.async_works) > 0) {
		if (atomic_load(&e->help.async_works) != left)
			until = deadline_timespec(engine_give_up_ns(e));
		else if (error == ETIMEDOUT)
			return false;
		left = atomic_load(&e->help.async_works);
		error = pthread_cond_clockwait(&list.changed, &list.lock, CLOCK_MONOTONIC, &until);
	}
	return true;
}

bool helper_list_remove(struct engine *e)
{
	struct engine **at = &list.first;

	pthread_mutex_lock(&list.lock);
	if (!wait_for_helper(e)) {
		pthread_mutex_unlock(&list.lock);
		return false;
	}
	while (*at != e)
		at = &(*at)->help.next;
	*at = e->help.next;
	e->help.is_attached = false;
	pthread_mutex_unlock(&list.lock);
	return true;
}
