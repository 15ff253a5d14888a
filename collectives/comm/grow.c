/* tutti_comm_grow: new ranks join the old ones. The old ranks agree (consensus.h) on
 *
 *     presence     which ranks are there, and how many there are to be
 *     readiness    can all ranks go to the meeting, and on which machine is it?
 *
 * then they and the new ones come to a meeting as tutti_init's ranks do (arrive.c), served by the
 * lowest of them that can, and at last they agree on how that ended:
 *
 *     reports      have all ranks arrived?
 *
 * and tell the new ones, so that all of them have the new communicator, or none. */
#include "collectives/comm/join.h"
#include "collectives/engine/engine.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/outcome.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME      "tutti_comm_grow"
#define MARGIN_MS 30000 /* the most that a meeting's last steps may take longer than its time */
#define SIZE_MOST 65536

enum grow_phase { ASK_PRESENCE, ASK_READINESS, ASK_REPORTS };

struct grow_report {
	struct outcome outcome;
	int32_t is_here, left_behind;
};

struct grow {
	struct tutti_comm *old, *grown;
	int size;
	tutti_config config; /* with what is inherited                              */
	struct env env;
	struct job job;
	int server;          /* of the meeting: an old rank                         */
	uint8_t *marks;      /* by old rank                                         */
	int *numbers, count; /* by old rank: in the new communicator; how many      */
	struct arrival arrival;
	uint64_t arrived_ns; /* by then each rank has arrived, or has failed to        */
	void *records;       /* of an answer, by old rank                           */
};

static bool grow_is_member(const struct grow *g, int old_rank)
{
	return g->marks[old_rank] == MARK_MEMBER;
}

/* A rank that has failed to arrive asks the others, and some of them may still be waiting. All
 * began to wait at the same time, so the time left is the same for all. */
static uint64_t grow_left_ns(uint64_t until_ns)
{
	uint64_t now_ns = clock_now_ns();
	return until_ns > now_ns ? until_ns - now_ns : 0;
}

static tutti_status grow_ask_phase(struct grow *g, enum grow_phase phase, const void *record,
				   size_t record_bytes)
{
	struct consensus_question question = {
		.name = NAME,
		.record = record,
		.record_bytes = record_bytes,
		.late_ns = phase == ASK_REPORTS ? grow_left_ns(g->arrived_ns) : 0};
	int before = g->count;

	TRY(comm_ask(g->old, &question, 4 * (uint32_t)phase + CALL_GROW, g->marks, g->records));
	g->count = 0;
	for (int r = 0; r < g->old->size; r++)
		g->count += grow_is_member(g, r);
	if (phase == ASK_PRESENCE || g->count == before)
		return TUTTI_OK;
	return fail(TUTTI_ERR_PEER,
		    NAME ": only %d of the %d ranks that began it are left: shrink or grow again",
		    g->count, before);
}

/* Sends this rank's report and reads all ranks': one error becomes the error of all. */
static tutti_status grow_compare(struct grow *g, enum grow_phase phase, struct grow_report *own,
				 tutti_status status)
{
	const struct grow_report *all = g->records;

	outcome_set(&own->outcome, status);
	TRY(grow_ask_phase(g, phase, own, sizeof *own));
	int cause =
		outcome_cause(&all[0].outcome, sizeof *all, g->old->size, g->marks, MARK_MEMBER);
	if (cause < 0)
		return TUTTI_OK;
	return fail(status_said(all[cause].outcome.status), "%.*s", ERROR_BYTES - 1,
		    all[cause].outcome.message);
}

static tutti_status grow_check_sizes(const struct grow *g)
{
	const int32_t *sizes = g->records;

	for (int r = 0; r < g->old->size; r++)
		if (grow_is_member(g, r) && sizes[r] != g->size)
			return fail(TUTTI_ERR_MISMATCH,
				    NAME ": rank %d asks for %d ranks, rank %d for %d: all ranks "
					 "need the same size",
				    g->old->rank, g->size, r, sizes[r]);
	if (g->count > g->size)
		return fail(TUTTI_ERR_INVALID,
			    NAME
			    ": %d ranks are there already, and size is %d: size counts them too",
			    g->count, g->size);
	return TUTTI_OK;
}

/* As in the first communicator of the line, where that fits. */
static void grow_choose_numbers(struct grow *g)
{
	const int *voter = consensus_quorum(g->old->recovery.consensus)->voter;
	bool fits = true;

	for (int r = 0; r < g->old->size; r++)
		fits &= !grow_is_member(g, r) || voter[r] < g->size;
	for (int r = 0, next = 0; r < g->old->size; r++)
		if (grow_is_member(g, r))
			g->numbers[r] = fits ? voter[r] : next++;
}

/* Voters that are neither here nor known to be dead. */
static int grow_left_behind(const struct grow *g)
{
	const struct quorum *l = consensus_quorum(g->old->recovery.consensus);
	int here = 0;

	for (int r = 0; r < g->old->size; r++)
		here += grow_is_member(g, r) && !l->gone[l->voter[r]];
	return quorum_alive(l) - here;
}

/* A proof of one rank counts for all. */
static tutti_status grow_check_left_behind(const struct grow *g)
{
	const struct grow_report *all = g->records;
	int least = g->old->size;

	for (int r = 0; r < g->old->size; r++)
		if (grow_is_member(g, r) && all[r].left_behind < least)
			least = all[r].left_behind;
	if (least <= 0)
		return TUTTI_OK;
	return fail(TUTTI_ERR_TIMEOUT,
		    NAME ": %d rank%s left behind and may come back, so no other rank can take the "
			 "place of %s: end such a process before the shrink",
		    least, least > 1 ? "s were" : " was", least > 1 ? "these" : "this one");
}

