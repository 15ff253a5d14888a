/* The helper thread. It starts with the first control ring or asynchronous call of the process, and
 * ends with the last engine that it serves. It makes progress for engines with asynchronous works
 * and calls their callbacks, serves the control rings, and makes progress for the connections of
 * ranks that are in no call. It sleeps in poll while nothing is in flight. */
#include "collectives/engine/helper.h"

#include "collectives/control/control.h"
#include "core/callback.h"
#include "core/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define HELPER_FDS      64
#define CONTROL_FDS     512
#define RESENDS_FDS     256
#define RESEND_AGAIN_MS 5   /* after another thread had the lock                            */
#define CONTROLS_ROUNDS 256 /* a busy helper serves the rings once in so many rounds        */
#define NAP_MS          1
#define NAPS            16 /* after the last asynchronous call, before it sleeps for good   */

static struct {
	pthread_mutex_t life; /* of starting and stopping the thread */
	pthread_t thread;
	bool runs;
	int wake_fd;
	/* Partner: helper_doze looks at it after helper_wake_set_state; helper_wake comes after it
	 * was set. */
	atomic_bool stops;
	_Atomic(callback_place *) callback; /* the thread's callback_now; NULL: it does not run */
} helper = {.life = PTHREAD_MUTEX_INITIALIZER};

/* The engines that the helper serves. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct engine *first, *at; /* at: the engine that the helper is using now */
} served = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Then no visit of it begins any more: a helper that is in one after another would be at it
 * whenever the thread that waits for it gets to look. */
static bool helper_has_left(const struct engine *e)
{
	return e->help.is_leaving && atomic_load(&e->help.async_works) == 0;
}

/* Calls visit for every engine for which is_one is true, without the lock of the served. Returns
 * how many. */
static int helper_for_each(bool (*is_one)(struct engine *e),
			   void (*visit)(struct engine *e, void *arg), void *arg)
{
	int found = 0;
	pthread_mutex_lock(&served.lock);
	for (struct engine *e = served.first; e; e = e->help.next) {
		if (helper_has_left(e) || !is_one(e))
			continue;
		found++;
		served.at = e;
		pthread_mutex_unlock(&served.lock);
		visit(e, arg);
		pthread_mutex_lock(&served.lock);
		served.at = NULL;
		pthread_cond_broadcast(&served.changed);
	}
	pthread_mutex_unlock(&served.lock);
	return found;
}

static void helper_list_add(struct engine *e)
{
	pthread_mutex_lock(&served.lock);
	e->help.next = served.first;
	e->help.resend.is_due = true;
	served.first = e;
	e->help.is_attached = true;
	pthread_mutex_unlock(&served.lock);
}

static bool helper_list_has(const struct engine *e)
{
	pthread_mutex_lock(&served.lock);
	bool is_there = e->help.is_attached;
	pthread_mutex_unlock(&served.lock);
	return is_there;
}

static bool helper_list_is_empty(void)
{
	pthread_mutex_lock(&served.lock);
	bool is_empty = served.first == NULL;
	pthread_mutex_unlock(&served.lock);
	return is_empty;
}

/* Waits until the helper has left e. Each call that ends restarts the timeout. With the list's
 * lock. */
static bool helper_list_wait(const struct engine *e)
{
	int left = atomic_load(&e->help.async_works), error = 0;
	struct timespec until = deadline_timespec(engine_give_up_ns(e));

	while (served.at == e || atomic_load(&e->help.async_works) > 0) {
		if (atomic_load(&e->help.async_works) != left)
			until = deadline_timespec(engine_give_up_ns(e));
		else if (error == ETIMEDOUT)
			return false;
		left = atomic_load(&e->help.async_works);
		error = pthread_cond_clockwait(&served.changed, &served.lock, CLOCK_MONOTONIC,
					       &until);
	}
	return true;
}

/* Returns when the helper is not at e any more, and e has no asynchronous works. False: as
 * helper_detach. */
