/* Leaving. In shutdown each rank reports to the lowest living one when no call of its own is in
 * flight and none runs here, with how many calls it has begun so far. That rank answers when all
 * have reported, with the sum. When two answers in a row are equal no rank has begun a call in
 * between, so none is in flight, and all go. */
#include "rpc/rpc_internal.h"

#include "core/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAVE   "tutti.leave"
#define MISSING "tutti.missing"

enum {
	MISSING_MS = 1000,  /* to ask who is missing, after a deadline */
	MORE_BYTES = 32,    /* of "; and 12 more" */
	CALLED_BYTES = 160, /* of a list of calls */
};

static int leave_first_alive(const tutti_rpc *rpc)
{
	int r = 0;

	while (!rpc->peers[r].is_alive) /* this rank is */
		r++;
	return r;
}

/* The answer to a report. */
struct census {
	uint64_t sum;    /* of the calls that the living have begun                         */
	uint64_t living; /* with another rank dead an equal sum would be chance             */
};

/* Ends the replies that wait, if no living rank is missing. Without the lock: they take it. */
static void leave_answer_if_all(tutti_rpc *rpc)
{
	struct rpc_leaving *l = &rpc->leaving;
	struct census census = {0};
	bool is_all = true;

	rpc_lock(rpc);
	for (int r = 0; r < rpc->size; r++) {
		is_all = is_all && (l->held[r] || !rpc->peers[r].is_alive);
		census.sum += rpc->peers[r].is_alive ? l->issued[r] : 0;
		census.living += rpc->peers[r].is_alive;
	}
	for (int r = 0; is_all && r < rpc->size; r++) {
		struct tutti_rpc_reply *reply = l->held[r];
		l->held[r] = NULL;
		if (!reply)
			continue;
		tutti_rpc_reply_copy(reply, &census, sizeof census);
		rpc_reply_send(reply);
	}
	rpc_unlock(rpc);
}

/* SHORT. A rank whose shutdown has ended with TIMEOUT may report again, while the first report is
 * held. */
static tutti_status leave_on_leave(void *arg, const tutti_rpc_request *request,
				   tutti_rpc_reply *reply)
{
	tutti_rpc *rpc = arg;
	struct rpc_leaving *l = &rpc->leaving;

	if (request->bytes != sizeof *l->issued)
		return fail_invalid("a report of %zu bytes", request->bytes);
	rpc_lock(rpc);
	struct tutti_rpc_reply *before = l->held[request->rank];
	l->held[request->rank] = reply;
	memcpy(&l->issued[request->rank], request->data, sizeof *l->issued);
	if (before)
		rpc_reply_fail(before, TUTTI_ERR_ABORTED, "the rank has reported again");
	rpc_unlock(rpc);
	leave_answer_if_all(rpc);
	return TUTTI_IN_PROGRESS;
}

static tutti_status leave_on_missing(void *arg, const tutti_rpc_request *request,
				     tutti_rpc_reply *reply)
{
	tutti_rpc *rpc = arg;
	char text[RPC_INLINE_BYTES];
	size_t at = 0;

	(void)request;
	rpc_lock(rpc);
	for (int r = 0; r < rpc->size; r++)
		if (rpc->peers[r].is_alive && !rpc->leaving.held[r] && at + 16 < sizeof text)
			at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", at ? ", " : "",
					       r);
	rpc_unlock(rpc);
	return tutti_rpc_reply_copy(reply, text, at);
}

void rpc_leaving_rank_died(tutti_rpc *rpc, int rank)
{
	rpc->leaving.held[rank] = NULL; /* its entry is forgotten */
}

void rpc_leaving_look(tutti_rpc *rpc)
{
	leave_answer_if_all(rpc);
}

tutti_status rpc_leaving_init(tutti_rpc *rpc)
{
	const tutti_rpc_function own[] = {
		{.name = LEAVE, .fn = leave_on_leave, .arg = rpc, .flags = TUTTI_RPC_SHORT},
		{.name = MISSING, .fn = leave_on_missing, .arg = rpc, .flags = TUTTI_RPC_SHORT}};

	rpc->leaving.held = calloc((size_t)rpc->size, sizeof(struct tutti_rpc_reply *));
	rpc->leaving.issued = calloc((size_t)rpc->size, sizeof(uint64_t));
	if (!rpc->leaving.held || !rpc->leaving.issued)
		return fail_no_memory("an rpc of %d ranks", rpc->size);
	TRY(rpc_functions_add(rpc, &own[0], true));
	return rpc_functions_add(rpc, &own[1], true);
}

void rpc_leaving_free(tutti_rpc *rpc)
{
	free(rpc->leaving.held);
	free(rpc->leaving.issued);
}

/* ---- this rank ---- */

