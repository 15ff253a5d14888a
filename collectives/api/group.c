/* tutti_group_begin and _end: what is collected in between, and how it becomes one work. */
#include "collectives/api/group.h"

#include "collectives/api/collectives.h"
#include "collectives/device/device.h"
#include "collectives/engine/task.h"
#include "core/callback.h"
#include "core/forks.h"
#include "core/memory/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A collected call. Exactly one of the two is meant: a message when its side says so. */
struct collected {
	struct tutti_comm *comm;
	struct call_args args;
	struct send_recv message;
	struct task_spec *spec; /* a message's that is captured: of the batch                    */
	int timeout_ms;
	const char *label;
	size_t *tables;   /* of a v-variant: copies of its counts and offsets                    */
	bool is_captured; /* a message, into a graph: issued with others, after the calls       */
};

#define FEW 4 /* calls, for which a group allocates nothing */

/* The calls that a thread has collected. */
struct call_batch {
	int depth;
	bool is_used;
	struct collected *members; /* few, or allocated */
	size_t count, room;
	struct task_spec *specs; /* of messages that are captured, by member; or NULL         */
	struct kept_error error; /* the first error of a member                            */
	struct collected few[FEW];
};

static const tutti_call no_call; /* of a group that ends with a NULL call: it waits */
static _Thread_local struct call_batch *open_batch;
/* The batch of this thread. A done function may begin a group while one ends: that inner group's
 * batch is allocated. */
static _Thread_local struct call_batch own_batch;
atomic_bool group_was_begun;

static struct call_batch *group_new_batch(void)
{
	struct call_batch *b = own_batch.is_used ? malloc(sizeof *b) : &own_batch;

	if (!b)
		return NULL;
	b->depth = 0;
	b->is_used = true;
	b->members = b->few;
	b->count = 0;
	b->room = FEW;
	b->specs = NULL;
	b->error.status = TUTTI_OK;
	return b;
}

static void group_free_batch(struct call_batch *b)
{
	free(b->specs);
	if (b->members != b->few)
		free(b->members);
	b->is_used = false;
	if (b != &own_batch)
		free(b);
}

bool group_is_mine(void)
{
	return open_batch != NULL;
}

void group_note_errors(void)
{
	if (group_is_open())
		fail_keep(&open_batch->error);
}

tutti_status group_refuse(const char *name)
{
	if (!group_is_open())
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID, "%s: a group is open on this thread: end the group first",
		    name);
}

tutti_status tutti_group_refuse(const char *name)
{
	return group_refuse(name ? name : "this call");
}

/* The next member; it counts once it is complete. Either its args or its message is set by the
 * caller: clearing both costs more than a short message. */
static tutti_status group_new_collected(struct call_batch *b, struct tutti_comm *comm,
					const tutti_call *call, struct collected **m)
{
	if (b->count == GROUP_CALLS_MAX)
		return fail(TUTTI_ERR_INVALID, "a group has at most %d calls: end it earlier",
			    GROUP_CALLS_MAX);
	if (b->count == b->room) {
		size_t room = 4 * b->room;
		bool is_few = b->members == b->few;
		struct collected *members =
			realloc(is_few ? NULL : b->members, room * sizeof *members);
		if (!members)
			return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a group of %zu calls",
				    comm->rank, b->count + 1);
		if (is_few)
			memcpy(members, b->few, sizeof b->few);
		b->members = members;
		b->room = room;
	}
	*m = &b->members[b->count];
	(*m)->comm = comm;
	(*m)->args.op = TUTTI_SUM; /* nothing to release */
	(*m)->message.side = P2P_NONE;
	(*m)->spec = NULL;
	(*m)->timeout_ms = call ? call->timeout_ms : 0;
	(*m)->label = call ? call->label : NULL;
	(*m)->tables = NULL;
	(*m)->is_captured = false;
	return TUTTI_OK;
}

