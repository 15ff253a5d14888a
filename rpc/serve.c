/* Messages that come in, and requests of other ranks and of this one, until their function runs. */
#include "rpc/rpc_internal.h"

#include "core/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the pool: threads that start when requests wait, up to config.threads, and stay ---- */

/* config.queue requests wait */
static bool rpc_pool_is_full(const tutti_rpc *rpc)
{
	int free_threads = rpc->pool.idle_threads + rpc->config.threads - rpc->pool.num_threads;

	return rpc->config.queue && rpc->queued - free_threads >= rpc->config.queue;
}

static struct tutti_rpc_reply *serve_pool_pop(tutti_rpc *rpc)
{
	struct tutti_rpc_reply *entry = rpc->pool.queue;

	if (!(rpc->pool.queue = entry->next))
		rpc->pool.queue_tail = &rpc->pool.queue;
	rpc->queued--;
	entry->state = ENTRY_RUNS;
	rpc->running++;
	return entry;
}

static void *serve_run_functions(void *arg)
{
	tutti_rpc *rpc = arg;

	rpc_lock(rpc);
	for (;;) {
		while (!rpc->pool.queue && !rpc->pool.stops) {
			rpc->pool.idle_threads++;
			pthread_cond_wait(&rpc->has_request, &rpc->lock);
			rpc->pool.idle_threads--;
		}
		if (!rpc->pool.queue || rpc->pool.stops)
			break;
		struct tutti_rpc_reply *entry = serve_pool_pop(rpc);
		rpc_unlock(rpc);
		rpc_run(entry);
		rpc_lock(rpc);
	}
	rpc_unlock(rpc); /* calls what is due, and destroy does not join this thread before */
	pthread_mutex_lock(&rpc->lock);
	rpc->pool.num_ended++;
	pthread_cond_broadcast(&rpc->changed);
	pthread_mutex_unlock(&rpc->lock);
	return NULL;
}

static int serve_pool_start_thread(tutti_rpc *rpc)
{
	int error =
		thread_start(&rpc->pool.threads[rpc->pool.num_threads], serve_run_functions, rpc);

	rpc->pool.num_threads += error == 0;
	return error;
}

static tutti_status rpc_pool_push(tutti_rpc *rpc, struct tutti_rpc_reply *entry)
{
	if (rpc->pool.stops) /* nobody would join a new thread */
		return fail(TUTTI_ERR_ABORTED, "the rank has left");
	if (rpc->queued >= rpc->pool.idle_threads && rpc->pool.num_threads < rpc->config.threads) {
		int error = serve_pool_start_thread(rpc);
		if (error && rpc->pool.num_threads == 0)
			return fail(TUTTI_ERR_SYSTEM,
				    "the rank cannot start a thread for it: pthread_create: "
				    "%s",
				    strerror(error));
	}
	entry->state = ENTRY_QUEUES;
	entry->next = NULL;
	*rpc->pool.queue_tail = entry;
	rpc->pool.queue_tail = &entry->next;
	rpc->queued++;
	pthread_cond_signal(&rpc->has_request);
	return TUTTI_OK;
}

bool rpc_pool_remove(tutti_rpc *rpc, struct tutti_rpc_reply *entry)
{
	struct tutti_rpc_reply **at = &rpc->pool.queue;

	while (*at && *at != entry)
		at = &(*at)->next;
	if (!*at)
		return false;
	if (!(*at = entry->next))
		rpc->pool.queue_tail = at;
	rpc->queued--;
	return true;
}

/* ---- requests ---- */

/* NULL: no memory. */
static struct tutti_rpc_reply *serve_make_entry(tutti_rpc *rpc, int rank, uint32_t slot)
{
	struct tutti_rpc_reply **block = &rpc->peers[rank].entries[slot / RPC_ENTRY_BLOCK];

