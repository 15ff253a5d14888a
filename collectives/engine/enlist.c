/* A call of the window that alone.c has submitted takes its place among the works, as that of any
 * other. Every holder of the engine's lock needs this, so nothing here takes the lock. */
#include "collectives/engine/engine_internal.h"

#include "core/log.h"

#include <stdlib.h>

/* All but timeout_ms and the trace. The caller's spec would be filled and then copied, which takes
 * longer than the rest. */
static void enlist_fill(struct task_spec *spec, const struct engine *e,
			const struct call_args *args)
{
	spec->kind = &window_tasks;
	spec->memory = &memory_host;
	spec->stream_kind = NULL;
	spec->args = *args;
	spec->name = collective_name(args->collective);
	spec->algorithm = "window";
	spec->send_bytes = spec->recv_bytes = 0;
	if (!trace_is_short(args)) {
		spec->send_bytes = layout_extent(args, e->config.rank, e->config.size, SEND_SIDE);
		spec->recv_bytes = layout_extent(args, e->config.rank, e->config.size, RECV_SIDE);
	}
	spec->copies_send = false;
	spec->p2p.side = P2P_NONE;
	spec->done = NULL;
}

void work_enlist(struct engine *e, struct tutti_work *work, const struct call_args *args)
{
	enlist_fill(&work->spec, e, args);
	work_begin_life(e, work, true);
	window_tasks.begin(e, work);
}

void engine_lock_is_ours(const struct engine *e)
{
	log_line("rank %d: this thread already holds the communicator's lock: a callback has "
		 "called Tutti, or was left by longjmp; a reduction function must not call Tutti "
		 "with its communicator. Aborting.",
		 e->config.rank);
	abort();
}

bool engine_is_in_callback(const struct engine *e)
{
	return engine_holds_lock(e);
}

void engine_enlist(struct engine *e)
{
	struct tutti_work *work = e->works.alone;

	work_enlist(e, work, &work_window_run(work)->args);
	/* Partner: helper_has_works, which looks at it before async_works. */
	e->works.alone = NULL;
}