/* The caller's tables are gone when its call returns. */
static tutti_status group_copy_tables(struct collected *m)
{
	struct call_args *a = &m->args;
	size_t n = (size_t)m->comm->size, at = 0;
	const size_t **tables[] = {&a->counts[0], &a->counts[1], &a->offsets[0], &a->offsets[1]};

	if (!a->counts[0] && !a->counts[1])
		return TUTTI_OK;
	m->tables = malloc(4 * n * sizeof *m->tables);
	if (!m->tables)
		return fail(TUTTI_ERR_MEMORY,
			    "rank %d: no memory for the counts of a call in a group",
			    m->comm->rank);
	for (int t = 0; t < 4; t++) {
		if (!*tables[t])
			continue;
		memcpy(m->tables + at, *tables[t], n * sizeof *m->tables);
		*tables[t] = m->tables + at;
		at += n;
	}
	return TUTTI_OK;
}

tutti_status group_add_call(struct tutti_comm *comm, const struct call_args *args,
			    const tutti_call *call)
{
	struct collected *m = NULL;
	group_note_errors();
	TRY(comm_check_call(comm, args));
	TRY(group_new_collected(open_batch, comm, call, &m));
	m->args = *args;
	TRY(group_copy_tables(m));
	op_hold(m->args.op);
	open_batch->count++;
	fail_keep(NULL);
	return TUTTI_OK;
}

tutti_status group_add_message(struct tutti_comm *comm, const struct send_recv *message,
			       const tutti_call *call)
{
	struct collected *m = NULL;
	group_note_errors();
	TRY(group_new_collected(open_batch, comm, call, &m));
	m->message = *message;
	m->message.is_grouped = true;
	open_batch->count++;
	fail_keep(NULL);
	return TUTTI_OK;
}

/* More works than may else be in flight: a call that waits for room would keep those behind it,
 * which it may need, from starting. */
static void group_widen(const struct call_batch *b, int by)
{
	for (size_t i = 0; i < b->count; i++) {
		struct engine *e = b->members[i].comm->engine;
		engine_lock(e);
		e->works.groups += by;
		engine_unlock(e);
	}
}

/* call: work, done and stream are the group's. */
static tutti_status group_start_member(struct collected *m, int timeout_ms, tutti_call *call)
{
	call->timeout_ms = m->timeout_ms ? m->timeout_ms : timeout_ms;
	call->label = m->label;
	m->args.is_grouped = true;
	if (m->message.side == P2P_NONE)
		return comm_call_alone(m->comm, &m->args, call);
	if (call->timeout_ms)
		m->message.timeout_ms = call->timeout_ms;
	m->message.done = call->done;
	m->message.done_arg = call->done_arg;
	return comm_call_message(m->comm, &m->message, call);
}

/* The messages that one communicator captures: which, and how many there would be. */
struct captured {
	const struct task_spec *messages[MESSAGES_MOST];
	size_t count;
};

/* Those of the communicator of member i, if that is the first of them; else none. */
static void group_gather_captured(const struct call_batch *b, size_t i, struct captured *c)
{
	const struct tutti_comm *comm = b->members[i].comm;

	c->count = 0;
	for (size_t k = 0; k < b->count; k++) {
		const struct collected *m = &b->members[k];
		if (!m->is_captured || m->comm != comm)
			continue;
		if (k < i) {
			c->count = 0;
			return;
		}
		if (c->count < MESSAGES_MOST)
			c->messages[c->count] = m->spec;
		c->count++;
	}
}

