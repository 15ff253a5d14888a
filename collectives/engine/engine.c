/* The engine: one communicator's connections, works under way and their order. It moves whatever is
 * there to move and knows neither collectives nor transports. */
#include "collectives/engine/run.h"

#include "core/clock.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making and ending ------------------------------------------------------------------- */

static tutti_status copy_config(struct engine *e, const struct engine_config *config)
{
	size_t n = (size_t)config->size;
	e->config = *config;
	e->config.endpoints =
		calloc((size_t)config->endpoint_count + 1, sizeof *e->config.endpoints);
	e->routes = calloc(n, sizeof *e->routes);
	e->conns = calloc(n, sizeof *e->conns);
	for (int s = 0; s < 2; s++)
		e->streams[s] = calloc(n, sizeof *e->streams[s]);
	e->trace_dir = config->trace_dir ? strdup(config->trace_dir) : NULL;
	if (!e->config.endpoints || !e->routes || !e->conns || !e->streams[0] || !e->streams[1] ||
	    (config->trace_dir && !e->trace_dir))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the tables of %d ranks",
			    config->rank, config->size);
	for (int s = 0; s < 2; s++)
		for (size_t i = 0; i < n; i++)
			e->streams[s][i].tail = &e->streams[s][i].head;
	if (config->routes)
		memcpy(e->routes, config->routes, n * sizeof *e->routes);
	return TUTTI_OK;
}

static void free_tables(struct engine *e)
{
	free(e->config.endpoints);
	free(e->routes);
	free(e->conns);
	free(e->streams[0]);
	free(e->streams[1]);
	e->config.endpoints = NULL;
	e->routes = NULL;
	e->conns = NULL;
	e->streams[0] = e->streams[1] = NULL;
}

tutti_status engine_create(struct engine **engine, const struct engine_config *config)
{
	struct engine *e = calloc(1, sizeof *e);
	if (!e)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the engine", config->rank);
	pthread_mutex_init(&e->lock, NULL);
	pthread_mutex_init(&e->fail_lock, NULL);
	pthread_mutex_init(&e->list_lock, NULL);
	tutti_done_init(&e->done);
	e->dirty_tail = &e->dirty;
	e->window_tail = &e->window_head;
	e->called_tail = &e->called;
	e->refs = 1;
	tutti_status status = copy_config(e, config);
	if (status == TUTTI_OK)
		status = memory_host.open(&e->queues[TUTTI_MEMORY_HOST]);
	if (status != TUTTI_OK) {
		free_tables(e);
		engine_unref(e);
		return status;
	}
	/* From here on the endpoints and the window are ours. */
	for (int i = 0; i < config->endpoint_count; i++)
		e->config.endpoints[i] = config->endpoints[i];
	*engine = e;
	return TUTTI_OK;
}

static void on_failure(void *arg, const struct notice *notice)
{
	engine_take_notice(arg, notice);
}

tutti_status engine_open_control(struct engine *e)
{
	control_bind(e->config.control, on_failure, helper_wake, e);
	TRY(helper_attach(e));
	helper_wake();
	return TUTTI_OK;
}

void engine_unref(struct engine *e)
{
	if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
		return;
	while (e->free_works) {
		struct tutti_work *work = e->free_works;
		e->free_works = work->next;
		free(work->tables);
		free(work);
	}
	pthread_mutex_destroy(&e->lock);
	pthread_mutex_destroy(&e->fail_lock);
	pthread_mutex_destroy(&e->list_lock);
	free(e->trace_dir);
	free(e);
}

/* Partner: engine_fail sets stop and then tries the lock. Whichever of the two comes second sees
 * the other, so that the other ranks hear of a failure even if no further call is made here. */
void engine_unlock(struct engine *e)
{
	for (;;) {
		if (e->has_notice && !e->stop)
			engine_act_on_notice(e);
		if (e->stop)
			engine_clean_up(e);
		bool is_clean = e->is_clean;
		pthread_mutex_unlock(&e->lock);
		if (is_clean || (!e->stop && e->has_notice != NOTICE_NEW) ||
		    pthread_mutex_trylock(&e->lock) != 0)
			return;
	}
}

