/* Requests of other ranks, and of this one: until their function runs. */
#include "rpc/rpc_internal.h"

#include "core/memory_left.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_AT_MEMORY_BYTES = 64 << 20 }; /* longer payloads are compared with what is left */

/* NULL: no memory. */
static struct tutti_rpc_reply *make_entry(tutti_rpc *rpc, int rank, uint32_t slot)
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

struct tutti_rpc_reply *rpc_entry_of(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *block = rpc->peers[rank].entries[m->slot / RPC_ENTRY_BLOCK];
	struct tutti_rpc_reply *entry = block ? &block[m->slot % RPC_ENTRY_BLOCK] : NULL;

	return entry && entry->state != ENTRY_IS_FREE && entry->id == m->id ? entry : NULL;
}

static bool is_busy(const struct tutti_rpc_reply *entry)
{
	return entry->state != ENTRY_IS_FREE && entry->state != ENTRY_OFFERS &&
	       entry->state != ENTRY_REPLIED;
}

/* Its REPLY or OFFER went by an earlier communicator. */
static bool is_unheard(const struct tutti_rpc_reply *entry)
{
	return (entry->state == ENTRY_OFFERS || entry->state == ENTRY_REPLIED) &&
	       entry->replied_in != entry->rpc->epoch;
}

/* The same request once more, after a recovery. */
static void ask_again(struct tutti_rpc_reply *entry)
{
	if (entry->state == ENTRY_PULLS)
		rpc_post_note(entry->rpc, RPC_PULL, &entry->request, entry->rank);
	else if (is_unheard(entry))
		rpc_reply_send(entry);
}

static void refuse_name(struct tutti_rpc_reply *entry)
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

/* Memory for a long payload. An allocation that the system grants, but cannot fill, would end the
 * process. */
static void pull(struct tutti_rpc_reply *entry)
{
	tutti_rpc *rpc = entry->rpc;
	const struct rpc_message *m = &entry->request;
	unsigned long long bytes = m->bytes;
	uint64_t left = bytes > LOOK_AT_MEMORY_BYTES ? memory_left("") : 0;

	if (rpc->config.max_bytes && bytes > rpc->config.max_bytes) {
		rpc_reply_fail(entry, TUTTI_ERR_MEMORY,
			       "its payload has %llu bytes, and the rank takes at most %zu", bytes,
			       rpc->config.max_bytes);
		return;
	}
	if (!left || bytes < left)
		entry->payload = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
	if (!entry->payload) {
		rpc_reply_fail(entry, TUTTI_ERR_MEMORY,
			       "the rank has no memory for its payload of %llu bytes", bytes);
		return;
	}
	rpc_post_note(rpc, RPC_PULL, m, entry->rank);
}

static void reply_cancelled(struct tutti_rpc_reply *entry)
{
	rpc_reply_forget(entry);
	entry->reply.is_cancelled = 1;
	rpc_reply_fail(entry, TUTTI_ERR_ABORTED, "cancelled");
}

/* Its payload is there. Returns it if it runs at once. */
static struct tutti_rpc_reply *begin(struct tutti_rpc_reply *entry)
{
	tutti_rpc *rpc = entry->rpc;
	const struct rpc_message *m = &entry->request;