/* Before anything starts: what of it goes into a graph, and whether it can. */
static tutti_status group_find_captured(struct call_batch *b, void *stream)
{
	struct captured c;

	for (size_t i = 0; i < b->count; i++) {
		struct collected *m = &b->members[i];
		m->is_captured = m->message.side && comm_captures(m->comm, stream);
		if (!m->is_captured)
			continue;
		if (!b->specs && !(b->specs = malloc(b->count * sizeof *b->specs)))
			return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a group of %zu calls",
				    m->comm->rank, b->count);
		m->spec = &b->specs[i];
		*m->spec = comm_message_spec(&m->message);
	}
	for (size_t i = 0; i < b->count; i++) {
		if (!b->members[i].is_captured)
			continue;
		group_gather_captured(b, i, &c);
		if (c.count > 0)
			TRY(comm_check_captured(b->members[i].comm, c.messages, c.count, stream));
	}
	return TUTTI_OK;
}

/* Of member i, or of all that are captured with it. */
static tutti_status group_start(struct call_batch *b, size_t i, int timeout_ms, tutti_call *call)
{
	struct collected *m = &b->members[i];
	struct captured c;

	if (!m->is_captured)
		return group_start_member(m, timeout_ms, call);
	group_gather_captured(b, i, &c);
	if (c.count == 0)
		return TUTTI_OK;
	call->label = m->label;
	return comm_call_captured(m->comm, c.messages, c.count, call);
}

/* A call that cannot start does not stop the others of the group: other ranks have started theirs.
 */
static void group_start_some(struct call_batch *b, struct tutti_work *whole,
			     const tutti_call *group, bool captured, struct kept_error *first)
{
	for (size_t i = 0; i < b->count; i++) {
		struct tutti_work *part = NULL;
		tutti_call call = {.work = &part, .stream = group->stream};
		if (b->members[i].is_captured != captured)
			continue;
		tutti_status status = group_start(b, i, group->timeout_ms, &call);
		if (part)
			work_add_part(whole, part);
		if (status == TUTTI_OK)
			continue;
		work_note_error(whole, status, last_error());
		if (first->status == TUTTI_OK) {
			first->status = status;
			memcpy(first->message, last_error(), strlen(last_error()) + 1);
		}
	}
}

/* Messages into a graph are one kernel, which waits for others': it comes behind the collectives of
 * the group, on all ranks. */
static tutti_status group_start_all(struct call_batch *b, struct tutti_work *whole,
				    const tutti_call *group)
{
	struct kept_error first = {.status = TUTTI_OK};

	group_widen(b, 1);
	group_start_some(b, whole, group, false, &first);
	group_start_some(b, whole, group, true, &first);
	group_widen(b, -1);
	return first.status == TUTTI_OK ? TUTTI_OK : fail(first.status, "%s", first.message);
}

/* Whether all calls are of buffers on GPUs. */
static bool group_is_on_gpus(const struct call_batch *b)
{
	for (size_t i = 0; i < b->count; i++) {
		const struct collected *m = &b->members[i];
		const struct call_args *a = &m->args;
		const struct memory_kind *memory = m->message.side
							   ? m->message.memory
							   : memory_of(a->recv ? a->recv : a->send);
		if (memory->id != TUTTI_MEMORY_CUDA)
			return false;
	}
	return b->count > 0;
}

/* Ends a group that was started as its caller wants: with a handle, in its stream, or here. */
static tutti_status group_conclude(const struct call_batch *b, struct tutti_work *whole,
				   const tutti_call *call)
{
	tutti_status status = TUTTI_OK;

	if (call->work) {
		*call->work = whole;
		return TUTTI_OK;
	}
	if (!call->done && (call == &no_call || !group_is_on_gpus(b)))
		return work_wait(&whole, 0);
	if (!call->done)
		status = work_wait_stream(whole, call->stream);
	for (size_t i = 0; status != TUTTI_OK && i < b->count; i++)
		engine_fail_stream(b->members[i].comm->engine, status, "a group");
	work_release(whole);
	return status;
}

/* One call is its own group's work. It is issued like the others and only then waited for, since a
 * call of a group does not wait for room. */