	if (!*block) {
		size_t bytes = RPC_ENTRY_BLOCK * sizeof **block;
		if (!(*block = aligned_alloc(64, bytes)))
			return NULL;
		memset(*block, 0, bytes);
		for (int i = 0; i < RPC_ENTRY_BLOCK; i++) {
			(*block)[i].rpc = rpc;
			(*block)[i].rank = rank;
		}
	}
	return &(*block)[slot % RPC_ENTRY_BLOCK];
}

static bool serve_is_busy(const struct tutti_rpc_reply *entry)
{
	return entry->state != ENTRY_IS_FREE && entry->state != ENTRY_OFFERS &&
	       entry->state != ENTRY_REPLIED;
}

/* Its REPLY or OFFER went by an earlier communicator. */
static bool serve_is_unheard(const struct tutti_rpc_reply *entry)
{
	return (entry->state == ENTRY_OFFERS || entry->state == ENTRY_REPLIED) &&
	       entry->replied_in != entry->rpc->epoch;
}

static void serve_refuse_name(struct tutti_rpc_reply *entry)
{
	const struct rpc_message *m = &entry->request;
	const char *nearest = rpc_functions_nearest(entry->rpc, rpc_message_name(m), m->name_bytes);

	rpc_reply_fail(entry, TUTTI_ERR_INVALID,
		       nearest ? "no function of that name is registered "
				 "there; the nearest one is '%s'"
			       : "no function of that name is registered "
				 "there",
		       nearest);
}

/* Memory for a payload that is not in the request. */
static tutti_status serve_allocate_payload(struct tutti_rpc_reply *entry)
{
	tutti_rpc *rpc = entry->rpc;
	unsigned long long bytes = entry->request.bytes;

	if (rpc->config.max_bytes && bytes > rpc->config.max_bytes)
		return fail(TUTTI_ERR_MEMORY,
			    "its payload has %llu bytes, and the rank takes at most %zu", bytes,
			    rpc->config.max_bytes);
	if (rpc_memory_has(bytes))
		entry->payload = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
	if (entry->payload)
		return TUTTI_OK;
	return fail(TUTTI_ERR_MEMORY, "the rank has no memory for its payload of %llu bytes",
		    bytes);
}

static void serve_pull(struct tutti_rpc_reply *entry)
{
	tutti_status status = serve_allocate_payload(entry);

	if (status == TUTTI_OK)
		rpc_post_note(entry->rpc, RPC_PULL, &entry->request, entry->rank);
	else
		rpc_reply_fail(entry, status, "%s", tutti_comm_error(NULL));
}

static void serve_reply_cancelled(struct tutti_rpc_reply *entry)
{
	rpc_reply_forget(entry);
	entry->reply.cancelled = RPC_BEFORE_IT_RAN;
	rpc_reply_fail(entry, TUTTI_ERR_ABORTED, "cancelled");
}

/* Its payload is there. Returns it if it runs at once. */
static struct tutti_rpc_reply *serve_begin(struct tutti_rpc_reply *entry)
{
	tutti_rpc *rpc = entry->rpc;
	const struct rpc_message *m = &entry->request;

	entry->seen = (tutti_rpc_request){.rpc = rpc,
					  .rank = entry->rank,
					  .timeout_ms = m->timeout_ms,
					  .is_one_way = m->is_one_way,
					  .name = entry->function->name,
					  .data = entry->payload ? entry->payload : (void *)m->data,
					  .bytes = (size_t)m->bytes};
	if (__atomic_load_n(&entry->is_cancelled, __ATOMIC_RELAXED)) {
		serve_reply_cancelled(entry);
		return NULL;
	}
	if (entry->function->is_short) { /* this is the helper thread */
		entry->state = ENTRY_RUNS;
		rpc->running += !entry->function->is_own;
		return entry;
	}
	if (!m->is_one_way && rpc_pool_is_full(rpc)) {
		rpc_reply_fail(entry, TUTTI_ERR_MEMORY,
			       "%d requests wait there for one of %d threads, and more may not",
			       rpc->config.queue, rpc->config.threads);
		return NULL;
	}
	if (rpc_pool_push(rpc, entry) != TUTTI_OK)
		rpc_reply_fail(entry, TUTTI_ERR_SYSTEM, "%s", tutti_comm_error(NULL));
	return NULL;
}