static void leave(struct engine *e)
{
	if (e->config.window)
		window_leave(e->config.window);
	if (e->config.control)
		control_leave(e->config.control);
}

/* A connection that breaks now may take the last bytes that were sent, and who waits for them has
 * nobody else to ask. Whoever does not take them in time was given that time. */
static bool must_linger(struct engine *e, uint64_t *until_ns)
{
	struct mending mending;

	if (*until_ns == 0)
		*until_ns = engine_now(e) + (uint64_t)e->config.linger_ms * 1000000u;
	if (!engine_in_doubt(e) || engine_now(e) >= *until_ns)
		return false;
	engine_mend(e, &mending);
	return true;
}

/* Pending works end first, by themselves or at their deadline. Sends that nobody has received yet
 * come last, after the others know that this rank makes no calls any more: they may wait in one. */
static void drain(struct engine *e)
{
	uint64_t until_ns = 0;
	bool has_left = false;
	struct wait w;
	wait_begin(&w, e->config.policy);
	for (;;) {
		pthread_mutex_lock(&e->lock);
		bool moved = engine_pass(e), may_leave = !e->works,
		     is_over = may_leave && p2p_is_drained(e) && !must_linger(e, &until_ns);
		engine_unlock(e);
		if (may_leave && !has_left)
			leave(e);
		has_left |= may_leave;
		if (is_over)
			return;
		if (moved)
			wait_begin(&w, e->config.policy);
		else if (!wait_again(&w))
			engine_sleep(e);
	}
}

/* A failed engine leaves no listener behind either: who connects later is refused instead of kept
 * waiting. */
void engine_disconnect(struct engine *e)
{
	p2p_disconnect(e);
	for (int i = 0; i < e->config.size; i++)
		if (e->conns[i]) {
			e->conns[i]->endpoint->transport->close(e->conns[i]);
			e->conns[i] = NULL;
		}
	for (int i = 0; i < e->config.endpoint_count; i++)
		e->config.endpoints[i]->transport->destroy(e->config.endpoints[i]);
	e->config.endpoint_count = 0;
}

/* Under the lock: a thread that waits for a work that has just ended may look in once more. */
static void take_apart(struct engine *e)
{
	engine_disconnect(e);
	window_destroy(e->config.window);
	e->config.window = NULL;
	for (int i = 0; i < TUTTI_MEMORY_KINDS; i++)
		if (e->queues[i]) {
			e->queues[i]->kind->close(e->queues[i]);
			e->queues[i] = NULL;
		}
	while (e->free_runs) {
		struct run *r = e->free_runs;
		e->free_runs = r->next_free;
		free(r);
	}
	p2p_clean_up(e);
	p2p_free(e);
	free_tables(e);
	e->config.trace = NULL;
	e->is_clean = true;
}

void engine_destroy(struct engine *e)
{
	if (!e)
		return;
	drain(e);
	p2p_leave(e);
	helper_detach(e);
	control_destroy(e->config.control);
	e->config.control = NULL;
	pthread_mutex_lock(&e->lock);
	take_apart(e);
	pthread_mutex_unlock(&e->lock);
	engine_unref(e);
}

tutti_status engine_wait_control(struct engine *e, uint64_t deadline_ns, bool (*is_over)(void *arg),
				 void *arg)
{
	if (!e->config.control)
		return TUTTI_OK;
	return control_wait(e->config.control, deadline_ns, is_over, arg);
}

uint64_t engine_now(const struct engine *e)
{
	return e->config.now_ns ? e->config.now_ns(e->config.now_arg) : clock_now_ns();
}

/* ---- connections --------------------------------------------------------------------------- */

struct tutti_conn *engine_connect(struct engine *e, int peer, int channel)
{
	const struct route *r = &e->routes[peer];
	struct tutti_conn *conn = NULL;
	tutti_status status = TUTTI_ERR_UNSUPPORTED;
	if (!r->endpoint)
		fail(status, "rank %d has no way to rank %d", e->config.rank, peer);
	else
		status = r->endpoint->transport->connect(r->endpoint, peer, channel, r->address,
							 r->address_bytes, &conn);
	if (status != TUTTI_OK)
		engine_fail(e, status, last_error());
	return conn;
}