	entry->seen = (tutti_rpc_request){.rank = entry->rank,
					  .timeout_ms = m->timeout_ms,
					  .is_one_way = m->is_one_way,
					  .name = entry->function->name,
					  .data = entry->payload ? entry->payload : (void *)m->data,
					  .bytes = (size_t)m->bytes};
	if (__atomic_load_n(&entry->is_cancelled, __ATOMIC_RELAXED)) {
		reply_cancelled(entry);
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

struct tutti_rpc_reply *rpc_on_request(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = make_entry(rpc, rank, m->slot);

	if (!entry) {
		rpc_complain(rpc, "rank %d has no memory for calls of rank %d: one gets no answer",
			     rpc->rank, rank);
		return NULL;
	}
	if (entry->id >= m->id) {
		if (entry->id == m->id)
			ask_again(entry);
		return NULL;
	}
	if (is_busy(entry)) {
		rpc_complain(rpc, "rank %d has used a slot of rank %d again before its answer",
			     rank, rpc->rank);
		return NULL;
	}
	rpc_reply_forget(entry);
	entry->request = *m;
	entry->id = m->id;
	__atomic_store_n(&entry->is_cancelled, 0, __ATOMIC_RELAXED);
	entry->reply = (struct rpc_message){.kind = RPC_REPLY, .slot = m->slot, .id = m->id};
	entry->replied_in = 0;
	if (!(entry->function = rpc_functions_find(rpc, rpc_message_name(m), m->name_bytes))) {
		refuse_name(entry);
		return NULL;
	}
	if (!m->num_pieces)
		return begin(entry);
	entry->state = ENTRY_PULLS;
	pull(entry);
	return NULL;
}

static void on_payload(void *arg, tutti_status status)
{
	struct tutti_rpc_reply *entry = arg, *due = NULL;
	tutti_rpc *rpc = entry->rpc;

	rpc_in_callback++;
	rpc_lock(rpc);
	if (status == TUTTI_OK) {
		if (entry->request.is_one_way)
			rpc_post_note(rpc, RPC_HAVE, &entry->request, entry->rank);
		due = begin(entry);
	} else if (tutti_comm_status(rpc->comm) != TUTTI_OK) {
		entry->state = ENTRY_PULLS; /* it is asked for again */
		rpc_note_failure(rpc);
	} else {
		rpc_reply_fail(entry, TUTTI_ERR_INTERNAL, "its payload is not as long as was said");
	}
	rpc_issued_over(rpc, true);
	rpc_unlock(rpc);
	if (due)
		rpc_run(due);
	rpc_in_callback--;
}

void rpc_on_coming(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = rpc_entry_of(rpc, rank, m);
	tutti_rpc_piece pieces[TUTTI_RPC_PIECES];

	if (!entry || entry->state != ENTRY_PULLS)
		return;
	uint8_t *at = entry->payload;
	struct rpc_io io = {.rank = rank,
			    .tag = RPC_TAG_PAYLOAD + (int)m->slot,
			    .pieces = pieces,
			    .num_pieces = entry->request.num_pieces,
			    .done = on_payload,
			    .done_arg = entry};
	for (int i = 0; i < io.num_pieces; i++) {
		pieces[i] = (tutti_rpc_piece){at, rpc_message_piece(&entry->request, i)};
		at += pieces[i].bytes;
	}
	if (rpc_issue(rpc, &io) == TUTTI_OK)
		entry->state = ENTRY_RECEIVES;
}

/* A call of which this rank knows nothing was lost with a communicator: it counts as cancelled, and
 * its request would be an old one. */
static void cancel_unknown(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = make_entry(rpc, rank, m->slot);

	if (!entry || entry->id >= m->id || is_busy(entry))
		return;
	rpc_reply_forget(entry);
	entry->request = *m;
	entry->request.is_one_way = entry->request.num_pieces = 0;
	entry->function = NULL;
	entry->id = m->id;
	entry->reply = (struct rpc_message){.kind = RPC_REPLY, .slot = m->slot, .id = m->id};
	reply_cancelled(entry);
}

void rpc_on_cancel(tutti_rpc *rpc, int rank, const struct rpc_message *m)
{
	struct tutti_rpc_reply *entry = rpc_entry_of(rpc, rank, m);

	if (!entry) {
		cancel_unknown(rpc, rank, m);
		return;
	}
	__atomic_store_n(&entry->is_cancelled, 1, __ATOMIC_RELAXED);
	if (entry->state == ENTRY_PULLS ||
	    (entry->state == ENTRY_QUEUES && rpc_pool_remove(rpc, entry)))
		reply_cancelled(entry);
	else if (entry->state == ENTRY_RUNS)
		rpc_post_note(rpc, RPC_STATE, m, rank);
	else if (is_unheard(entry))
		rpc_reply_send(entry);
}

void rpc_run(struct tutti_rpc_reply *entry)
{
	uint64_t before = rpc_context();

	rpc_context_set(entry->request.context);
	tutti_set_error(TUTTI_OK, ""); /* an older one would be taken for the function's */
	tutti_status status = entry->function->fn(entry->function->arg, &entry->seen, entry);
	rpc_context_set(before);
	if (status != TUTTI_IN_PROGRESS)
		tutti_rpc_reply_end(entry, status);
}