static struct tutti_rpc_reply *serve_landed(struct tutti_rpc_reply *entry)
{
	if (!entry->function) {
		serve_refuse_name(entry);
	} else if (!entry->payload) { /* the reason once more */
		tutti_status status = serve_allocate_payload(entry);
		rpc_reply_fail(entry, status == TUTTI_OK ? TUTTI_ERR_MEMORY : status, "%s",
			       status == TUTTI_OK ? "the rank had no memory for its payload"
						  : tutti_comm_error(NULL));
	} else {
		if (entry->request.is_one_way && !entry->request.comes_along &&
		    !entry->is_cancelled)
			rpc_post_note(entry->rpc, RPC_HAVE, &entry->request, entry->rank);
		return serve_begin(entry);
	}
	return NULL;
}

static void serve_on_payload(void *arg, tutti_status status)
{
	struct tutti_rpc_reply *entry = arg, *due = NULL;
	tutti_rpc *rpc = entry->rpc;

	rpc_in_callback++;
	rpc_lock(rpc);
	if (status == TUTTI_OK && rpc->state != RPC_ENDED) {
		due = serve_landed(entry);
	} else if (status == TUTTI_OK) {
		entry->state = ENTRY_PULLS; /* nobody asks for it any more */
	} else if (tutti_comm_status(rpc->comm) != TUTTI_OK) {
		entry->state = ENTRY_PULLS; /* it is asked for again */
		rpc_note_failure(rpc);
	} else {
		rpc_reply_fail(entry, TUTTI_ERR_INTERNAL, "its payload is not as long as was said");
	}
	rpc_issued_over(rpc, !due);
	rpc_unlock(rpc);
	if (due)
		rpc_run_inside(due);
	rpc_in_callback--;
}

/* Posts the recvs for the payload. */
static void serve_receive(struct tutti_rpc_reply *entry)
{
	tutti_rpc_piece pieces[TUTTI_RPC_PIECES];
	uint8_t *at = entry->payload ? entry->payload : entry->rpc->scratch;
	struct rpc_io io = {.rank = entry->rank,
			    .tag = RPC_TAG_PAYLOAD + (int)entry->request.slot,
			    .pieces = pieces,
			    .num_pieces = entry->request.num_pieces,
			    .done = serve_on_payload,
			    .done_arg = entry};

	for (int i = 0; i < io.num_pieces; i++) {
		pieces[i] = (tutti_rpc_piece){at, rpc_message_piece(&entry->request, i)};
		at += pieces[i].bytes;
	}
	if (rpc_issue(entry->rpc, &io) == TUTTI_OK)
		entry->state = ENTRY_RECEIVES;
}

static void rpc_on_coming(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = rpc_entry_of(rpc, rank, m);

	if (entry && entry->state == ENTRY_PULLS && entry->payload)
		serve_receive(entry);
}

/* A payload that comes along is received in any case: if there is no memory for it, into the
 * scratch. */
static void serve_receive_along(struct tutti_rpc_reply *entry)
{
	if (entry->function && !entry->payload)
		serve_allocate_payload(entry);
	serve_receive(entry);
}

static void serve_swallow(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	if (m->comes_along)
		rpc_swallow(rpc, m->bytes, rank, RPC_TAG_PAYLOAD + (int)m->slot);
}

/* The same request once more, after a recovery: what is lost is said, or asked for, again. */
static void serve_come_again(struct tutti_rpc_reply *entry, const struct rpc_message *m)
{
	tutti_rpc *rpc = entry->rpc;
	bool is_here = entry->id == m->id && entry->state != ENTRY_PULLS;

	if (entry->id == m->id && !is_here && m->comes_along) {
		serve_receive(entry);
		return;
	}
	serve_swallow(rpc, entry->rank, m);
	if (entry->id != m->id)
		return;
	if (!is_here)
		rpc_post_note(rpc, RPC_PULL, m, entry->rank);
	else if (m->is_one_way && m->num_pieces && !m->comes_along)
		rpc_post_note(rpc, RPC_HAVE, m, entry->rank);
	if (serve_is_unheard(entry))
		rpc_reply_send(entry);
}