struct tutti_conn *engine_conn(struct engine *e, int peer)
{
	if (!e->conns[peer])
		e->conns[peer] = engine_connect(e, peer, 0);
	return e->conns[peer];
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Window operations run in sequence: the head alone. */
static bool advance_window(struct engine *e)
{
	struct tutti_work *work = e->window_head;
	bool moved = false;

	if (!work || work->stage != WORK_RUNS)
		return false;
	if (!work->has_begun) {
		struct call_args args = work->spec.args;
		if (work->bounce.send) {
			args.send = work->bounce.send;
			args.recv = work->bounce.recv;
		}
		window_begin(e->config.window, &work->window, &args);
		work->has_begun = true;
	}
	tutti_status status = window_advance(e->config.window, &work->window, &moved);
	if (status == TUTTI_IN_PROGRESS)
		return moved;
	if (status != TUTTI_OK) {
		engine_window_failed(e, work, status);
		return true;
	}
	if (!(e->window_head = work->next_window)) {
		e->window_tail = &e->window_head;
		engine_disarm(e); /* the helper may sleep on: the next submit wakes it */
	}
	engine_work_ended(e, work);
	return true;
}

static void finish_ended(struct engine *e)
{
	while (e->ended) {
		struct tutti_work *work = e->ended;
		e->ended = work->next_ended;
		work_finish(e, work, TUTTI_OK);
	}
}

/* ---- the way in ------------------------------------------------------------------------------ */

void engine_settle(struct engine *e)
{
	run_pump(e);
	finish_ended(e);
}

bool engine_pass(struct engine *e)
{
	bool moved = false;

	for (int i = 0; i < e->config.endpoint_count && (e->works || e->loose); i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		moved |= ep->transport->progress(ep, &e->done) > 0;
	}
	for (int i = 1; i < TUTTI_MEMORY_KINDS; i++)
		if (e->queues[i])
			moved |= e->queues[i]->kind->progress(e->queues[i], &e->done) > 0;
	moved |= run_pump(e);
	while (advance_window(e) && !e->stop) {
		moved = true;
		run_pump(e);
	}
	finish_ended(e);
	if (e->works && (e->config.now_ns || ++e->passes % (moved ? 256 : 32) == 0))
		engine_watch(e);
	if (e->stop)
		engine_clean_up(e);
	return moved;
}

bool engine_progress(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	bool moved = engine_pass(e);
	engine_unlock(e);
	if (e->config.now_ns)
		while (helper_call_back(e))
			moved = true;
	return moved;
}

int engine_arm(struct engine *e, struct pollfd *fds, int max)
{
	int n = 0;
	for (int i = 0; i < e->config.endpoint_count && n < max; i++) {
		struct tutti_endpoint *ep = e->config.endpoints[i];
		if (!ep->transport->event_fd)
			continue;
		if (ep->transport->arm && ep->transport->arm(ep))
			return -1;
		fds[n++] = (struct pollfd){.fd = ep->transport->event_fd(ep), .events = POLLIN};
	}
	if (e->window_head && e->window_head->has_begun && n < max) {
		window_disarm(e->config.window); /* another thread's: one arms, one disarms */
		if (window_arm(e->config.window, &e->window_head->window))
			return -1;
		fds[n++] =
			(struct pollfd){.fd = window_event_fd(e->config.window), .events = POLLIN};
	}
	return n;
}

void engine_disarm(struct engine *e)
{
	if (e->config.window)
		window_disarm(e->config.window);
}

void engine_sleep(struct engine *e)
{
	struct pollfd fds[8];
	int n = 0;
	if (pthread_mutex_trylock(&e->lock) == 0) { /* else another thread is at it */
		n = e->stop ? -1 : engine_arm(e, fds, 8);
		engine_unlock(e);
	}
	if (n >= 0)
		poll(fds, (nfds_t)n, 1);
	if (pthread_mutex_trylock(&e->lock) == 0) {
		engine_disarm(e);
		e->passes |= 31; /* after a sleep the clock is cheap: see engine_pass */
		engine_unlock(e);
	}
}
