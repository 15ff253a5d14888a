/* The helper: one thread per process that moves asynchronous works along while nobody waits for
 * them, calls their callbacks, serves the control rings, and makes progress for the connections of
 * ranks that are in no call. It starts with the first control ring or asynchronous call and sleeps
 * in poll while nothing is under way. */
#include "collectives/engine/job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#define HELPER_FDS      64
#define CONTROL_FDS     512
#define RESENDS_FDS     256
#define RESEND_AGAIN_MS 5   /* after another thread had the lock                            */
#define CONTROLS_ROUNDS 256 /* a busy helper serves the rings once in so many rounds        */

static struct {
	pthread_mutex_t life; /* of starting and stopping the thread                  */
	pthread_mutex_t lock; /* of the list and of at                                */
	pthread_cond_t changed;
	struct engine *first, *at; /* at: the engine that the thread is using now          */
	pthread_t thread;
	bool runs, stops;
	int wake_fd;
} helper = {.life = PTHREAD_MUTEX_INITIALIZER,
	    .lock = PTHREAD_MUTEX_INITIALIZER,
	    .changed = PTHREAD_COND_INITIALIZER};

/* Returns whether anything moved. */
static bool attend(struct engine *e)
{
	bool moved = false;
	if (pthread_mutex_trylock(&e->lock) == 0) {
		moved = engine_pass(e);
		engine_unlock(e);
	}
	while (engine_call_back(e))
		moved = true;
	return moved;
}

static bool is_busy(struct engine *e)
{
	return atomic_load(&e->async_works) > 0 || atomic_load(&e->is_dirty);
}

static bool has_control(struct engine *e)
{
	return e->config.control && control_needs_helper(e->config.control);
}

/* Calls visit for every engine for which is_one is true, without the lock of the list. Returns how
 * many. */
static int for_each(bool (*is_one)(struct engine *e), void (*visit)(struct engine *e, void *arg),
		    void *arg)
{
	int found = 0;
	pthread_mutex_lock(&helper.lock);
	for (struct engine *e = helper.first; e; e = e->next_helped) {
		if (!is_one(e))
			continue;
		found++;
		helper.at = e;
		pthread_mutex_unlock(&helper.lock);
		visit(e, arg);
		pthread_mutex_lock(&helper.lock);
		helper.at = NULL;
		pthread_cond_broadcast(&helper.changed);
	}
	pthread_mutex_unlock(&helper.lock);
	return found;
}

struct round {
	bool moved;
	struct wait_policy policy;
};

static void visit_attend(struct engine *e, void *arg)
{
	struct round *round = arg;
	round->moved |= attend(e);
	round->policy = e->config.helper_policy;
}

struct sleep {
	struct pollfd fds[HELPER_FDS + CONTROL_FDS + RESENDS_FDS];
	int n, resend_at, controls_at; /* those for resending and the rings' begin here        */
	int control_ms, resend_ms;     /* when they are due in any case; -1: never           */
	bool has_work, is_blind;       /* blind: some engine's descriptors could not be had     */
	bool controls_due;
};

static void visit_arm(struct engine *e, void *arg)
{
	struct sleep *s = arg;
	if (pthread_mutex_trylock(&e->lock) != 0) {
		s->is_blind = true;
		return;
	}
	int n = e->stop ? -1 : engine_arm(e, s->fds + s->n, HELPER_FDS - s->n);
	engine_unlock(e);
	if (n < 0)
		s->has_work = true;
	else
		s->n += n;
	s->is_blind |= s->n > HELPER_FDS - 8;
}

/* If another thread has the lock, it is in a call and makes progress, but it may leave before all
 * is sent: then the helper tries again. */
static void visit_resend(struct engine *e, void *arg)
{
	const bool *all = arg;

	if (!*all && !e->resend.is_due)
		return;
	e->resend.is_due = true;
	if (pthread_mutex_trylock(&e->lock) != 0)
		return;
	engine_resend(e, &e->resend);
	engine_unlock(e);
}

static void visit_arm_resend(struct engine *e, void *arg)
{
	struct sleep *s = arg;

	e->resend.is_due |= s->n + e->resend.count > HELPER_FDS + RESENDS_FDS;
	if (e->resend.is_due) {
		s->resend_ms = RESEND_AGAIN_MS; /* its descriptor may be readable all the time */
		return;
	}
	for (int i = 0; i < e->resend.count; i++)
		s->fds[s->n++] = (struct pollfd){.fd = e->resend.fds[i], .events = POLLIN};
}

static void visit_control(struct engine *e, void *arg)
{
	(void)arg;
	control_progress(e->config.control);
}

static void visit_arm_control(struct engine *e, void *arg)
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

static void visit_disarm(struct engine *e, void *arg)
{
	(void)arg;
	if (pthread_mutex_trylock(&e->lock) == 0) {
		engine_disarm(e);
		e->passes |= 31; /* after a sleep the clock is cheap: see engine_pass */
		engine_unlock(e);
	}
}

static bool stops(void)
{
	pthread_mutex_lock(&helper.lock);
	bool is_over = helper.stops;
	pthread_mutex_unlock(&helper.lock);
	return is_over;
}