static const char *leave_place_of(const struct tutti_rpc_reply *entry)
{
	if (entry->state == ENTRY_QUEUES)
		return "waits for a thread";
	return entry->is_held ? "is held: tutti_rpc_reply_end was not called" : "runs";
}

/* A list of calls as text. */
struct call_list {
	char *text;
	size_t room, at;
	int more; /* for which there was no room */
};

static void leave_list_add(struct call_list *list, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void leave_list_add(struct call_list *list, const char *format, ...)
{
	const char *separator = list->at ? "; " : "";
	char one[160];
	va_list args;

	va_start(args, format);
	vsnprintf(one, sizeof one, format, args);
	va_end(args);
	if (list->at + strlen(separator) + strlen(one) + MORE_BYTES > list->room) {
		list->more++;
		return;
	}
	list->at += (size_t)snprintf(list->text + list->at, list->room - list->at, "%s%s",
				     separator, one);
}

static void leave_list_end(struct call_list *list)
{
	if (list->more)
		snprintf(list->text + list->at, list->room - list->at, "; and %d more", list->more);
}

void rpc_list_served(const tutti_rpc *rpc, char *text, size_t room)
{
	struct call_list list = {.text = text, .room = room};

	text[0] = 0;
	for (int i = 0; i < rpc->size * RPC_CALLS_MAX; i++) {
		const struct tutti_rpc_reply *entry =
			rpc_entry_at(&rpc->peers[i / RPC_CALLS_MAX], i % RPC_CALLS_MAX);
		if (!entry || (entry->state != ENTRY_QUEUES && entry->state != ENTRY_RUNS) ||
		    (entry->function->is_own && entry->function->is_short))
			continue;
		leave_list_add(&list, "'%s', called by rank %d, %s", entry->function->name,
			       entry->rank, leave_place_of(entry));
	}
	leave_list_end(&list);
}

static const char *leave_kind_of(const struct rpc_slot *slot)
{
	if (slot->state == SLOT_IS_ONE_WAY)
		return ", one way";
	return slot->state == SLOT_IS_LEFT ? ", over here but not answered there" : "";
}

/* Lists the calls of this rank that have not been answered: "'push' of rank 2, one way". */
static void leave_list_called(const tutti_rpc *rpc, char *text, size_t room)
{
	struct call_list list = {.text = text, .room = room};

	text[0] = 0;
	for (int r = 0; r < rpc->size; r++) {
		const struct rpc_slot *slots = rpc->peers[r].slots;
		for (int i = 0; slots && i < rpc->config.calls; i++) {
			const struct rpc_message *m = &slots[i].request;
			if (slots[i].state == SLOT_IS_FREE || slots[i].is_own)
				continue;
			leave_list_add(&list, "'%.*s' of rank %d%s", (int)m->name_bytes,
				       rpc_message_name(m), r, leave_kind_of(&slots[i]));
		}
	}
	leave_list_end(&list);
}

static tutti_status leave_not_quiet(const tutti_rpc *rpc)
{
	char called[CALLED_BYTES], served[RPC_ERROR_BYTES / 2];

	leave_list_called(rpc, called, sizeof called);
	rpc_list_served(rpc, served, sizeof served);
	return fail(TUTTI_ERR_TIMEOUT,
		    "tutti_rpc_shutdown: rank %d itself has %d call%s in flight%s%s%s, and serves "
		    "%d%s%s%s",
		    rpc->rank, rpc->slots_used, rpc->slots_used == 1 ? "" : "s",
		    called[0] ? " (" : "", called, called[0] ? ")" : "", rpc->running + rpc->queued,
		    served[0] ? ": " : "", served,
		    rpc->calling ? "; a done, release or died function has not returned" : "");
}

/* Until nothing of this rank's is in flight, and nothing runs here. */
static tutti_status leave_become_quiet(tutti_rpc *rpc, uint64_t deadline_ns)
{
	while (rpc->slots_used || rpc->queued || rpc->running || rpc->calling) {
		if (rpc->state == RPC_ENDED)
			return rpc_end_status(rpc);
		uint64_t now = rpc_now_ns();
		if (deadline_ns && now >= deadline_ns)
			return leave_not_quiet(rpc);
		for (int r = 0; r < rpc->size; r++)
			rpc_slots_look(rpc, r);
		/* Slots for which no thread waits are looked at again and again. */
		if (rpc->slots_used || rpc->queued || rpc->running || rpc->calling)
			rpc_wait_changed(rpc, now + MS_TO_NS(1));
	}
	return TUTTI_OK;
}

static tutti_status leave_missing(tutti_rpc *rpc, int timeout_ms)
{
	char ranks[RPC_INLINE_BYTES + 1];
	tutti_rpc_answer answer = {.data = ranks, .bytes = sizeof ranks - 1};
	const tutti_rpc_options options = {.timeout_ms = MISSING_MS};
	int first = leave_first_alive(rpc);

	if (rpc_call_own(rpc, first, MISSING, NULL, 0, &answer, &options) != TUTTI_OK)
		answer.bytes = 0;
	ranks[answer.bytes] = 0;
	if (!answer.bytes)
		return fail(TUTTI_ERR_TIMEOUT,
			    "tutti_rpc_shutdown: not all ranks have called it within %d ms, "
			    "and rank %d does not say which",
			    timeout_ms, first);
	return fail(TUTTI_ERR_TIMEOUT,
		    "tutti_rpc_shutdown: within %d ms it was not called, or calls were not "
		    "over, on rank %s",
		    timeout_ms, ranks);
}

static int leave_ms_left(uint64_t deadline_ns)
{
	uint64_t now = rpc_now_ns();

	if (!deadline_ns)
		return -1;
	return now >= deadline_ns ? 1 : (int)((deadline_ns - now) / 1000000u) + 1;
}

/* One report and its answer. PEER: the rank that was told has died. */
static tutti_status leave_report(tutti_rpc *rpc, int to, uint64_t deadline_ns,
				 struct census *census)
{
	uint64_t issued = rpc->issued;
	const tutti_rpc_piece piece = {&issued, sizeof issued};
	const tutti_rpc_options options = {.timeout_ms = leave_ms_left(deadline_ns)};
	tutti_rpc_answer answer = {.data = census, .bytes = sizeof *census};

	return rpc_call_own(rpc, to, LEAVE, &piece, 1, &answer, &options);
}

/* lock, which is free during calls. */
static tutti_status rpc_leave(tutti_rpc *rpc, int timeout_ms)
{
	uint64_t deadline = timeout_ms > 0 ? deadline_after_ms(timeout_ms) : 0;
	struct census before = {0}, now = {0};
	int told = -1;

	for (;;) {
		TRY(leave_become_quiet(rpc, deadline));
		int to = leave_first_alive(rpc);
		tutti_status status = leave_report(rpc, to, deadline, &now);
		if (status == TUTTI_OK && told == to && now.sum == before.sum &&
		    now.living == before.living)
			return TUTTI_OK;
		told = status == TUTTI_OK ? to : -1;
		rpc->leaving.all_leave |= status == TUTTI_OK;
		before = now;
		if (status == TUTTI_ERR_TIMEOUT)
			return leave_missing(rpc, timeout_ms);
		if (status != TUTTI_OK && (status != TUTTI_ERR_PEER || rpc->peers[to].is_alive))
			return status;
	}
}

/* Another thread is in it. */
static tutti_status leave_await_other(tutti_rpc *rpc, int timeout_ms)
{
	uint64_t deadline = timeout_ms > 0 ? deadline_after_ms(timeout_ms) : 0;

	while (rpc->leaving.has_thread)
		if (!rpc_wait_changed(rpc, deadline) && rpc->leaving.has_thread)
			return fail(TUTTI_ERR_TIMEOUT,
				    "tutti_rpc_shutdown: another thread of rank %d is in it, "
				    "and not all ranks have called it within %d ms",
				    rpc->rank, timeout_ms);
	return rpc->state == RPC_ENDED ? rpc_end_status(rpc) : TUTTI_OK;
}

tutti_status tutti_rpc_shutdown(tutti_rpc *rpc, int timeout_ms)
{
	TRY(rpc_may_wait("tutti_rpc_shutdown"));
	if (!rpc)
		return fail_invalid("tutti_rpc_shutdown: rpc is NULL");
	if (rpc_is_calling(rpc))
		return fail_invalid("tutti_rpc_shutdown in a function of this rpc would wait for "
				    "that function: call it from another thread");
	if (timeout_ms == 0)
		timeout_ms = rpc->config.timeout_ms;
	rpc_lock(rpc);
	tutti_status status = rpc->state == RPC_ENDED ? rpc_end_status(rpc) : TUTTI_OK;
	if (status == TUTTI_OK)
		status = leave_await_other(rpc, timeout_ms);
	if (status == TUTTI_OK && !rpc->is_shut) {
		rpc->leaving.is_leaving = rpc->leaving.has_thread = true;
		status = rpc_leave(rpc, timeout_ms);
		rpc->is_shut = status == TUTTI_OK;
		rpc->leaving.all_leave &= rpc->is_shut;
		rpc->leaving.has_thread = false;
		pthread_cond_broadcast(&rpc->changed);
	}
	rpc_unlock(rpc);
	return status;
}

void tutti_rpc_abort(tutti_rpc *rpc)
{
	if (!rpc)
		return;
	rpc_lock(rpc);
	rpc->is_aborted = true;
	rpc_end(rpc, TUTTI_ERR_ABORTED, "tutti_rpc_abort was called on this rank");
	rpc_unlock(rpc);
}