static struct tutti_rpc_reply *rpc_on_request(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = serve_make_entry(rpc, rank, m->slot);

	if (!entry) {
		serve_swallow(rpc, rank, m);
		rpc_complain("rank %d has no memory for calls of rank %d: one gets no answer",
			     rpc->rank, rank);
		return NULL;
	}
	if (entry->id >= m->id) {
		serve_come_again(entry, m);
		return NULL;
	}
	if (serve_is_busy(entry)) {
		serve_swallow(rpc, rank, m);
		rpc_complain("rank %d has used a slot of rank %d again before its answer", rank,
			     rpc->rank);
		return NULL;
	}
	rpc_reply_clear(entry);
	entry->request = *m;
	entry->id = m->id;
	__atomic_store_n(&entry->is_cancelled, 0, __ATOMIC_RELAXED);
	entry->reply = (struct rpc_message){.kind = RPC_REPLY, .slot = m->slot, .id = m->id};
	entry->replied_in = 0;
	entry->is_held = false;
	entry->function = rpc_functions_find(rpc, rpc_message_name(m), m->name_bytes);
	entry->state = ENTRY_PULLS;
	if (m->comes_along)
		serve_receive_along(entry);
	else if (!entry->function)
		serve_refuse_name(entry);
	else if (m->num_pieces)
		serve_pull(entry);
	else
		return serve_begin(entry);
	return NULL;
}

/* A call of which this rank knows nothing was lost with a communicator: it counts as cancelled, and
 * its request would be an old one. */
static void serve_cancel_unknown(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = serve_make_entry(rpc, rank, m->slot);

	if (!entry || entry->id >= m->id || serve_is_busy(entry))
		return;
	rpc_reply_clear(entry);
	entry->request = *m;
	entry->request.is_one_way = entry->request.num_pieces = 0;
	entry->function = NULL;
	entry->id = m->id;
	entry->reply = (struct rpc_message){.kind = RPC_REPLY, .slot = m->slot, .id = m->id};
	serve_reply_cancelled(entry);
}

static void serve_tell_state(const struct tutti_rpc_reply *entry)
{
	struct rpc_message m = {.kind = RPC_STATE,
				.slot = entry->request.slot,
				.id = entry->id,
				.is_held = entry->is_held};

	rpc_post(entry->rpc, &m, entry->rank, RPC_TAG_NOTES);
}

static void rpc_on_cancel(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = rpc_entry_of(rpc, rank, m);

	if (!entry) {
		serve_cancel_unknown(rpc, rank, m);
		return;
	}
	bool has_landed = entry->state != ENTRY_PULLS && entry->state != ENTRY_RECEIVES;
	if (!(entry->request.is_one_way && has_landed)) /* else its caller has, or gets, HAVE */
		__atomic_store_n(&entry->is_cancelled, 1, __ATOMIC_RELAXED);
	if (entry->state == ENTRY_PULLS && entry->payload && m->is_coming)
		serve_receive(entry); /* COMING is on the way */
	else if (entry->state == ENTRY_PULLS ||
		 (entry->state == ENTRY_QUEUES && entry->is_cancelled &&
		  rpc_pool_remove(rpc, entry)))
		serve_reply_cancelled(entry);
	else if (entry->state == ENTRY_RUNS)
		serve_tell_state(entry);
	else if (serve_is_unheard(entry))
		rpc_reply_send(entry);
}

/* ---- messages that come in ---- */

/* Some recvs from any rank are always posted. The library's helper thread calls for each that has
 * met one; it is copied, and posted again before its function runs. */

static void serve_on_message(void *arg, tutti_status status);