static bool helper_list_remove(struct engine *e)
{
	struct engine **at = &served.first;

	pthread_mutex_lock(&served.lock);
	e->help.is_leaving = true;
	if (!helper_list_wait(e)) {
		pthread_mutex_unlock(&served.lock);
		return false;
	}
	while (*at != e)
		at = &(*at)->help.next;
	*at = e->help.next;
	e->help.is_attached = false;
	pthread_mutex_unlock(&served.lock);
	return true;
}

/* Calls that were captured run without a work, whenever their graph is launched. So from the first
 * capture on the helper thread looks at the device now and then: whether a kernel waits for one
 * that does not come. */
static bool helper_has_replays(struct engine *e)
{
	return atomic_load_explicit(&e->help.replays, memory_order_relaxed);
}

void engine_expect_replays(struct engine *e)
{
	if (!helper_has_replays(e)) /* the first look may find that a kernel runs already */
		e->watch.replays_since_ns = engine_now(e);
	atomic_store(&e->help.replays, true);
	helper_wake();
}

static void helper_replays_wait(struct engine *e, uint64_t lasts)
{
	char text[200];

	if (lasts >= MS_TO_NS(SLOW_MS) && e->config.control)
		control_check(e->config.control, &(struct control_wait){NO_CALL, true});
	if (e->failure.stop || lasts < MS_TO_NS(e->config.timeout_ms))
		return;
	snprintf(text, sizeof text,
		 "rank %d: a captured call: waited %d ms for the kernels of other ranks; have all "
		 "launched the same graphs? TUTTI_TIMEOUT_MS sets how long to wait.",
		 e->config.rank, e->config.timeout_ms);
	engine_set_failure(e, TUTTI_ERR_TIMEOUT, FAILURE_NO_RANK, text);
}

/* The records of the calls, where there are such, say more than the kernels do. */
static void helper_replays_differ(struct engine *e, const char *how)
{
	char text[ERROR_BYTES];

	if (e->config.control)
		control_check(e->config.control, &(struct control_wait){NO_CALL, true});
	snprintf(text, sizeof text, "rank %d: a captured call: %s", e->config.rank, how);
	engine_set_failure(e, TUTTI_ERR_MISMATCH, FAILURE_NO_RANK, text);
}

/* A call that has a work is watched by that, and says by that how ranks differ. Other works, such
 * as a recv that is posted for good, know nothing of kernels. */
static bool helper_has_device_call(const struct engine *e)
{
	for (const struct tutti_work *work = e->works.newest; work; work = work->next)
		if (work->spec.device)
			return true;
	return false;
}

static void helper_replays_look(struct engine *e)
{
	uint64_t now = engine_now(e), ended;
	bool runs = e->config.device.runs(e->config.device.arg, &ended);
	char how[200];

	bool differs = e->config.device.differs(e->config.device.arg, how, sizeof how);

	if (differs && !helper_has_device_call(e)) {
		helper_replays_differ(e, how);
		return;
	}
	if (!runs || ended != e->watch.replays_ended || helper_has_device_call(e)) {
		e->watch.replays_ended = ended;
		e->watch.replays_since_ns = now;
		return;
	}
	helper_replays_wait(e, now - e->watch.replays_since_ns);
}

static void helper_look_at_replays(struct engine *e, void *arg)
{
	(void)arg;
	if (!engine_trylock(e))
		return;
	if (!e->failure.stop &&
	    engine_now(e) - e->watch.replays_looked_ns >= MS_TO_NS(REPLAYS_MS)) {
		e->watch.replays_looked_ns = engine_now(e);
		helper_replays_look(e);
	}
	engine_unlock(e);
}

/* Returns whether anything moved. */
static bool helper_attend(struct engine *e)
{
	bool moved = false;
	if (engine_trylock(e)) {
		moved = engine_pass(e, false);
		engine_unlock(e);
	}
	while (engine_call_back(e))
		moved = true;
	return moved;
}

static bool helper_has_control(struct engine *e)
{
	return e->config.control && control_needs_helper(e->config.control);
}

struct round {
	bool moved;
	struct wait_policy policy;
};

static void helper_visit_attend(struct engine *e, void *arg)
{
	struct round *round = arg;
	round->moved |= helper_attend(e);
	round->policy = e->config.helper_policy;
}

