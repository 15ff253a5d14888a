/* Calls that were captured run without a work, whenever their graph is launched. So from the first
 * capture on the helper thread looks at the device now and then: whether a kernel waits for one
 * that does not come. */
#include "collectives/engine/helper.h"

#include "collectives/control/control.h"

#include <stdio.h>

bool helper_has_replays(struct engine *e)
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

static void stays_alone(struct engine *e, uint64_t lasts)
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
static void replays_differ(struct engine *e, const char *how)
{
	char text[ERROR_BYTES];

	if (e->config.control)
		control_check(e->config.control, &(struct control_wait){NO_CALL, true});
	snprintf(text, sizeof text, "rank %d: a captured call: %s", e->config.rank, how);
	engine_set_failure(e, TUTTI_ERR_MISMATCH, FAILURE_NO_RANK, text);
}

/* A call that has a work is watched by that, and says by that how ranks differ. Other works, such
 * as a recv that is posted for good, know nothing of kernels. */
static bool has_device_call(const struct engine *e)
{
	for (const struct tutti_work *work = e->works.newest; work; work = work->next)
		if (work->spec.device)
			return true;
	return false;
}

static void replays_look(struct engine *e)
{
	uint64_t now = engine_now(e), ended;
	bool runs = e->config.device.runs(e->config.device.arg, &ended);
	char how[200];

	bool differs = e->config.device.differs(e->config.device.arg, how, sizeof how);

	if (differs && !has_device_call(e)) {
		replays_differ(e, how);
		return;
	}
	if (!runs || ended != e->watch.replays_ended || has_device_call(e)) {
		e->watch.replays_ended = ended;
		e->watch.replays_since_ns = now;
		return;
	}
	stays_alone(e, now - e->watch.replays_since_ns);
}

void helper_look_at_replays(struct engine *e, void *arg)
{
	(void)arg;
	if (!engine_trylock(e))
		return;
	if (!e->failure.stop &&
	    engine_now(e) - e->watch.replays_looked_ns >= MS_TO_NS(REPLAYS_MS)) {
		e->watch.replays_looked_ns = engine_now(e);
		replays_look(e);
	}
	engine_unlock(e);
}
