/* The helper's loop: it makes progress for engines with asynchronous works and calls their
 * callbacks, serves the control rings, and makes progress for the connections of ranks that are in
 * no call. It sleeps in poll while nothing is in flight. */
#include "collectives/engine/helper.h"

#include "collectives/control/control.h"
#include "core/callback.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define HELPER_FDS      64
#define CONTROL_FDS     512
#define RESENDS_FDS     256
#define RESEND_AGAIN_MS 5   /* after another thread had the lock                            */
#define CONTROLS_ROUNDS 256 /* a busy helper serves the rings once in so many rounds        */
#define NAP_MS          1
#define NAPS            16 /* after the last asynchronous call, before it sleeps for good   */

/* Partner: doze looks at it after wake_may_sleep(true); helper_wake comes after it was set. */
static atomic_bool stops;

void helper_loop_stop(bool is_over)
{
	atomic_store(&stops, is_over);
}

/* Returns whether anything moved. */
static bool helper_loop_attend(struct engine *e)
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

static bool has_control(struct engine *e)
{
	return e->config.control && control_needs_helper(e->config.control);
}

struct round {
	bool moved;
	struct wait_policy policy;
};

static void visit_attend(struct engine *e, void *arg)
{
	struct round *round = arg;
	round->moved |= helper_loop_attend(e);
	round->policy = e->config.helper_policy;
}

struct sleep {
	struct pollfd fds[HELPER_FDS + CONTROL_FDS + RESENDS_FDS];
	int n, resend_at, controls_at; /* those for resending and the rings' begin here        */
	int control_ms, resend_ms;     /* when they are due in any case, or -1               */
	bool has_work, is_blind;       /* blind: some engine's descriptors could not be had     */
	bool controls_due;
};

static void visit_arm(struct engine *e, void *arg)
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
static void visit_resend(struct engine *e, void *arg)
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

static void visit_arm_resend(struct engine *e, void *arg)
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
	if (engine_trylock(e)) {
		engine_disarm(e);
		e->watch.passes |= 31; /* after a sleep the clock is cheap: see engine_pass */
		engine_unlock(e);
	}
}

/* Between two naps no work has ended, and no thread waits for those in flight: from now on the
 * helper does not expect one. */
static void visit_nap(struct engine *e, void *arg)
{
	uint64_t ended = atomic_load_explicit(&e->help.ended, memory_order_relaxed);

	(void)arg;
	if (ended == e->help.ended_before && atomic_load(&e->help.waiters) == 0)
		atomic_store(&e->help.prompt, 0);
	e->help.ended_before = ended;
}

/* For how long it may sleep with nothing to do; -1 without a limit. The state is set before the
 * look at what is in flight. */
static int nap_ms(int *naps)
{
	if (wake_was_used())
		*naps = NAPS;
	bool is_used = wake_set_state(*naps > 0 ? HELPER_NAPS : HELPER_SLEEPS);
	if (helper_for_each(helper_has_works, visit_nap, NULL) > 0 || is_used)
		*naps = NAPS;
	if (*naps == 0)
		return -1;
	--*naps;
	return NAP_MS;
}

static int helper_loop_sooner(int a_ms, int b_ms)
{
	return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static void visit_nothing(struct engine *e, void *arg)
{
	(void)e;
	(void)arg;
}

/* When to look at captured calls again, or -1. */
static int replays_ms(void)
{
	return helper_for_each(helper_has_replays, visit_nothing, NULL) > 0 ? REPLAYS_MS : -1;
}

struct due {
	bool controls, resend; /* resend: that of all engines, not only where it was put off */
};

static bool helper_loop_has_news(const struct sleep *s, int from, int to)
{
	while (from < to && s->fds[from].revents == 0)
		from++;
	return from < to;
}

/* Sleeps until there is an event; without a limit when nothing is in flight. Returns what is due.
 */
static struct due helper_loop_doze(int wake_fd, int *naps)
{
	struct sleep s = {.n = 1, .control_ms = -1, .resend_ms = -1};
	uint64_t count;
	int ready = 1;

	s.fds[0] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
	int nap = nap_ms(naps); /* before the look at what is in flight */
	int busy = helper_for_each(helper_is_needed, visit_arm, &s);
	s.resend_at = s.n;
	helper_for_each(has_control, visit_arm_resend, &s);
	s.controls_at = s.n;
	helper_for_each(has_control, visit_arm_control, &s);
	if (!s.has_work && !s.controls_due && !atomic_load(&stops))
		ready = poll(
			s.fds, (nfds_t)s.n,
			helper_loop_sooner(
				busy == 0    ? nap
				: s.is_blind ? 1
					     : 10,
				helper_loop_sooner(replays_ms(),
						   helper_loop_sooner(s.control_ms, s.resend_ms))));
	wake_set_state(HELPER_AWAKE);
	if (s.fds[0].revents && read(wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
		return (struct due){true, true};
	if (busy)
		helper_for_each(helper_is_needed, visit_disarm, NULL);
	return (struct due){
		.controls = s.controls_due || (ready == 0 && s.control_ms >= 0) ||
			    helper_loop_has_news(&s, s.controls_at, s.n),
		.resend = helper_loop_has_news(&s, s.resend_at, s.controls_at),
	};
}

/* The helper's callback_now; NULL: it does not run. */
static _Atomic(callback_place *) callback;

const char *helper_callback(void)
{
	callback_place *place = atomic_load(&callback);

	return place ? atomic_load_explicit(place, memory_order_relaxed) : NULL;
}

void *helper_loop(void *arg)
{
	struct wait w;
	struct wait_policy none = {0};
	bool has_dozed = false;
	int naps = 0;
	struct due due = {true, true};

	atomic_store(&callback, &callback_now);
	wait_begin(&w, none);
	for (unsigned rounds = 1; !atomic_load(&stops); rounds++) {
		struct round round = {false, none};
		if (rounds % CONTROLS_ROUNDS == 0)
			due = (struct due){true, true};
		if (due.controls)
			helper_for_each(has_control, visit_control, NULL);
		if (has_dozed || due.resend)
			helper_for_each(has_control, visit_resend, &due.resend);
		if (has_dozed)
			helper_for_each(helper_has_replays, helper_look_at_replays, NULL);
		due = (struct due){false, false};
		has_dozed = false;
		int busy = helper_for_each(helper_is_needed, visit_attend, &round);
		if (round.moved) {
			wait_begin(&w, round.policy);
			continue;
		}
		if (busy == 0 || !wait_again(&w)) {
			due = helper_loop_doze(*(const int *)arg, &naps);
			has_dozed = true;
		}
	}
	atomic_store(&callback, NULL);
	return NULL;
}