struct sleep {
	struct pollfd fds[HELPER_FDS + CONTROL_FDS + RESENDS_FDS];
	int n, resend_at, controls_at; /* those for resending and the rings' begin here        */
	int control_ms, resend_ms;     /* when they are due in any case, or -1               */
	bool has_work, is_blind;       /* blind: some engine's descriptors could not be had     */
	bool controls_due;
};

static void helper_visit_arm(struct engine *e, void *arg)
{
	struct sleep *s = arg;
	if (!engine_trylock(e)) {
		s->is_blind = true;
		return;
	}
	int n = e->failure.stop || engine_has_started(e)
			? -1
			: engine_arm(e, s->fds + s->n, HELPER_FDS - s->n);
	engine_unlock(e);
	if (n < 0)
		s->has_work = true;
	else
		s->n += n;
	s->is_blind |= s->n > HELPER_FDS - 8;
}

/* If another thread has the lock, it is in a call and makes progress, but it may leave before all
 * is sent: then the helper tries again. */
static void helper_visit_resend(struct engine *e, void *arg)
{
	const bool *all = arg;

	if (!*all && !e->help.resend.is_due)
		return;
	e->help.resend.is_due = true;
	if (!engine_trylock(e))
		return;
	engine_resend(e, &e->help.resend);
	engine_unlock(e);
}

static void helper_visit_arm_resend(struct engine *e, void *arg)
{
	struct sleep *s = arg;

	e->help.resend.is_due |= s->n + e->help.resend.count > HELPER_FDS + RESENDS_FDS;
	if (e->help.resend.is_due) {
		s->resend_ms = RESEND_AGAIN_MS; /* its descriptor may be readable all the time */
		return;
	}
	for (int i = 0; i < e->help.resend.count; i++)
		s->fds[s->n++] = (struct pollfd){.fd = e->help.resend.fds[i], .events = POLLIN};
}

static void helper_visit_control(struct engine *e, void *arg)
{
	(void)arg;
	control_progress(e->config.control);
}

static void helper_visit_arm_control(struct engine *e, void *arg)
{
	struct sleep *s = arg;
	if (s->n == HELPER_FDS + RESENDS_FDS + CONTROL_FDS) {
		s->control_ms = 10;
		return;
	}
	int n = control_arm(e->config.control, &s->fds[s->n], &s->control_ms);
	if (n < 0)
		s->controls_due = true;
	else
		s->n += n;
}

static void helper_visit_disarm(struct engine *e, void *arg)
{
	(void)arg;
	if (engine_trylock(e)) {
		engine_disarm(e);
		e->watch.passes |= 31; /* after a sleep the clock is cheap: see engine_pass */
		engine_unlock(e);
	}
}

/* Between two naps no work has ended, and no thread waits for those in flight: from now on the
 * helper does not expect one. */
static void helper_visit_nap(struct engine *e, void *arg)
{
	uint64_t ended = atomic_load_explicit(&e->help.ended, memory_order_relaxed);

	(void)arg;
	if (ended == e->help.ended_before && atomic_load(&e->help.waiters) == 0)
		atomic_store(&e->help.prompt, 0);
	e->help.ended_before = ended;
}

/* For how long it may sleep with nothing to do; -1 without a limit. The state is set before the
 * look at what is in flight. */
static int helper_nap_ms(int *naps)
{
	if (helper_wake_was_used())
		*naps = NAPS;
	bool is_used = helper_wake_set_state(*naps > 0 ? HELPER_NAPS : HELPER_SLEEPS);
	if (helper_for_each(helper_has_works, helper_visit_nap, NULL) > 0 || is_used)
		*naps = NAPS;
	if (*naps == 0)
		return -1;
	--*naps;
	return NAP_MS;
}

