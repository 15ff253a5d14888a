/* The helper thread's life: it starts with the first control ring or asynchronous call of the
 * process, and ends with the last engine that it serves. */
#include "collectives/engine/helper.h"

#include <errno.h>
#include <signal.h>

static struct {
	pthread_mutex_t life; /* of starting and stopping the thread */
	pthread_t thread;
	bool runs;
	int wake_fd;
} helper = {.life = PTHREAD_MUTEX_INITIALIZER};

/* Signals are for the threads of the host program. */
static int helper_start_thread(void)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&helper.thread, NULL, helper_loop, &helper.wake_fd);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!error) /* else it would have the name of the thread that happens to start it */
		pthread_setname_np(helper.thread, "tutti-helper");
	return error;
}

static tutti_status helper_start(int rank)
{
	helper_loop_stop(false);
	helper.wake_fd = wake_open();
	if (helper.wake_fd < 0)
		return fail_errno("rank %d cannot make what wakes its helper thread (eventfd)",
				  rank);
	int error = helper_start_thread();
	if (error) {
		wake_close();
		errno = error;
		return fail_errno("rank %d cannot start its helper thread", rank);
	}
	helper.runs = true;
	return TUTTI_OK;
}

tutti_status helper_attach(struct engine *e)
{
	tutti_status status = TUTTI_OK;
	pthread_mutex_lock(&helper.life);
	if (!e->help.is_attached) {
		if (!helper.runs)
			status = helper_start(e->config.rank);
		if (status == TUTTI_OK)
			helper_list_add(e);
	}
	pthread_mutex_unlock(&helper.life);
	return status;
}

bool helper_clean(struct engine *e)
{
	if (!helper_list_has(e))
		return false;
	atomic_store(&e->help.is_dirty, 1);
	helper_wake();
	return true;
}

/* The thread has no engine left, so it runs no callback. */
static void helper_stop(void)
{
	helper_loop_stop(true);
	helper_wake();
	pthread_join(helper.thread, NULL);
	wake_close();
	helper.runs = false;
}

/* Waits for callbacks that are still to come: a tutti_done_fn may not block. It may issue the first
 * asynchronous call of another communicator, which takes `life`. */
bool helper_detach(struct engine *e)
{
	if (!e->help.is_attached)
		return true;
	if (!helper_list_remove(e))
		return false;
	pthread_mutex_lock(&helper.life);
	if (helper.runs && helper_list_is_empty()) /* only holders of life add engines */
		helper_stop();
	pthread_mutex_unlock(&helper.life);
	return true;
}