static tutti_status group_run_alone(struct call_batch *b, const tutti_call *call)
{
	struct tutti_work *work;
	tutti_call own = {.work = &work,
			  .stream = call->stream,
			  .done = call->done,
			  .done_arg = call->done_arg};

	group_widen(b, 1);
	tutti_status status = group_start_member(&b->members[0], call->timeout_ms, &own);
	group_widen(b, -1);
	return status == TUTTI_OK ? group_conclude(b, work, call) : status;
}

/* A blocking group of messages on host memory, all of one communicator: completes in this thread
 * those that need no work, and takes them off the batch. */
static void group_run_at_once(struct call_batch *b)
{
	struct comm_message messages[MESSAGES_AT_ONCE];
	size_t left = 0;

	if (b->count > MESSAGES_AT_ONCE)
		return;
	for (size_t i = 0; i < b->count; i++) {
		struct collected *m = &b->members[i];
		if (!m->message.side || m->comm != b->members[0].comm ||
		    m->message.memory != &memory_host)
			return;
		messages[i] = (struct comm_message){&m->message, m->label, false};
	}
	comm_messages_at_once(b->members[0].comm, messages, b->count);
	for (size_t i = 0; i < b->count; i++)
		if (!messages[i].is_over)
			b->members[left++] = b->members[i];
	b->count = left;
}

static tutti_status group_run(struct call_batch *b, const tutti_call *call)
{
	struct tutti_work *whole;

	if (!call)
		call = &no_call;
	if (b->count > 0 && !call->work && !call->done && !call->stream) {
		group_run_at_once(b);
		if (b->count == 0)
			return TUTTI_OK;
	}
	if (b->count == 0) {
		if (call->done)
			callback_done("the done function", "tutti_group_end", -1, call->done,
				      call->done_arg, TUTTI_OK);
		return TUTTI_OK;
	}
	if (b->count == 1)
		return group_run_alone(b, call);
	TRY(group_find_captured(b, call->stream));
	TRY(work_new_whole(&whole, b->members[0].comm->engine, b->count, call));
	char why[ERROR_BYTES];
	tutti_status status = group_start_all(b, whole, call);
	snprintf(why, sizeof why, "%s", status == TUTTI_OK ? "" : last_error());
	bool any = work_seal(whole);
	if (!any) { /* nothing was started: the caller hears of it here, once */
		work_release(whole);
		return status;
	}
	tutti_status ended = group_conclude(b, whole, call);
	bool is_told = call->work || call->done; /* by the work that notes it */
	return status != TUTTI_OK && ended == TUTTI_OK && !is_told ? fail(status, "%s", why)
								   : ended;
}

tutti_status tutti_group_begin(void)
{
	last_error_clear();
	if (!open_batch) {
		open_batch = group_new_batch();
		if (!open_batch)
			return fail(TUTTI_ERR_MEMORY, "no memory for a group");
		if (!atomic_load_explicit(&group_was_begun, memory_order_relaxed))
			atomic_store(&group_was_begun, true);
	}
	open_batch->depth++;
	return TUTTI_OK;
}

static tutti_status api_group_end(struct call_batch *b, const tutti_call *call)
{
	TRY(forks_check("tutti_group_end"));
	if (b->error.status != TUTTI_OK)
		return fail(b->error.status, "%s", b->error.message);
	TRY(collectives_check_call("tutti_group_end", call));
	return group_run(b, call);
}

tutti_status tutti_group_end(const tutti_call *call)
{
	struct call_batch *b = open_batch;

	last_error_clear();
	if (!b)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_group_end: this thread has begun no group that it could end");
	if (call && call->work)
		*call->work = NULL; /* also of an inner end, which makes no work */
	if (--b->depth > 0)
		return b->error.status == TUTTI_OK ? TUTTI_OK
						   : fail(b->error.status, "%s", b->error.message);
	fail_keep(NULL);
	open_batch = NULL;
	tutti_status status = api_group_end(b, call);
	for (size_t i = 0; i < b->count; i++) {
		op_release(b->members[i].args.op);
		free(b->members[i].tables);
	}
	group_free_batch(b);
	return status;
}