static int helper_sooner(int a_ms, int b_ms)
{
	return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static void helper_visit_nothing(struct engine *e, void *arg)
{
	(void)e;
	(void)arg;
}

/* When to look at captured calls again, or -1. */
static int helper_replays_ms(void)
{
	return helper_for_each(helper_has_replays, helper_visit_nothing, NULL) > 0 ? REPLAYS_MS
										   : -1;
}

struct due {
	bool controls, resend; /* resend: that of all engines, not only where it was put off */
};

static bool helper_has_news(const struct sleep *s, int from, int to)
{
	while (from < to && s->fds[from].revents == 0)
		from++;
	return from < to;
}

/* Sleeps until there is an event; without a limit when nothing is in flight. Returns what is due.
 */
static struct due helper_doze(int *naps)
{
	struct sleep s = {.n = 1, .control_ms = -1, .resend_ms = -1};
	uint64_t count;
	int ready = 1;

	s.fds[0] = (struct pollfd){.fd = helper.wake_fd, .events = POLLIN};
	int nap = helper_nap_ms(naps); /* before the look at what is in flight */
	int busy = helper_for_each(helper_is_needed, helper_visit_arm, &s);
	s.resend_at = s.n;
	helper_for_each(helper_has_control, helper_visit_arm_resend, &s);
	s.controls_at = s.n;
	helper_for_each(helper_has_control, helper_visit_arm_control, &s);
	if (!s.has_work && !s.controls_due && !atomic_load(&helper.stops))
		ready = poll(
			s.fds, (nfds_t)s.n,
			helper_sooner(busy == 0    ? nap
				      : s.is_blind ? 1
						   : 10,
				      helper_sooner(helper_replays_ms(),
						    helper_sooner(s.control_ms, s.resend_ms))));
	helper_wake_set_state(HELPER_AWAKE);
	if (s.fds[0].revents && read(helper.wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
		return (struct due){true, true};
	if (busy)
		helper_for_each(helper_is_needed, helper_visit_disarm, NULL);
	return (struct due){
		.controls = s.controls_due || (ready == 0 && s.control_ms >= 0) ||
			    helper_has_news(&s, s.controls_at, s.n),
		.resend = helper_has_news(&s, s.resend_at, s.controls_at),
	};
}

const char *helper_callback(void)
{
	callback_place *place = atomic_load(&helper.callback);

	return place ? atomic_load_explicit(place, memory_order_relaxed) : NULL;
}

static void *helper_loop(void *arg)
{
	struct wait w;
	struct wait_policy none = {0};
	bool has_dozed = false;
	int naps = 0;
	struct due due = {true, true};

	(void)arg;
	atomic_store(&helper.callback, &callback_now);
	wait_begin(&w, none);
	for (unsigned rounds = 1; !atomic_load(&helper.stops); rounds++) {
		struct round round = {false, none};
		if (rounds % CONTROLS_ROUNDS == 0)
			due = (struct due){true, true};
		if (due.controls)
			helper_for_each(helper_has_control, helper_visit_control, NULL);
		if (has_dozed || due.resend)
			helper_for_each(helper_has_control, helper_visit_resend, &due.resend);
		if (has_dozed)
			helper_for_each(helper_has_replays, helper_look_at_replays, NULL);
		due = (struct due){false, false};
		has_dozed = false;
		int busy = helper_for_each(helper_is_needed, helper_visit_attend, &round);
		if (round.moved) {
			wait_begin(&w, round.policy);
			continue;
		}
		if (busy == 0 || !wait_again(&w)) {
			due = helper_doze(&naps);
			has_dozed = true;
		}
	}
	atomic_store(&helper.callback, NULL);
	return NULL;
}

static int helper_start_thread(void)
{
	int error = thread_start(&helper.thread, helper_loop, NULL);

	if (!error) /* else it would have the name of the thread that happens to start it */
		pthread_setname_np(helper.thread, "tutti-helper");
	return error;
}

static tutti_status helper_start(int rank)
{
	atomic_store(&helper.stops, false);
	helper.wake_fd = helper_wake_open();
	if (helper.wake_fd < 0)
		return fail_errno("rank %d cannot make what wakes its helper thread (eventfd)",
				  rank);
	int error = helper_start_thread();
	if (error) {
		helper_wake_close();
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
	atomic_store(&helper.stops, true);
	helper_wake();
	pthread_join(helper.thread, NULL);
	helper_wake_close();
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
