/* Whether the helper thread is needed, and waking it, from any thread. Apart from helper.c, which
 * makes progress, because what progress ends wakes the helper. */
#include "collectives/engine/helper.h"

#include <sys/eventfd.h>
#include <unistd.h>

static int wake_fd = -1;
static atomic_int state;
static atomic_bool is_used; /* helper_remind was called since the helper last looked */

int helper_wake_open(void)
{
	return wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void helper_wake_close(void)
{
	close(wake_fd);
	wake_fd = -1;
}

/* Partner: helper_wake after async_works grew, and helper_remind after is_used was set. Both sides
 * write, then look at the other's. */
bool helper_wake_set_state(enum helper_state next)
{
	atomic_store(&state, next);
	return atomic_load(&is_used);
}

bool helper_wake_was_used(void)
{
	return atomic_load(&is_used) && atomic_exchange(&is_used, false);
}

void helper_wake(void)
{
	uint64_t one = 1;
	/* Partner: helper_wake_set_state. Full eventfds wake just as well. */
	if (atomic_load(&state) != HELPER_AWAKE && atomic_exchange(&state, HELPER_AWAKE))
		if (write(wake_fd, &one, sizeof one) < 0)
			return;
}

static void helper_remind(void)
{
	if (!atomic_load_explicit(&is_used, memory_order_relaxed))
		atomic_store(&is_used, true);
	if (atomic_load(&state) == HELPER_SLEEPS)
		helper_wake();
}

/* So many works in a row must have been waited for soon. */
#define PROMPT_ENOUGH 8

static bool helper_waits_come_soon(const struct engine *e)
{
	return atomic_load_explicit(&((struct engine *)(uintptr_t)e)->help.prompt,
				    memory_order_relaxed) >= PROMPT_ENOUGH;
}

void helper_call_for(struct engine *e, bool is_urgent)
{
	if (is_urgent)
		atomic_store_explicit(&e->help.prompt, 0, memory_order_relaxed);
	if (helper_waits_come_soon(e))
		helper_remind();
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
	return helper_has_works(e) && atomic_load(&e->help.waiters) == 0 &&
	       !helper_waits_come_soon(e);
}