static tutti_status grow_find_server(struct grow *g)
{
	const struct grow_report *all = g->records;

	for (int r = 0; r < g->old->size; r++) {
		if (!grow_is_member(g, r) || !all[r].is_here)
			continue;
		g->server = r;
		g->job.server = g->numbers[r];
		return TUTTI_OK;
	}
	return fail(TUTTI_ERR_INVALID,
		    NAME
		    ": new ranks look for the others at %.200s, and none of these is on that "
		    "machine: set config.rendezvous on all, to file:///shared/path or a URL of "
		    "tutti_rendezvous_open",
		    g->job.host);
}

static tutti_status grow_get_ready(struct grow *g)
{
	struct grow_report own = {0};
	int32_t size = g->size;

	TRY(grow_ask_phase(g, ASK_PRESENCE, &size, sizeof size));
	TRY(grow_check_sizes(g));
	grow_choose_numbers(g);
	int number = g->numbers[g->old->rank];
	tutti_status status = job_find_again(&g->job, number, g->size, g->old->recovery.origin,
					     &g->config, &g->env);
	own.is_here = status == TUTTI_OK && job_is_here(&g->job);
	own.left_behind = grow_left_behind(g);
	TRY(grow_compare(g, ASK_READINESS, &own, status));
	TRY(grow_check_left_behind(g));
	return grow_find_server(g);
}

static tutti_status grow_arrive(struct grow *g)
{
	int number = g->numbers[g->old->rank], timeout_ms = g->config.timeout_ms;
	int margin_ms = timeout_ms < MARGIN_MS ? timeout_ms : MARGIN_MS;

	g->arrived_ns = deadline_after_ms(timeout_ms) + (uint64_t)margin_ms * 1000000u;
	TRY(comm_new(&g->grown, &g->config, &g->env, number, g->size));
	if (!g->config.device) {
		g->grown->settings.device = g->old->settings.device;
		g->grown->settings.device_memory = g->old->settings.device_memory;
	}
	g->old->recovery.server = g->job.is_served || g->server == g->old->rank ? 0 : g->server + 1;
	tutti_status status = comm_arrive(g->grown, &g->job, g->old->rank, &g->arrival);
	g->old->recovery.server = 0;
	return status;
}

/* Old ranks that have the new communicator learn of it by their next call. */
static void grow_drop(struct grow *g)
{
	if (g->grown && g->grown->engine)
		engine_fail(g->grown->engine, TUTTI_ERR_ABORTED,
			    "the ranks that were there could not all join: " NAME " was given up");
	comm_free(g->grown);
	g->grown = NULL;
}

static tutti_status grow_run(struct grow *g)
{
	struct grow_report own = {0};

	g->old->recovery.calls++;
	rendezvous_tell_launcher(LAUNCHER_GROWS);
	TRY(grow_get_ready(g));
	log_info(NAME ": %d ranks wait for %d new ones", g->count, g->size - g->count);
	tutti_status status = grow_compare(g, ASK_REPORTS, &own, grow_arrive(g));
	status = comm_conclude(g->grown, &g->arrival, status);
	if (status != TUTTI_OK)
		grow_drop(g);
	else
		rendezvous_tell_launcher(LAUNCHER_GROWS); /* of ranks that it started meanwhile */
	return status;
}

static tutti_status comm_grow_run(struct grow *g, tutti_comm **grown)
{
	size_t n = (size_t)g->old->size;
	tutti_status status;

	g->marks = calloc(n, 1);
	g->numbers = calloc(n, sizeof *g->numbers);
	g->records = calloc(n, sizeof(struct grow_report));
	if (g->marks && g->numbers && g->records)
		status = grow_run(g);
	else
		status = fail(TUTTI_ERR_MEMORY, NAME ": no memory for %zu ranks", n);
	if (status == TUTTI_OK)
		*grown = g->grown;
	free(g->marks);
	free(g->numbers);
	free(g->records);
	job_forget(&g->job);
	return status;
}

static void grow_inherit(struct grow *g, const tutti_config *config)
{
	const tutti_config old = comm_config(g->old);

	if (config)
		g->config = *config;
	if (!g->config.deterministic)
		g->config.deterministic = old.deterministic;
	if (!g->config.timeout_ms)
		g->config.timeout_ms = old.timeout_ms;
	if (!g->config.name)
		g->config.name = old.name;
	if (!g->config.transports)
		g->config.transports = old.transports;
}

tutti_status comm_grow(struct tutti_comm *comm, int size, const tutti_config *config,
		       struct tutti_comm **grown)
{
	struct grow g = {.old = comm, .size = size};

	if (size < 1 || size > SIZE_MOST)
		return fail(TUTTI_ERR_INVALID, NAME ": size is %d: it is from 1 to %d", size,
			    SIZE_MOST);
	TRY(env_load(&g.env));
	grow_inherit(&g, config);
	TRY(comm_check_config(&g.config));
	TRY(comm_enter_recovery(comm, NAME, TRACE_GROW));
	tutti_status status = comm_grow_run(&g, grown);
	comm_leave_recovery(comm, status);
	if (status == TUTTI_OK)
		last_error_clear(); /* what was tried again is no error */
	return status;
}