static tutti_status rpc_inbox_post(struct rpc_inbox *in)
{
	tutti_rpc_piece piece = {&in->message, sizeof in->message};
	struct rpc_io io = {.rank = TUTTI_ANY,
			    .tag = RPC_TAG_NOTES,
			    .pieces = &piece,
			    .num_pieces = 1,
			    .work = &in->work,
			    .done = serve_on_message,
			    .done_arg = in,
			    .source = &in->source};

	return rpc_issue(in->rpc, &io);
}

/* A rank that cannot hear messages any more ends. If the communicator has failed, the keeper knows.
 */
static void serve_post_again(struct rpc_inbox *in)
{
	tutti_status status = rpc_inbox_post(in);

	if (status != TUTTI_OK && tutti_comm_status(in->rpc->comm) == TUTTI_OK)
		rpc_end(in->rpc, status, tutti_comm_error(NULL));
}

/* Returns an entry whose function is to run. */
static struct tutti_rpc_reply *serve_inbox_dispatch(tutti_rpc *rpc, int rank,
						    const struct rpc_message *m)
{
	switch (m->kind) {
	case RPC_REQUEST:
		return rpc_on_request(rpc, rank, m);
	case RPC_COMING:
		rpc_on_coming(rpc, rank, m);
		break;
	case RPC_CANCEL:
		rpc_on_cancel(rpc, rank, m);
		break;
	case RPC_TAKE:
		rpc_on_take(rpc, rank, m);
		break;
	case RPC_DROP:
		rpc_on_drop(rpc, rank, m);
		break;
	case RPC_PULL:
		rpc_on_pull(rpc, rank, m);
		break;
	case RPC_HAVE:
		rpc_on_have(rpc, rank, m);
		break;
	case RPC_OFFER:
		rpc_on_offer(rpc, rank, m);
		break;
	case RPC_STATE:
		rpc_on_state(rpc, rank, m);
		break;
	default: /* a REPLY that has lost its way */
		break;
	}
	return NULL;
}

static struct tutti_rpc_reply *serve_inbox_receive(struct rpc_inbox *in)
{
	tutti_rpc *rpc = in->rpc;
	int rank = rpc->first_rank[in->source];
	struct tutti_rpc_reply *due = NULL;

	if (rpc_message_is_sound(&in->message))
		due = serve_inbox_dispatch(rpc, rank, &in->message);
	else
		rpc_complain("rank %d has sent rank %d a message that makes no sense", rank,
			     rpc->rank);
	rpc_sends_look(rpc);
	return due;
}

static void serve_on_message(void *arg, tutti_status status)
{
	struct rpc_inbox *in = arg;
	tutti_rpc *rpc = in->rpc;
	struct tutti_rpc_reply *due = NULL;

	rpc_in_callback++;
	rpc_lock(rpc);
	tutti_work_release(&in->work);
	if (status == TUTTI_OK && rpc->state != RPC_ENDED)
		due = serve_inbox_receive(in);
	else if (tutti_comm_status(rpc->comm) != TUTTI_OK)
		rpc_note_failure(rpc);
	/* ABORTED: it was cancelled. MISMATCH: a message of another length, which is gone. */
	if (rpc->state != RPC_ENDED && (status == TUTTI_OK || status == TUTTI_ERR_MISMATCH))
		serve_post_again(in);
	rpc_issued_over(rpc, !due);
	rpc_unlock(rpc);
	if (due)
		rpc_run_inside(due);
	rpc_in_callback--;
}

tutti_status rpc_inboxes_post(tutti_rpc *rpc)
{
	for (int i = 0; i < RPC_INBOXES; i++) {
		rpc->inboxes[i].rpc = rpc;
		TRY(rpc_inbox_post(&rpc->inboxes[i]));
	}
	return TUTTI_OK;
}

void rpc_inboxes_cancel(tutti_rpc *rpc)
{
	for (int i = 0; i < RPC_INBOXES; i++)
		if (rpc->inboxes[i].work)
			tutti_work_cancel(rpc->inboxes[i].work);
}