static int sooner(int a_ms, int b_ms)
{
	return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

struct due {
	bool controls, resend; /* resend: that of all engines, not only where it was put off */
};

static bool has_news(const struct sleep *s, int from, int to)
{
	while (from < to && s->fds[from].revents == 0)
		from++;
	return from < to;
}

/* Sleeps until there is an event; without a limit when nothing is under way. Returns what is due.
 */
static struct due doze(void)
{
	struct sleep s = {.n = 1, .control_ms = -1, .resend_ms = -1};
	uint64_t count;
	int ready = 1;

	s.fds[0] = (struct pollfd){.fd = helper.wake_fd, .events = POLLIN};
	wake_may_sleep(true); /* before the look at what is under way */
	int busy = for_each(is_busy, visit_arm, &s);
	s.resend_at = s.n;
	for_each(has_control, visit_arm_resend, &s);
	s.controls_at = s.n;
	for_each(has_control, visit_arm_control, &s);
	if (!s.has_work && !s.controls_due && !stops())
		ready = poll(s.fds, (nfds_t)s.n,
			     sooner(busy == 0    ? -1
				    : s.is_blind ? 1
						 : 10,
				    sooner(s.control_ms, s.resend_ms)));
	wake_may_sleep(false);
	if (s.fds[0].revents && read(helper.wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
		return (struct due){true, true};
	if (busy)
		for_each(is_busy, visit_disarm, NULL);
	return (struct due){
		.controls = s.controls_due || (ready == 0 && s.control_ms >= 0) ||
			    has_news(&s, s.controls_at, s.n),
		.resend = has_news(&s, s.resend_at, s.controls_at),
	};
}

static void *help(void *arg)
{
	struct wait w;
	struct wait_policy none = {0};
	bool has_dozed = false;
	(void)arg;

	struct due due = {true, true};

	wait_begin(&w, none);
	for (unsigned rounds = 1; !stops(); rounds++) {
		struct round round = {false, none};
		if (rounds % CONTROLS_ROUNDS == 0)
			due = (struct due){true, true};
		if (due.controls)
			for_each(has_control, visit_control, NULL);
		if (has_dozed || due.resend)
			for_each(has_control, visit_resend, &due.resend);
		due = (struct due){false, false};
		has_dozed = false;
		int busy = for_each(is_busy, visit_attend, &round);
		if (round.moved) {
			wait_begin(&w, round.policy);
			continue;
		}
		if (busy == 0 || !wait_again(&w)) {
			due = doze();
			has_dozed = true;
		}
	}
	return NULL;
}

/* Signals are for the threads of the host program. */
static int start_thread(void)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&helper.thread, NULL, help, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return error;
}

static tutti_status start(void)
{
	helper.stops = false;
	helper.wake_fd = wake_open();
	if (helper.wake_fd < 0)
		return fail_errno("eventfd for the helper thread");
	int error = start_thread();
	if (error) {
		wake_close();
		errno = error;
		return fail_errno("the helper thread could not be started");
	}
	helper.runs = true;
	return TUTTI_OK;
}

tutti_status helper_attach(struct engine *e)
{
	tutti_status status = TUTTI_OK;
	pthread_mutex_lock(&helper.life);
	if (!e->is_helped) {
		if (!helper.runs)
			status = start();
		if (status == TUTTI_OK) {
			pthread_mutex_lock(&helper.lock);
			e->next_helped = helper.first;
			e->resend.is_due = true;
			helper.first = e;
			e->is_helped = true;
			pthread_mutex_unlock(&helper.lock);
		}
	}
	pthread_mutex_unlock(&helper.life);
	return status;
}

bool helper_clean(struct engine *e)
{
	pthread_mutex_lock(&helper.lock);
	struct engine *at = helper.first;
	while (at && at != e)
		at = at->next_helped;
	pthread_mutex_unlock(&helper.lock);
	if (!at)
		return false;
	atomic_store(&e->is_dirty, 1);
	helper_wake();
	return true;
}

static void unlink_engine(struct engine *e)
{
	struct engine **at = &helper.first;
	while (*at != e)
		at = &(*at)->next_helped;
	*at = e->next_helped;
	e->is_helped = false;
}

static bool is_unused(void)
{
	pthread_mutex_lock(&helper.lock);
	bool is_empty = helper.first == NULL;
	pthread_mutex_unlock(&helper.lock);
	return is_empty;
}

/* The thread has no engine left, so it runs no callback. */
static void stop(void)
{
	pthread_mutex_lock(&helper.lock);
	helper.stops = true;
	pthread_mutex_unlock(&helper.lock);
	helper_wake();
	pthread_join(helper.thread, NULL);
	wake_close();
	helper.runs = false;
}

/* Waits for callbacks that are still to come: a tutti_done_fn may not block. It may issue the first
 * asynchronous call of another communicator, which takes `life`. */
void helper_detach(struct engine *e)
{
	if (!e->is_helped)
		return;
	pthread_mutex_lock(&helper.lock);
	while (helper.at == e || atomic_load(&e->async_works) > 0)
		pthread_cond_wait(&helper.changed, &helper.lock);
	unlink_engine(e);
	pthread_mutex_unlock(&helper.lock);

	pthread_mutex_lock(&helper.life);
	if (helper.runs && is_unused()) /* only holders of life add engines */
		stop();
	pthread_mutex_unlock(&helper.life);
}
